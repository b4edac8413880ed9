"""The validator of what is deployed is strict for Kubernetes, OpenShift and the operators."""

import copy
from typing import Any

import pytest

from tests.product.deploy.schemas import NEWEST, OLDEST, InvalidError, validate

SERVICE_MONITOR = {
    "apiVersion": "monitoring.coreos.com/v1",
    "kind": "ServiceMonitor",
    "metadata": {"name": "exporter", "labels": {"release": "prometheus"}},
    "spec": {
        "selector": {"matchLabels": {"app": "exporter"}},
        "endpoints": [{"port": "metrics", "relabelings": [{"sourceLabels": ["a"], "targetLabel": "node"}]}],
    },
}
RULES = {
    "apiVersion": "monitoring.coreos.com/v1",
    "kind": "PrometheusRule",
    "metadata": {"name": "rules"},
    "spec": {"groups": [{"name": "g", "rules": [{"alert": "Down", "expr": "up == 0", "for": "5m"}]}]},
}
SCALED_OBJECT = {
    "apiVersion": "keda.sh/v1alpha1",
    "kind": "ScaledObject",
    "metadata": {"name": "server"},
    "spec": {
        "scaleTargetRef": {"name": "server"},
        "triggers": [{"type": "prometheus", "metricType": "Value", "metadata": {"query": "vector(1)"}}],
    },
}
CONSTRAINTS = {
    "apiVersion": "security.openshift.io/v1",
    "kind": "SecurityContextConstraints",
    "metadata": {"name": "exporter"},
    **dict.fromkeys(("allowHostDirVolumePlugin", "allowHostPID", "readOnlyRootFilesystem"), True),
    **dict.fromkeys(
        ("allowHostIPC", "allowHostNetwork", "allowHostPorts", "allowPrivilegedContainer"), False
    ),
    **dict.fromkeys(("allowedCapabilities", "defaultAddCapabilities", "priority")),
    "requiredDropCapabilities": ["ALL"],
    "volumes": ["hostPath"],
    "runAsUser": {"type": "MustRunAs", "uid": 0},
}
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map"}, "data": {"key": "value"}}

OF_KUBERNETES = [
    (CONSTRAINTS, ("allowHostPid",), True),
    (CONSTRAINTS, ("runAsUser", "type"), "Root"),
    (CONSTRAINTS, ("volumes",), "hostPath"),
    (CONFIG_MAP, ("metadata", "lables"), {}),
    (CONFIG_MAP, ("apiVersion",), "v2"),
    (CONFIG_MAP, ("kind",), "ConfigMop"),
]
OF_OPERATORS = [
    (SERVICE_MONITOR, ("spec", "endpoints", 0, "honourLabels"), True),
    (SERVICE_MONITOR, ("spec", "endpoints", 0, "interval"), "15 seconds"),
    (SERVICE_MONITOR, ("spec", "endpoints", 0, "relabelings", 0, "sourceLabel"), "node"),
    (SERVICE_MONITOR, ("metadata", "lables"), {}),
    (SERVICE_MONITOR, ("kind",), "ServiceWatcher"),
    (RULES, ("spec", "groups", 0, "rules", 0, "for"), "5"),
    (RULES, ("spec", "groups", 0, "rules", 0, "annotations"), {"value": 3}),
    (SCALED_OBJECT, ("spec", "triggers", 0, "threshold"), "1"),
    (SCALED_OBJECT, ("spec", "minReplicas"), 1),
]


def _changed(valid: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    wrong = copy.deepcopy(valid)
    place: Any = wrong
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return wrong


def _check_that_each_is_refused(changes: list[tuple[dict[str, Any], tuple[Any, ...], Any]]) -> None:
    for valid, path, value in changes:
        word = "schema" if path in {("kind",), ("apiVersion",)} else str(path[-1])
        with pytest.raises(InvalidError, match=word):
            validate([_changed(valid, path, value)])


def test_one_wrong_field_is_refused() -> None:
    """A misspelt field, a wrong value, an unknown kind: the message names it."""
    for version in (OLDEST, NEWEST):
        validate([CONSTRAINTS, CONFIG_MAP], version)
    _check_that_each_is_refused(OF_KUBERNETES)


@pytest.mark.tools
def test_one_wrong_field_of_an_operators_object_is_refused() -> None:
    """Also a field that is missing."""
    validate([SERVICE_MONITOR, RULES, SCALED_OBJECT])
    _check_that_each_is_refused(OF_OPERATORS)
    without = copy.deepcopy(RULES)
    del without["spec"]["groups"][0]["rules"][0]["expr"]
    with pytest.raises(InvalidError, match="expr"):
        validate([without])
