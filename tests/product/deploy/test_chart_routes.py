"""Routes of the chart to the hub: an Ingress, and an HTTPRoute of the Gateway API."""

import copy
from typing import Any

import pytest

from exporter.commands.parser import parse
from exporter.config import load_settings
from exporter.config.headers import Header
from tests.product.deploy.charts import EVERYTHING, chart, everything, refusal
from tests.product.deploy.gateway_api import broken_rules
from tests.product.deploy.rendering import Manifest, container, environment, kinds, mount_paths, named, only
from tests.product.deploy.schemas import InvalidError, validate
from tests.product.deploy.test_schemas import _changed

HUB = {"enabled": True, "prometheusUrl": "http://p:9090"}
INGRESS = {"enabled": True, "hosts": ["gpus.example.com"]}
ROUTE = {"enabled": True, "parentRefs": [{"name": "gateway"}]}
TLS = {"existingSecret": "hub", "scheme": "https"}
BELOW = {"route-prefix": "/gpus"}
HTTPS = {"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"}
PARENT = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "gateway"}


def _hub(**values: Any) -> list[Manifest]:
    return chart(values={"hub": HUB | values})


def _paths(objects: list[Manifest]) -> list[tuple[str, str, str]]:
    """Return host, path and type of the path of each rule of the Ingress."""
    return [
        (rule["host"], path["path"], path["pathType"])
        for rule in only(objects, "Ingress")["spec"]["rules"]
        for path in rule["http"]["paths"]
    ]


@pytest.mark.tools
def test_there_is_no_route_by_default() -> None:
    assert not kinds(_hub()) & {"Ingress", "HTTPRoute", "BackendTLSPolicy"}


@pytest.mark.tools
def test_an_ingress_leads_to_the_hubs_service() -> None:
    """To the port by its name, from each host."""
    hosts = ["gpus.example.com", "*.gpus.example.org"]
    tls = [{"secretName": "certificate", "hosts": hosts}]
    values = INGRESS | {"hosts": hosts, "className": "nginx", "tls": tls, "annotations": {"a": "b"}}
    objects = _hub(ingress=values)
    ingress, service = only(objects, "Ingress"), named(objects, "Service", "-hub")

    validate([ingress])
    assert _paths(objects) == [(host, "/", "Prefix") for host in hosts]
    backends = {str(path["backend"]) for rule in ingress["spec"]["rules"] for path in rule["http"]["paths"]}
    port = {"name": service["spec"]["ports"][0]["name"]}
    assert backends == {str({"service": {"name": service["metadata"]["name"], "port": port}})}
    assert (ingress["spec"]["ingressClassName"], ingress["spec"]["tls"]) == ("nginx", tls)
    assert ingress["metadata"]["annotations"] == {"a": "b"}
    assert ingress["metadata"]["labels"] == service["metadata"]["labels"]
    assert ingress["metadata"]["namespace"] == service["metadata"]["namespace"]


@pytest.mark.tools
def test_a_route_leads_to_the_hubs_service() -> None:
    objects = _hub(httpRoute=ROUTE | {"hostnames": ["gpus.example.com"]}, service={"port": 80})
    route, service = only(objects, "HTTPRoute"), named(objects, "Service", "-hub")

    validate([route])
    assert route["spec"]["parentRefs"] == [PARENT]
    assert route["spec"]["hostnames"] == ["gpus.example.com"]
    (rule,) = route["spec"]["rules"]
    assert rule["matches"] == [{"path": {"type": "PathPrefix", "value": "/"}}]
    assert "filters" not in rule
    (backend,) = rule["backendRefs"]
    assert (backend["name"], backend["port"]) == (service["metadata"]["name"], 80)


@pytest.mark.tools
def test_a_parent_of_another_kind_stays_as_it_is() -> None:
    """The group of a Service is empty, which is not the default."""
    parents = [
        {"group": "", "kind": "Service", "name": "a"},
        {"name": "gateway", "sectionName": "https", "port": 443},
    ]
    route = only(_hub(httpRoute=ROUTE | {"parentRefs": parents}), "HTTPRoute")

    validate([route])
    assert route["spec"]["parentRefs"] == [parents[0], PARENT | parents[1]]


@pytest.mark.tools
@pytest.mark.parametrize("path", ["/gpus", "/gpus/"])
def test_a_path_is_stripped_by_a_gateway(path: str) -> None:
    """Links of the page are relative, so the path without a slash is redirected."""
    redirect, rewrite = only(_hub(httpRoute=ROUTE | {"path": path}), "HTTPRoute")["spec"]["rules"]

    assert redirect["matches"] == [{"path": {"type": "Exact", "value": "/gpus"}}]
    assert redirect["filters"][0]["requestRedirect"]["path"]["replaceFullPath"] == "/gpus/"
    assert rewrite["matches"] == [{"path": {"type": "PathPrefix", "value": "/gpus"}}]
    assert rewrite["filters"][0]["urlRewrite"]["path"]["replacePrefixMatch"] == "/"
    assert "backendRefs" not in redirect


