"""Certificates and passwords of the chart: the program reads them, probes and monitors use them."""

import json
from pathlib import Path

import pytest

from exporter.config import load_settings
from exporter.web.kit.auth.web_config import parse_web_config
from tests.product.deploy.charts import chart
from tests.product.deploy.rendering import (
    container,
    environment,
    mount_paths,
    named,
    only,
    pod_spec,
    template,
)

pytestmark = pytest.mark.tools

HASH = "$2y$10$" + "a" * 53
TLS = {"cert_file": "/etc/gpuslice/tls/tls.crt", "key_file": "/etc/gpuslice/tls/tls.key"}
HTTPS = {"port": "metrics", "scheme": "HTTPS"}
CLIENTS = {
    "client_ca_file": "/etc/gpuslice/client-ca/ca.crt",
    "client_auth_type": "RequireAndVerifyClientCert",
}
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def test_the_program_reads_the_web_configuration_of_the_values() -> None:
    """The chart's Secret is mounted where the option says."""
    content = {"tls_server_config": TLS | CLIENTS, "basic_auth_users": {"prometheus": HASH}}
    web = {"content": content, "tlsSecret": "cert", "clientCaSecret": "ca"}
    objects = chart(values={"webConfig": web})
    secret, rendered = only(objects, "Secret"), container(objects)
    path = load_settings({}, environment(rendered)).web_config
    mounts = mount_paths(pod_spec(objects))
    volumes = {each["name"]: each for each in pod_spec(objects)["volumes"]}
    read = parse_web_config(secret["stringData"][path.name].encode(), path.parent)

    assert read.tls.client_auth == "RequireAndVerifyClientCert"
    assert set(read.users) == {b"prometheus"}
    assert (volumes["web"]["secret"]["secretName"], mounts["web"]) == (
        secret["metadata"]["name"],
        str(path.parent),
    )
    assert mounts["web-tls"] == str(Path(TLS["cert_file"]).parent)
    assert mounts["web-client-ca"] == str(Path(CLIENTS["client_ca_file"]).parent)
    assert {volumes[name]["secret"]["defaultMode"] for name in ("web", "web-tls", "web-client-ca")} == {0o400}


@pytest.mark.parametrize(
    ("web", "config", "probe", "scheme"),
    [
        ({"content": {"basic_auth_users": {"a": HASH}}}, {}, {"port": "metrics"}, None),
        ({"content": {"tls_server_config": TLS}}, {}, HTTPS, "https"),
        ({"content": {"tls_server_config": TLS | CLIENTS}}, {}, None, "https"),
        ({"scheme": "https"}, {"web-config": "/own/web.yml"}, HTTPS, "https"),
    ],
    ids=["password", "tls", "client certificates", "the user's file"],
)
def test_probes_and_monitor_use_the_scheme_of_the_port(web, config, probe, scheme) -> None:
    """With TLS both use HTTPS; if clients need certificates, probes only connect."""
    monitor = {"enabled": True, "endpoint": {"basicAuth": {}}}
    objects = chart(values={"webConfig": web, "config": config, "podMonitor": monitor})
    (endpoint,) = only(objects, "PodMonitor")["spec"]["podMetricsEndpoints"]

    assert endpoint.get("scheme") == scheme
    for each in (container(objects)[name] for name in PROBES):
        http = each.get("httpGet")
        assert (http and {key: http[key] for key in http.keys() - {"path"}}) == probe
        assert ("tcpSocket" in each) is (probe is None)


def test_pods_are_replaced_when_the_web_configuration_changes() -> None:
    """The template of the pods has a checksum of the Secret's content, but not the content."""

    def annotations(burst: int) -> dict[str, str]:
        content = {"rate_limit": {"interval": "1s", "burst": burst}}
        return dict(template(chart(values={"webConfig": {"content": content}}))["metadata"]["annotations"])

    assert annotations(1) != annotations(2)
    assert "burst" not in json.dumps(annotations(1))


def test_the_hub_reads_its_own_secret() -> None:
    """It is not root, so it reads the Secret through its group; its probes use HTTPS."""
    web = {"existingSecret": "hub-web", "scheme": "https"}
    hub = named(chart("hub", values={"hub": {"webConfig": web}}), "Deployment", "-hub")
    spec = hub["spec"]["template"]["spec"]
    (rendered,), (volume,) = spec["containers"], spec["volumes"]
    path = load_settings({}, environment(rendered)).web_config

    assert volume["secret"] == {"secretName": "hub-web", "defaultMode": 0o440}
    assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsGroup"]
    assert mount_paths(spec) == {"web": str(path.parent)}
    assert rendered["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
