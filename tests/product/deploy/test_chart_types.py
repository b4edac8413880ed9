"""What Kubernetes would refuse for its type, and null, is refused by the chart with the name of the value."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from deploy.charts.values import read_values
from deploy.charts.write import never_null
from tests.product.deploy.charts import EVERYTHING, chart, complaint, refusal, template
from tests.product.deploy.render import CHART, objects_in
from tests.product.deploy.schemas import OF_OPERATORS, validate

pytestmark = pytest.mark.tools

VALUES = read_values(CHART / "values.yaml")
TERMS = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": [1]}]}]}


def _nested(path: str, value: Any) -> dict[str, Any]:
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


@pytest.mark.parametrize("prefix", ["", "hub."])
@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        ("extraEnv", [{"name": "A", "value": 1}], "extraEnv/0/value': got number, want string"),
        ("extraEnv", [{"name": "A", "value": True}], "extraEnv/0/value': got boolean, want string"),
        ("extraEnv", [{"name": "A", "value": None}], "extraEnv/0/value': got null, want string"),
        ("extraEnv", [{"name": 1, "value": "a"}], "extraEnv/0/name': got number, want string"),
        ("extraEnv", [{"name": "a=b"}], "extraEnv/0/name"),
        ("extraEnv", [{"value": "a"}], "extraEnv/0': missing property 'name'"),
        ("extraEnv", {"A": "b"}, "extraEnv': got object, want array"),
        (
            "extraEnv",
            [{"name": "A", "valueFrom": {"secretKeyRef": {"name": 7, "key": "k"}}}],
            "extraEnv/0/valueFrom/secretKeyRef/name': got number",
        ),
        ("extraVolumes", [None], "extraVolumes/0': got null, want object"),
        ("extraVolumes", [{"name": "a", "configMap": {"name": 1}}], "extraVolumes/0/configMap/name"),
        ("extraVolumes", [{"name": "a", "secret": {"defaultMode": "0400"}}], "secret/defaultMode"),
        ("extraVolumes", [{"name": "a", "hostPth": {}}], "hostPth"),
        ("extraVolumeMounts", [{"name": "a", "mountPath": 1}], "extraVolumeMounts/0/mountPath"),
        ("extraVolumeMounts", [{"name": "a", "mountPath": "/", "readOnly": "true"}], "/readOnly"),
        (
            "affinity",
            {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": TERMS}},
            "nodeSelectorTerms/0/matchExpressions/0/values/0': got number, want string",
        ),
        ("affinity", {"nodeAffinity": None}, "affinity/nodeAffinity': got null, want object"),
        ("tolerations", [{"operator": "Exists", "value": 1}], "tolerations/0/value"),
        ("tolerations", [{"tolerationSeconds": "1"}], "tolerations/0/tolerationSeconds"),
        ("nodeSelector", {"gpu": True}, "nodeSelector/gpu': got boolean, want string"),
        ("podLabels", {"team": 7}, "podLabels/team': got number, want string"),
        ("podLabels", {"team": "a b"}, "podLabels/team"),
        ("podAnnotations", {"port": 9836}, "podAnnotations/port': got number, want string"),
        ("resources", {"limits": {"memory": "1 GB"}}, "resources/limits/memory"),
        ("resources", {"limits": {"cpu": True}}, "resources/limits/cpu"),
        ("podSecurityContext", {"runAsUser": "root"}, "podSecurityContext/runAsUser"),
        ("podSecurityContext", {"runAsUser": -1}, "podSecurityContext/runAsUser"),
        ("podSecurityContext", {"sysctls": [{"name": "a", "value": 1}]}, "sysctls/0/value"),
        ("securityContext", {"capabilities": {"add": "ALL"}}, "capabilities/add': got string"),
        ("service.annotations", {"a": 1}, "service/annotations/a"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_named(prefix: str, path: str, value: Any, place: str) -> None:
    """Nothing is quoted by guess: YAML has read 1.10 as 1.1, and on as true."""
    assert place in refusal(_nested(f"{prefix}{path}", value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("extraArgs", ["--log-level", 5]),
        ("annotations", {"a": 1}),
        ("commonLabels", {"a": 1}),
        ("gpuNodes", {"a": 1}),
        ("updateStrategy", {"rollingUpdate": {"maxSurge": True}}),
        ("networkPolicy.from", [{"podSelector": {"matchLabels": {"a": 1}}}]),
        ("networkPolicy.egress", [{"ports": [{"port": 1.5}]}]),
        ("podMonitor.relabelings", [{"targetLabel": 1}]),
        ("podMonitor.metricRelabelings", [{"source_labels": ["a"]}]),
        ("podMonitor.endpoint", {"interval": 30}),
        ("serviceMonitor.endpoint", {"honorLabels": "yes"}),
        ("podMonitor.spec", {"sampleLimit": "5000"}),
        ("global", {"imageRegistry": 5}),
        ("global", {"imagePullSecrets": [5]}),
        ("dashboards.annotations", {"a": True}),
        ("revisionHistoryLimit", 2**31),
    ],
)  # fmt: skip
def test_a_wrong_type_outside_of_the_pods_is_named(path: str, value: Any) -> None:
    assert f"at '/{path.replace('.', '/')}" in refusal(_nested(path, value))


def test_text_that_looks_like_yaml_stays_text() -> None:
    """In paths too, which are in no quotes in most manifests."""
    objects = chart(values={"kubeletRoot": "/a: b #c", "driverRoot": "/d: e #f"})
    spec = next(each for each in objects if each["kind"] == "DaemonSet")["spec"]["template"]["spec"]
    paths = {each["name"]: each["hostPath"]["path"] for each in spec["volumes"]}

    assert (paths["driver"], paths["pod-resources"]) == ("/d: e #f", "/a: b #c/pod-resources")


def _everything(path: str) -> dict[str, Any]:
    """Return every feature with null at a path, and with the monitor that the path belongs to."""
    values: dict[str, Any] = copy.deepcopy(EVERYTHING)
    if path.startswith("serviceMonitor"):
        values |= {"podMonitor": {"enabled": False}, "serviceMonitor": {"enabled": True}}
    *groups, last = path.split(".")
    place = values
    for group in groups:
        place = place.setdefault(group, {})
    place[last] = None
    return values


def _paths() -> Iterator[str]:
    """Yield every key of values.yaml, those within values too."""

    def below(values: dict[str, Any], prefix: str) -> Iterator[str]:
        for key, child in values.items():
            if "." not in key:
                yield f"{prefix}{key}"
                if isinstance(child, dict):
                    yield from below(child, f"{prefix}{key}.")

    yield from below(yaml.safe_load((CHART / "values.yaml").read_text()), "")


@pytest.mark.slow
@pytest.mark.parametrize("path", list(_paths()))
def test_null_is_refused_by_name_or_means_nothing(path: str) -> None:
    """Groups, switches, numbers and texts with a default are refused; others are empty, which is valid."""
    done = template(CHART, (), _text(_everything(path)))

    if path in never_null(VALUES):
        assert f"{path} is null, as if only comments are below it: leave it out, or set it." in done.stderr
    elif done.returncode:
        # What something else needs: a class of priority, a URL, the type of a profile.
        assert path.rpartition(".")[2] in complaint(done)
    else:
        of_kubernetes = [
            each
            for each in objects_in(done.stdout)
            if each["apiVersion"].partition("/")[0] not in OF_OPERATORS
        ]
        validate(of_kubernetes)


def _text(values: Any) -> str:
    return yaml.safe_dump(values)