@pytest.mark.tools
def test_a_hub_with_a_prefix_gets_the_whole_path() -> None:
    """It redirects to its folder itself."""
    objects = _hub(ingress=INGRESS | {"path": "/gpus/"}, httpRoute=ROUTE | {"path": "/gpus"}, config=BELOW)

    assert _paths(objects) == [("gpus.example.com", "/gpus", "Prefix")]
    (rule,) = only(objects, "HTTPRoute")["spec"]["rules"]
    assert rule["matches"] == [{"path": {"type": "PathPrefix", "value": "/gpus"}}]
    assert "filters" not in rule


@pytest.mark.tools
def test_a_path_that_the_controller_strips_is_taken_as_it_is() -> None:
    annotations = {"nginx.ingress.kubernetes.io/rewrite-target": "/$2"}
    values = INGRESS | {
        "path": "/gpus(/|$)(.*)",
        "pathType": "ImplementationSpecific",
        "annotations": annotations,
    }

    assert _paths(_hub(ingress=values)) == [("gpus.example.com", "/gpus(/|$)(.*)", "ImplementationSpecific")]


@pytest.mark.tools
@pytest.mark.parametrize(
    ("authority", "trusted"),
    [
        ("", {"wellKnownCACertificates": "System"}),
        ("ca", {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]}),
    ],
)
def test_a_gateway_uses_the_tls_of_the_hub(authority: str, trusted: dict[str, Any]) -> None:
    """By a policy for the port of its Service."""
    route = ROUTE | {"backendTLS": {"hostname": "hub.example.com", "caConfigMap": authority}}
    objects = _hub(httpRoute=route, webConfig=TLS)
    policy = only(objects, "BackendTLSPolicy")

    validate([policy])
    (target,) = policy["spec"]["targetRefs"]
    service = named(objects, "Service", "-hub")
    assert (target["name"], target["sectionName"]) == (service["metadata"]["name"], "http")
    assert policy["spec"]["validation"] == {"hostname": "hub.example.com", **trusted}


@pytest.mark.tools
@pytest.mark.parametrize(
    "values",
    [
        {"ingress": INGRESS | {"annotations": HTTPS}},
        {"ingress": INGRESS | {"annotations": {"haproxy-ingress.github.io/backend-protocol": "h1-ssl"}}},
        {"ingress": INGRESS | {"annotations": {"route.openshift.io/termination": "reencrypt"}}},
        {
            "ingress": INGRESS,
            "service": {"annotations": {"cloud.google.com/app-protocols": '{"http":"HTTPS"}'}},
        },
        {
            "ingress": INGRESS,
            "service": {"annotations": {"traefik.ingress.kubernetes.io/service.serversscheme": "https"}},
        },
    ],
)
def test_an_annotation_lets_a_controller_use_the_tls_of_the_hub(values: dict[str, Any]) -> None:
    assert "Ingress" in kinds(_hub(webConfig=TLS, **values))


@pytest.mark.tools
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"enabled": False, "ingress": INGRESS}, "hub.ingress.enabled is true, but hub.enabled is not"),
        ({"enabled": False, "httpRoute": ROUTE}, "hub.httpRoute.enabled is true, but hub.enabled is not"),
        ({"ingress": {"enabled": True}}, "Name one, such as gpus.example.com."),
        ({"httpRoute": {"enabled": True}}, "Name one, such as {name: gateway, namespace: gateways}."),
        (
            {"ingress": INGRESS | {"path": "/gpus"}},
            "hub.ingress.path is /gpus, but hub.config.route-prefix is not set",
        ),
        ({"ingress": INGRESS | {"path": "/a"}, "config": BELOW}, "Set both to the same path."),
        ({"httpRoute": ROUTE | {"path": "/gpu"}, "config": BELOW}, "Set both to the same path."),
        ({"ingress": INGRESS | {"path": "/gpus(/|$)(.*)"}}, "set a path such as /gpus"),
        ({"httpRoute": ROUTE | {"path": "/a/../b"}}, "hub.httpRoute.path is /a/../b: set a path"),
        ({"httpRoute": ROUTE | {"path": "/a//b"}}, "at '/hub/httpRoute/path'"),
        ({"ingress": INGRESS | {"path": "gpus"}}, "at '/hub/ingress/path'"),
        ({"ingress": INGRESS | {"hosts": ["GPUS"]}}, "at '/hub/ingress/hosts/0'"),
        ({"ingress": INGRESS | {"hosts": ["10.0.0.1"]}}, "at '/hub/ingress/hosts/0'"),
        ({"ingress": INGRESS | {"hosts": "gpus.example.com"}}, "at '/hub/ingress/hosts': got string"),
        ({"ingress": INGRESS | {"tls": [{"secret": "a"}]}}, "at '/hub/ingress/tls/0'"),
        ({"httpRoute": ROUTE | {"parentRefs": [{"namespace": "a"}]}}, "missing property 'name'"),
        (
            {"httpRoute": ROUTE | {"parentRefs": [{"name": "gateway"}, PARENT]}},
            "hub.httpRoute.parentRefs has gateway twice: give each a sectionName",
        ),
        ({"ingress": INGRESS, "webConfig": TLS}, "nginx.ingress.kubernetes.io/backend-protocol: HTTPS"),
        (
            {
                "ingress": INGRESS | {"annotations": {"cert-manager.io/cluster-issuer": "https://acme"}},
                "webConfig": TLS,
            },
            "controllers speak plain HTTP",
        ),
        ({"httpRoute": ROUTE, "webConfig": TLS}, "set hub.httpRoute.backendTLS.hostname"),
        ({"httpRoute": ROUTE | {"backendTLS": {"hostname": "a"}}}, "Leave the hostname out"),
        (
            {"prometheusHeaderSecret": "a", "config": {"prometheus-header-file": "/a"}},
            "hub.prometheusHeaderSecret and hub.config.prometheus-header-file are both set",
        ),
        ({"config": {"prometheus-header": "X-Scope-OrgID"}}, "/hub/config/prometheus-header"),
        ({"namespaces": ["a b"]}, "/hub/namespaces/0"),
    ],
    ids=str,
)
def test_a_route_that_leads_nowhere_is_refused_with_the_remedy(values: dict[str, Any], message: str) -> None:
    assert message in refusal({"hub": HUB | values})


