"""Variables of the chart's containers: Kubernetes replaces $(NAME) by a variable that comes before it."""

import re
from typing import Any

import pytest

from tests.product.deploy.charts import chart, refusal
from tests.product.deploy.rendering import Manifest, container, environment, named

pytestmark = pytest.mark.tools

HUB = {"enabled": True, "prometheusUrl": "http://p"}
NODE = [{"name": "NODE", "value": "$(NODE_NAME).$(DOMAIN)"}, {"name": "DOMAIN", "value": "example.com"}]
# What the kubelet has before a container's own variables.
KUBELET = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
FIELDS = {"NODE_NAME": "gpu-1", "POD_UID": "uid"}


def _hub(values: Any) -> Manifest:
    (rendered,) = named(chart(values={"hub": HUB | values}), "Deployment", "-hub")["spec"]["template"][
        "spec"
    ]["containers"]
    return rendered


def _expanded(rendered: Manifest) -> dict[str, str]:
    """Return the variables as the kubelet makes them, in one pass; what it does not know stays as it is."""
    known: dict[str, str] = {}

    def replaced(match: re.Match[str]) -> str:
        text, name = match[0], match[0][2:-1]
        if text == "$$":
            return "$"
        return (known | KUBELET).get(name, text) if text.endswith(")") else text

    for each in rendered["env"]:
        value = each.get("value", FIELDS.get(each["name"], ""))
        known[each["name"]] = re.sub(r"(?s)\$(\([^)]*\)|.)", replaced, value)
    return known


@pytest.mark.parametrize(
    ("values", "variable", "expected"),
    [
        ({"config": {"node-name": "$(NODE)"}, "extraEnv": NODE}, "GPUSLICE_NODE_NAME", "gpu-1.example.com"),
        (
            {"extraEnv": [{"name": "A", "value": "$(GPUSLICE_LOG_LEVEL)"}], "config": {"log-level": "debug"}},
            "A",
            "debug",
        ),
        (
            {"extraEnv": [{"name": "A", "value": "$$(NOT) $x $(KUBERNETES_SERVICE_HOST) $("}]},
            "A",
            "$(NOT) $x 10.0.0.1 $(",
        ),
        ({"config": {"runai-root": "/$$(X)"}}, "GPUSLICE_RUNAI_ROOT", "/$(X)"),
        (
            {"config": {"dcgm-exporter-url": "$(URL)"}, "extraEnv": [{"name": "URL", "value": "http://p"}]},
            "GPUSLICE_DCGM_EXPORTER_URL",
            "http://p",
        ),
    ],
    ids=[
        "an option by two variables",
        "the chart's by a user's",
        "escaped, unclosed, the kubelet's",
        "an escaped option",
        "a whole URL",
    ],
)
def test_each_reference_leads_to_an_earlier_variable(values, variable, expected) -> None:
    """In whatever order the user gave them."""
    assert _expanded(container(chart(values=values)))[variable] == expected


def test_the_users_variables_come_first() -> None:
    """Except for those that need one of the chart's."""
    names = list(environment(container(chart(values={"extraEnv": NODE, "config": {"log-level": "debug"}}))))

    assert names[0] == "DOMAIN"
    assert names.index("NODE") > names.index("DOMAIN")


def test_references_of_the_hub_lead_to_earlier_variables() -> None:
    """In its URL too, which holds a name from a Secret for instance."""
    source = {"secretKeyRef": {"name": "prometheus", "key": "host"}}
    rendered = _hub(
        {"prometheusUrl": "http://$(HOST):9090", "extraEnv": [{"name": "HOST", "valueFrom": source}]}
    )

    assert _expanded(rendered)["GPUSLICE_PROMETHEUS_URL"] == "http://:9090"
    assert next(each["name"] for each in rendered["env"]) == "HOST"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"config": {"node-name": "$(X)"}},
            "config.node-name has $(X), a variable that the container does not have: add X to extraEnv, or",
        ),
        ({"config": {"pod-labels": ["a", "$(X)"]}}, "config.pod-labels has $(X)"),
        (
            {"extraEnv": [{"name": "A", "value": "$(a)$(HOSTNAME)"}, {"name": "a"}]},
            "extraEnv A has $(HOSTNAME)",
        ),
        (
            {"extraEnv": [{"name": "A", "value": "$(B)"}, {"name": "B", "value": "$(A)"}]},
            "extraEnv A is $(B), which leads back",
        ),
        (
            {"extraEnv": [{"name": "PATH", "value": "$(PATH):/x"}]},
            "extraEnv PATH is $(PATH):/x, which leads back",
        ),
        ({"extraEnv": [{"name": "A"}, {"name": "A", "value": "b"}]}, "extraEnv has A twice"),
        ({"extraArgs": ["--log-level=$(X)"]}, "extraArgs has $(X)"),
        (
            {"extraVolumeMounts": [{"name": "a", "mountPath": "/a", "subPathExpr": "b/$(X)"}]},
            "extraVolumeMounts has $(X)",
        ),
        (
            {"hub": HUB | {"prometheusUrl": "http://$(X):9090"}},
            "hub.prometheusUrl has $(X), a variable that the container does not have: add X to hub.extraEnv",
        ),
        ({"hub": HUB | {"nodeUrlTemplate": "http://$(X)/"}}, "hub.nodeUrlTemplate has $(X)"),
        (
            {"hub": HUB | {"config": {"route-prefix": "/a"}, "extraEnv": [{"name": "A", "value": "$(X)"}]}},
            "hub.extraEnv A has $(X)",
        ),
        (
            {"hub": HUB | {"extraVolumeMounts": [{"name": "a", "mountPath": "/a", "subPathExpr": "$(X)"}]}},
            "hub.extraVolumeMounts has $(X)",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_reference_that_leads_nowhere_is_refused(values, message) -> None:
    """Kubernetes would leave $(X) as it is: every node would have that name."""
    assert message in refusal(values)
