"""The validator of what is deployed: strict for Kubernetes, the Prometheus Operator, KEDA and OpenShift."""

import copy
from typing import Any

import pytest

from tests.deploy.schemas import NEWEST, OLDEST, InvalidError, validate

SERVICE_MONITOR = {
    "apiVersion": "monitoring.coreos.com/v1",
    "kind": "ServiceMonitor",
    "metadata": {"name": "exporter", "labels": {"release": "prometheus"}},
    "spec": {
        "selector": {"matchLabels": {"app": "exporter"}},
        "endpoints": [
            {
                "port": "metrics",
                "interval": "15s",
                "honorLabels": True,
                "relabelings": [{"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}],
            }
        ],
    },
}
POD_MONITOR = {
    "apiVersion": "monitoring.coreos.com/v1",
    "kind": "PodMonitor",
    "metadata": {"name": "exporter"},
    "spec": {
        "selector": {"matchLabels": {"app": "exporter"}},
        "podMetricsEndpoints": [{"port": "metrics", "scheme": "https", "tlsConfig": {"serverName": "node"}}],
    },
}
RULES = {
    "apiVersion": "monitoring.coreos.com/v1",
    "kind": "PrometheusRule",
    "metadata": {"name": "rules"},
    "spec": {"groups": [{"name": "g", "rules": [{"alert": "Down", "expr": "up == 0", "for": "5m"}]}]},
}
CONSTRAINTS = {
    "apiVersion": "security.openshift.io/v1",
    "kind": "SecurityContextConstraints",
    "metadata": {"name": "exporter"},
    "allowHostDirVolumePlugin": True,
    "allowHostIPC": False,
    "allowHostNetwork": False,
    "allowHostPID": True,
    "allowHostPorts": False,
    "allowPrivilegedContainer": False,
    "allowedCapabilities": None,
    "defaultAddCapabilities": None,
    "priority": None,
    "readOnlyRootFilesystem": True,
    "requiredDropCapabilities": ["ALL"],
    "volumes": ["hostPath"],
    "runAsUser": {"type": "MustRunAs", "uid": 0},
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
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map"}, "data": {"key": "value"}}
VALID = (SERVICE_MONITOR, POD_MONITOR, RULES, CONSTRAINTS, SCALED_OBJECT, CONFIG_MAP)

WRONG = [
    (SERVICE_MONITOR, ("spec", "endpoints", 0, "honourLabels"), True),
    (SERVICE_MONITOR, ("spec", "endpoints", 0, "interval"), "15 seconds"),
    (SERVICE_MONITOR, ("spec", "endpoints", 0, "relabelings", 0, "sourceLabel"), "node"),
    (SERVICE_MONITOR, ("spec", "endpoints", 0, "scheme"), "gopher"),
    (SERVICE_MONITOR, ("spec", "selector", "matchLabel"), {}),
    (SERVICE_MONITOR, ("metadata", "lables"), {}),
    (SERVICE_MONITOR, ("kind",), "ServiceWatcher"),
    (POD_MONITOR, ("spec", "endpoints"), []),
    (POD_MONITOR, ("spec", "podMetricsEndpoints", 0, "tlsConfig", "servername"), "node"),
    (RULES, ("spec", "groups", 0, "rules", 0, "expression"), "up"),
    (RULES, ("spec", "groups", 0, "rules", 0, "for"), "5"),
    (RULES, ("spec", "groups", 0, "rules", 0, "annotations"), {"value": 3}),
    (CONSTRAINTS, ("allowHostPid",), True),
    (CONSTRAINTS, ("runAsUser", "type"), "Root"),
    (CONSTRAINTS, ("volumes",), "hostPath"),
    (SCALED_OBJECT, ("spec", "triggers", 0, "threshold"), "1"),
    (SCALED_OBJECT, ("spec", "triggers", 0, "metadata", "query"), 3),
    (SCALED_OBJECT, ("spec", "minReplicas"), 1),
    (CONFIG_MAP, ("metadata", "lables"), {}),
    (CONFIG_MAP, ("apiVersion",), "v2"),
    (CONFIG_MAP, ("kind",), "ConfigMop"),
]


def _changed(valid: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    wrong = copy.deepcopy(valid)
    place: Any = wrong
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return wrong


@pytest.mark.slow
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_valid_objects_pass(version: str) -> None:
    """Objects of Kubernetes, the operators and OpenShift are valid as they should be written."""
    validate(VALID, version)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("valid", "path", "value"), WRONG, ids=lambda each: each[-1] if isinstance(each, tuple) else ""
)
def test_one_wrong_field_is_refused(valid: dict[str, Any], path: tuple[Any, ...], value: Any) -> None:
    """A misspelt field, a value that is not allowed, a kind that no schema knows: each is named."""
    named = "schema" if path in {("kind",), ("apiVersion",)} else str(path[-1])

    with pytest.raises(InvalidError, match=named):
        validate([_changed(valid, path, value)])


@pytest.mark.slow
def test_a_missing_field_is_refused() -> None:
    """What must be there is missed."""
    wrong = copy.deepcopy(RULES)
    del wrong["spec"]["groups"][0]["rules"][0]["expr"]

    with pytest.raises(InvalidError, match="expr"):
        validate([wrong])