@pytest.mark.tools
def test_everything_has_valid_routes() -> None:
    objects = [each for each in everything() if each["kind"] in ("Ingress", "HTTPRoute", "BackendTLSPolicy")]

    assert len(objects) == 3
    validate(objects)
    assert EVERYTHING["hub"]["ingress"]["enabled"]


@pytest.mark.tools
@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "rules", 0, "matches", 0, "path", "value"), "gpus"),
        (("spec", "rules", 0, "matches", 0, "path", "value"), "/a/../b"),
        (("spec", "rules", 0, "matches", 0, "path", "value"), "/a/."),
        (("spec", "rules", 0, "matches", 0, "path", "type"), "Prefix"),
        (("spec", "rules", 0, "backendRefs", 0, "port"), 0),
        (("spec", "rules", 0, "backendRef"), []),
        (("spec", "parentRefs"), [PARENT, PARENT]),
        (("spec", "hostnames"), ["a_b"]),
        (("spec", "rules"), []),
        (("metadata", "lables"), {}),
        (("apiVersion",), "gateway.networking.k8s.io/v1beta1"),
    ],
)
def test_the_rules_of_the_definition_refuse_one_wrong_field(path: tuple[Any, ...], value: Any) -> None:
    """Else no test of the chart's routes could fail."""
    route = only(_hub(httpRoute=ROUTE), "HTTPRoute")
    validate([route])

    with pytest.raises(InvalidError):
        validate([_changed(route, path, value)])


@pytest.mark.tools
def test_filters_that_exclude_each_other_break_a_rule() -> None:
    redirect, rewrite = (rules := only(_hub(httpRoute=ROUTE | {"path": "/a"}), "HTTPRoute"))["spec"]["rules"]
    assert list(broken_rules(rules)) == []
    for filters, backends in (
        (redirect["filters"], rewrite["backendRefs"]),
        (redirect["filters"] + rewrite["filters"], []),
        (rewrite["filters"] * 2, []),
    ):
        wrong = copy.deepcopy(rules)
        wrong["spec"]["rules"][1] |= {"filters": filters, "backendRefs": backends}
        assert list(broken_rules(wrong))


@pytest.mark.tools
def test_headers_and_namespaces_reach_the_hub() -> None:
    """Also values with commas; those of the Secret are a file."""
    config = {"prometheus-header": ["X-Scope-OrgID: a|b", "X-Roles: read, write"]}
    objects = _hub(prometheusHeaderSecret="keys", config=config, namespaces=["ml", "lab"])
    spec = named(objects, "Deployment", "-hub")["spec"]["template"]["spec"]
    (rendered,), (volume,) = spec["containers"], spec["volumes"]
    flags = parse(rendered["args"])
    settings = load_settings(vars(flags), environment(rendered))

    assert flags.namespace == ["ml", "lab"]
    assert settings.prometheus_header == (Header("X-Scope-OrgID", "a|b"), Header("X-Roles", "read, write"))
    assert volume["secret"] == {"secretName": "keys", "defaultMode": 0o440}
    assert settings.prometheus_header_file is not None
    assert str(settings.prometheus_header_file.parent) == mount_paths(spec)[volume["name"]]
    assert settings.prometheus_header_file.name == "headers"


@pytest.mark.tools
def test_the_network_policy_is_not_of_the_hub() -> None:
    """What a controller or a Gateway sends to the hub is not restricted by the exporter's policy."""
    objects = chart(
        values={"networkPolicy": {"enabled": True}, "hub": HUB | {"ingress": INGRESS, "httpRoute": ROUTE}}
    )
    chosen = only(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"]
    hub = named(objects, "Deployment", "-hub")["spec"]["template"]["metadata"]["labels"]

    assert not chosen.items() <= hub.items()
    assert chosen.items() <= only(objects, "DaemonSet")["spec"]["template"]["metadata"]["labels"].items()
    assert container(objects)["ports"]
