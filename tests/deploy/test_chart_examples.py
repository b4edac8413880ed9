"""Each example is valid, and makes the objects that the overlays and components of kustomize make."""

import json
import re
from typing import Any

import pytest

from tests.deploy.charts import BESIDE, EXAMPLES, chart, lint
from tests.deploy.rendering import COMPONENTS, OVERLAYS, Manifest, composed, overlay
from tests.deploy.schemas import validate

# The components of examples that are no overlay, where they are not one of the same name.
COMPOSED = {"hami-dra": ("hami", "hami-dra"), "client-certificates": ("web-config", "client-certificates")}
# Components that examples of other names bring.
BROUGHT = {
    "mig-monitor": "mig",
    "nvidia-runtime": "gpu-operator",
    "service-monitor": "prometheus-operator",
    "prometheus-rules": "prometheus-operator",
    "dashboards": "prometheus-operator",
}
# What the overlays do not have: docs/fleet.md shows its Deployment.
ONLY_CHART = {"hub"}
# Objects for other operators than the Prometheus Operator: the chart has none.
ONLY_KUSTOMIZE = {"azure-monitor", "google-managed-prometheus", "victoria-metrics"}

PLATFORMS = sorted(EXAMPLES.keys() - set(BESIDE))
# No network policy that lets nobody out beside what needs the API server, and one monitor.
ALL_BESIDE = [name for name in BESIDE if name not in {"network-policy", "pod-monitor"}]

# Declared differences: names of what belongs to the whole cluster, of rules and of dashboards; labels by
# which Helm and kube-prometheus-stack choose; the annotation that tells a Prometheus without operator of TLS.
NAMES = {
    "gpuslice-gpuslice-exporter": "gpuslice-exporter",
    r'(PrometheusRule.{1,400}?"name": )"gpuslice-exporter"': r'\1"gpuslice"',
    r'"name": "gpuslice-exporter-(fleet|hardware|node|tenant)"': r'"name": "gpuslice-\1"',
}
ADDED = re.compile(
    r"app\.kubernetes\.io/(instance|version|managed-by)|helm\.sh/chart|release|prometheus\.io/scheme"
)


def _alike(objects: list[Manifest]) -> dict[str, Any]:
    """Give objects by kind and name, without the namespace, declared differences, and the order of lists."""
    alike = {}
    for each in objects:
        text = _text(_plain(each))
        for own, plain in NAMES.items():
            text = re.sub(own, plain, text)
        made = json.loads(text)
        alike[f"{made['kind']} {made['metadata']['name']}"] = made
    alike.pop("Namespace gpuslice", None)
    return alike


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _plain(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _plain(child, name) for name, child in value.items() if not ADDED.fullmatch(name)}
    if isinstance(value, list):
        return sorted((_plain(child) for child in value), key=_text)
    # Dashboards are the same with and without spaces.
    return json.loads(value) if key.endswith(".json") else value


@pytest.mark.parametrize(
    "names", [(), PLATFORMS, ALL_BESIDE], ids=["no example", "platforms", "beside a platform"]
)
def test_helm_finds_nothing_to_complain_about(names) -> None:
    """``helm lint --strict`` accepts the chart, and all examples that can stand together."""
    done = lint(*names)

    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_every_example_is_valid() -> None:
    """The newest Kubernetes, and the operators, know every field of every object."""
    validate([each for name in EXAMPLES for each in chart(name)])


def test_the_base_is_the_chart() -> None:
    """Without any value the chart makes what the base makes."""
    assert _alike(chart()) == _alike(composed())


@pytest.mark.slow
@pytest.mark.parametrize("name", OVERLAYS)
def test_an_example_is_the_overlay_of_its_name(name) -> None:
    """The example of a platform makes its overlay; one for any does beside gpu-operator, as there."""
    examples = ("gpu-operator", name) if name in BESIDE else (name,)

    assert _alike(chart(*examples)) == _alike(overlay(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - set(OVERLAYS) - ONLY_CHART))
def test_an_example_is_the_component_of_its_name(name) -> None:
    """The other examples make the base with the component of their name, or the few that belong together."""
    assert _alike(chart(name)) == _alike(composed(*COMPOSED.get(name, (name,))))


def test_every_overlay_and_component_is_an_example() -> None:
    """The chart has all that kustomize has but those declared, and nothing else but the hub."""
    assert set(OVERLAYS) <= EXAMPLES.keys()
    assert set(COMPONENTS) - ONLY_KUSTOMIZE <= EXAMPLES.keys() | BROUGHT.keys()
    assert EXAMPLES.keys() <= {*OVERLAYS, *COMPONENTS, *ONLY_CHART}
    assert set(BROUGHT.values()) <= EXAMPLES.keys()


def test_differences_that_are_not_declared_are_seen() -> None:
    """The comparison notices one field that differs."""
    assert _alike(chart(values={"hostPID": False})) != _alike(composed())
