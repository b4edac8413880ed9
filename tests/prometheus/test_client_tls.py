"""TLS: whose certificates a Prometheus may have."""

import ssl

import pytest

from exporter.prometheus import Prometheus, PrometheusError
from tests.prometheus.answering import answering, saying
from tests.web.certificates import Authority


def certify(folder, name):
    """Make an authority and a certificate for 127.0.0.1; return the one, and a context with the other."""
    authority = Authority(folder, name)
    certificate, key = authority.certify(f"{name}-server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return authority.cert, context


async def test_a_private_authority(tmp_path):
    """Its certificate is trusted where it is named, and as soon as it is renewed; by default it is not."""
    trusted, context = certify(tmp_path, "trusted")
    other, _ = certify(tmp_path, "other")
    named = tmp_path / "ca.crt"
    named.write_bytes(other.read_bytes())
    async with answering(saying(), context) as server:
        plain, private = Prometheus(server.url), Prometheus(server.url, ca_file=named)
        with pytest.raises(PrometheusError, match=r"certificate is not trusted .*--prometheus-ca-file"):
            await plain.query("up")
        with pytest.raises(PrometheusError, match="certificate is not trusted"):
            await private.query("up")
        named.write_bytes(trusted.read_bytes())
        assert await private.query("up") == []
        await plain.close()
        await private.close()


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "No such file or directory"), ("no certificate", "no certificate in PEM form")],
)
async def test_an_authority_that_cannot_be_read(tmp_path, content, why):
    """The option and the file are named."""
    file = tmp_path / "ca.crt"
    if content is not None:
        file.write_text(content)
    prometheus = Prometheus("https://127.0.0.1:1", ca_file=file)
    with pytest.raises(PrometheusError, match=rf"^--prometheus-ca-file: .*ca\.crt.*{why}"):
        await prometheus.query("up")
    await prometheus.close()


async def test_a_server_without_tls():
    """Asking a plain server over TLS is told as what it is."""
    async with answering(saying()) as server:
        prometheus = Prometheus(server.url.replace("http", "https"))
        with pytest.raises(PrometheusError, match="TLS fails"):
            await prometheus.query("up")
        await prometheus.close()
