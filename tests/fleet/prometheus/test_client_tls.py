"""TLS to a Prometheus: which certificates are trusted."""

import ssl

import pytest

from exporter.fleet.prometheus import Prometheus, PrometheusError
from tests.fleet.prometheus.servers import always, serving
from tests.page.web.certificates import Authority


def certify(folder, name):
    """Return the certificate of a new authority, and a server context with a certificate by it."""
    authority = Authority(folder, name)
    certificate, key = authority.certify(f"{name}-server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return authority.cert, context


async def refused(url, message, **options):
    """Check that a query fails with a message."""
    prometheus = Prometheus(url, **options)
    with pytest.raises(PrometheusError, match=message):
        await prometheus.query("up")
    await prometheus.close()


async def test_a_private_authority_is_trusted_once_its_file_has_it(tmp_path):
    """The file is read again after it was renewed; without the option the authority is not trusted."""
    trusted, context = certify(tmp_path, "trusted")
    other, _ = certify(tmp_path, "other")
    file = tmp_path / "ca.crt"
    file.write_bytes(other.read_bytes())
    async with serving(always(), context) as server:
        await refused(server.url, r"certificate is not trusted .*--prometheus-ca-file")
        private = Prometheus(server.url, ca_file=file)
        with pytest.raises(PrometheusError, match="certificate is not trusted"):
            await private.query("up")
        file.write_bytes(trusted.read_bytes())
        assert await private.query("up") == []
        await private.close()


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "No such file or directory"), ("no certificate", "no certificate in PEM form")],
)
async def test_an_unusable_authority_file_is_named_with_its_option(tmp_path, content, why):
    file = tmp_path / "ca.crt"
    if content is not None:
        file.write_text(content)
    await refused("https://127.0.0.1:1", rf"^--prometheus-ca-file: .*ca\.crt.*{why}", ca_file=file)


async def test_a_server_without_tls():
    async with serving(always()) as server:
        await refused(server.url.replace("http", "https"), "TLS fails")
