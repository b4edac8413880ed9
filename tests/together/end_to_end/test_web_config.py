"""TLS, client certificates and passwords: a real Prometheus, and the page of the hub."""

import bcrypt
import pytest
from aiohttp import ClientSession

from tests.core.commands.program import serving
from tests.page.web.certificates import CHEAP, CLIENT, PASSWORD, Authority
from tests.together.end_to_end.programs import demo, prometheus, until

TLS = "tls_server_config:\n  cert_file: tls.crt\n  key_file: tls.key\n"
CLIENTS = f"""\
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.crt
  client_allowed_sans: [{CLIENT}]
basic_auth_users:
  prometheus: {bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()}
"""


@pytest.mark.slow
def test_prometheus_scrapes_over_tls(tmp_path):
    """It needs its certificate and password, and is refused when its user is removed from the file."""
    authority = Authority(tmp_path, "ca")
    authority.certify("tls")
    cert, key = authority.certify("client", f"DNS:{CLIENT}")
    config = tmp_path / "web-config.yml"
    config.write_text(TLS + CLIENTS)
    tls = {"ca_file": str(authority.cert), "cert_file": str(cert), "key_file": str(key)}
    with demo("t4-timeslicing", "--web-config", str(config)) as url:
        assert url.startswith("https://127.0.0.1:")
        target = url.removeprefix("https://")
        labelled = [{"targets": [target], "labels": {"who": "known"}}]
        scrape = {
            "scheme": "https",
            "tls_config": tls,
            "basic_auth": {"username": "prometheus", "password": PASSWORD},
            "static_configs": labelled,
        }
        with prometheus(tmp_path, {"node": f"{url}/metrics"}, scrape=scrape) as server:
            until(lambda: list(server.query("up{who='known'}").values()) == [1.0], "the scrape is good")
            assert until(lambda: server.query("gpuslice_gpu_up"), "there are series")
            config.write_text(TLS + CLIENTS.replace("  prometheus:", "  another:"))
            error = until(lambda: server.api("targets")["activeTargets"][0]["lastError"], "it is refused")
            assert "401" in error


async def test_the_hub_has_a_web_config(tmp_path):
    """Its pages are encrypted and need the password; its probes do not."""
    authority = Authority(tmp_path, "ca")
    authority.certify("tls")
    config = tmp_path / "web-config.yml"
    config.write_text(f"{TLS}basic_auth_users:\n  ann: {CHEAP}\n")
    with serving("hub", "--prometheus-url", "http://127.0.0.1:9", "--web-config", config) as server:
        assert server.url.startswith("https://127.0.0.1:")
        async with ClientSession() as client:
            for path, status in (("", 401), ("metrics", 401), ("-/healthy", 200)):
                async with client.get(server.url + path, ssl=authority.trusted()) as response:
                    assert response.status == status
        assert server.stop() == 0
