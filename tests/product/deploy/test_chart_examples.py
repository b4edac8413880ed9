"""Each example of the chart makes the objects that the overlay or component of its name makes."""

import json
import re
from typing import Any

import pytest

from tests.product.deploy.charts import lint
from tests.product.deploy.render import AFTER, BESIDE, EXAMPLES
from tests.product.deploy.rendering import (
    COMPONENTS,
    OVERLAYS,
    Manifest,
    composed,
    example,
    overlay,
    pod_spec,
)

# Components that are part of examples with other names.
PART_OF = {
    "mig-monitor": "mig",
    "nvidia-runtime": "gpu-operator",
    "service-monitor": "prometheus-operator",
    "prometheus-rules": "prometheus-operator",
    "dashboards": "prometheus-operator",
}
# The overlays do not have it: docs/fleet.md shows its Deployment.
ONLY_CHART = {"hub", "hub-monitor", "hub-waiting"}
# Objects for other operators than the Prometheus Operator are no examples of the chart.
ONLY_KUSTOMIZE = {"azure-monitor", "google-managed-prometheus", "victoria-metrics"}

PLATFORMS = sorted(EXAMPLES.keys() - set(BESIDE))
# Without a network policy that lets nothing out next to what needs the API server, and with one monitor.
ALL_BESIDE = [name for name in BESIDE if name not in {"network-policy", "pod-monitor"}]

# Declared differences: names of objects of the whole cluster, of rules and of dashboards; labels by which
# Helm and kube-prometheus-stack select; the annotation with the scheme for a Prometheus without operator.
NAMES = {
    "gpuslice-gpuslice-exporter": "gpuslice-exporter",
    r'(PrometheusRule.{1,400}?"name": )"gpuslice-exporter"': r'\1"gpuslice"',
    r'"name": "gpuslice-exporter-(fleet|hardware|node|tenant)"': r'"name": "gpuslice-\1"',
}
ADDED = re.compile(
    r"app\.kubernetes\.io/(instance|version|managed-by)|helm\.sh/chart|release|prometheus\.io/scheme"
)


def _comparable(objects: list[Manifest]) -> dict[str, Any]:
    """Return objects by kind and name, without the Namespace, declared differences and the order of lists."""
    comparable = {}
    for each in objects:
        text = _text(_plain(each))
        for own, plain in NAMES.items():
            text = re.sub(own, plain, text)
        changed = json.loads(text)
        comparable[f"{changed['kind']} {changed['metadata']['name']}"] = changed
    comparable.pop("Namespace gpuslice", None)
    return comparable


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(child) for name, child in value.items() if not ADDED.fullmatch(name)}
    if isinstance(value, list):
        return sorted((_plain(child) for child in value), key=_text)
    return value


@pytest.mark.tools
@pytest.mark.parametrize(
    "names", [(), PLATFORMS, ALL_BESIDE], ids=["no example", "platforms", "beside a platform"]
)
def test_helm_accepts_the_chart(names) -> None:
    """``helm lint --strict`` has no objection, also to all examples that can be combined."""
    done = lint(*names)

    assert done.returncode == 0, done.stdout


def test_the_chart_without_values_makes_the_base() -> None:
    assert _comparable(example()) == _comparable(composed())


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_example_makes_the_overlay_of_its_name(name) -> None:
    assert _comparable(example(name)) == _comparable(overlay(name))


@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - set(OVERLAYS) - ONLY_CHART))
def test_an_example_makes_the_component_of_its_name(name) -> None:
    """With the components that it has to follow."""
    assert _comparable(example(name)) == _comparable(composed(*AFTER.get(name, ()), name))


def test_every_overlay_and_component_is_an_example() -> None:
    """The chart has all that kustomize has, except the declared, and in addition only the hub."""
    assert set(OVERLAYS) <= EXAMPLES.keys()
    assert set(COMPONENTS) - ONLY_KUSTOMIZE <= EXAMPLES.keys() | PART_OF.keys()
    assert EXAMPLES.keys() <= {*OVERLAYS, *COMPONENTS, *ONLY_CHART}
    assert set(PART_OF.values()) <= EXAMPLES.keys()


def test_an_undeclared_difference_is_noticed() -> None:
    changed = example()
    pod_spec(changed)["hostPID"] = False

    assert _comparable(changed) != _comparable(composed())
