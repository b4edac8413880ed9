"""TLS on real sockets: versions, client certificates, and certificates that are replaced."""

import asyncio
import logging
import ssl
from contextlib import suppress

import aiohttp
import pytest

from tests.page.web.access import LOOK, RIGHT, serving, until
from tests.page.web.certificates import CHEAP, CLIENT, Authority
from tests.waiting import LIMIT_SECONDS

USERS = f"basic_auth_users:\n  ann: {CHEAP}\n"
TLS = "tls_server_config:\n  cert_file: tls.crt\n  key_file: tls.key\n"
VERIFIED = f"{TLS}  client_ca_file: ca.crt\n  client_auth_type: RequireAndVerifyClientCert\n"
IF_GIVEN = f"{TLS}  client_ca_file: ca.crt\n  client_auth_type: VerifyClientCertIfGiven\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return the authorities that tests share, with certificates of servers and clients."""
    folder = tmp_path_factory.mktemp("authorities")
    ours, others = Authority(folder, "ours"), Authority(folder, "others")
    return {
        "ours": ours,
        "others": others,
        "first": ours.certify("first"),
        "second": ours.certify("second"),
        "client": ours.certify("client", f"DNS:{CLIENT},IP:10.0.0.7,IP:fd00::7,URI:spiffe://here/prometheus"),
        "foreign": others.certify("foreign", f"DNS:{CLIENT}"),
    }


def replace(folder, made, server="first", authority="ours"):
    """Replace the pair and the authority that configurations name, each file atomically."""
    cert, key = made[server]
    for name, source in (("tls.crt", cert), ("tls.key", key), ("ca.crt", made[authority].cert)):
        (folder / "new").write_bytes(source.read_bytes())
        (folder / "new").rename(folder / name)


@pytest.fixture
def config(tmp_path, made):
    """Return a function that writes a configuration next to the first pair."""
    replace(tmp_path, made)

    def write(text):
        (tmp_path / "new.yml").write_text(text)
        return (tmp_path / "new.yml").rename(tmp_path / "web-config.yml")

    return write


async def serial(site, tls):
    """Return the serial number of the certificate that the server shows."""
    _, writer = await asyncio.open_connection("127.0.0.1", site.port, ssl=tls)
    shown = writer.get_extra_info("peercert")["serialNumber"]
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return shown


async def lets_in(site, tls, path="/", headers=None):
    """Return whether a client is served, or None if its connection is cut off."""
    try:
        return (await site.get(path, tls=tls, headers=headers))[0] == 200
    except (aiohttp.ClientError, OSError):
        return None


async def test_nothing_older_than_tls_1_2_is_spoken(config, made):
    async with serving(config(TLS)) as site:
        assert site.url.startswith("https://")
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            tls = made["ours"].trusted()
            tls.minimum_version = tls.maximum_version = version
            assert (await site.get(tls=tls))[2] == "page"
        old = made["ours"].trusted()
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.set_ciphers("ALL:@SECLEVEL=0")
        assert await lets_in(site, old) is None


@pytest.mark.parametrize(
    ("text", "version", "cipher"),
    [
        ("  min_version: TLS13\n", "TLSv1.3", None),
        ("  max_version: TLS12\n", "TLSv1.2", None),
        ("  cipher_suites: [TLS_AES_128_GCM_SHA256]\n", "TLSv1.3", None),
        (
            "  max_version: TLS12\n  cipher_suites: [TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256]\n",
            "TLSv1.2",
            "ECDHE-ECDSA-CHACHA20-POLY1305",
        ),
    ],
)
async def test_versions_and_cipher_suites_can_be_set(config, made, text, version, cipher):
    async with serving(config(TLS + text)) as site:
        _, writer = await asyncio.open_connection("127.0.0.1", site.port, ssl=made["ours"].trusted())
        assert writer.get_extra_info("ssl_object").version() == version
        assert cipher is None or writer.get_extra_info("cipher")[0] == cipher
        writer.close()


async def test_the_order_of_cipher_suites_is_the_servers_unless_set(config, made):
    suites = "[TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]"
    chosen = []
    for prefer in ("true", "false"):
        text = (
            f"{TLS}  max_version: TLS12\n  cipher_suites: {suites}\n  prefer_server_cipher_suites: {prefer}\n"
        )
        async with serving(config(text)) as site:
            tls = made["ours"].trusted()
            tls.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384")
            _, writer = await asyncio.open_connection("127.0.0.1", site.port, ssl=tls)
            chosen.append(writer.get_extra_info("cipher")[0])
            writer.close()
    assert chosen == ["ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256"]


async def test_curves_can_be_set(config, made):
    async with serving(config(f"{TLS}  curve_preferences: [CurveP384]\n")) as site:
        for curve, served in (("secp384r1", True), ("prime256v1", None)):
            tls = made["ours"].trusted()
            tls.set_ecdh_curve(curve)
            assert await lets_in(site, tls) is served, curve


async def test_only_verified_clients_are_served(config, made):
    """Also for health checks."""
    ours = made["ours"]
    async with serving(config(VERIFIED)) as site:
        assert await lets_in(site, ours.trusted(made["client"])) is True
        assert await lets_in(site, ours.trusted()) is None
        assert await lets_in(site, ours.trusted(), "/-/healthy") is None
        assert await lets_in(site, ours.trusted(made["foreign"])) is None


async def test_an_optional_client_certificate_must_be_valid(config, made):
    ours = made["ours"]
    async with serving(config(IF_GIVEN)) as site:
        assert await lets_in(site, ours.trusted()) is True
        assert await lets_in(site, ours.trusted(made["client"])) is True
        assert await lets_in(site, ours.trusted(made["foreign"])) is None


@pytest.mark.parametrize(
    ("name", "let_in"),
    [
        (CLIENT, True),
        ("10.0.0.7", True),
        ("'fd00:0:0::7'", True),
        ("spiffe://here/prometheus", True),
        ("monitoring.svc", None),
        ("'*'", None),
        ("client", None),
        ("10.0.0.8", None),
    ],
)
async def test_names_of_clients_must_be_allowed(config, made, name, let_in):
    """The name of the subject does not count."""
    async with serving(config(f"{VERIFIED}  client_allowed_sans: [other, {name}]\n")) as site:
        assert await lets_in(site, made["ours"].trusted(made["client"])) is let_in


async def test_certificates_are_replaced_without_closing_connections(config, made, tmp_path):
    trusted = made["ours"].trusted()
    async with serving(config(TLS)) as site:
        first = await serial(site, trusted)
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port, ssl=trusted)
        for server in ("first", "second"):
            replace(tmp_path, made, server)

            async def shown(server=server):
                return (await serial(site, trusted) == first) == (server == "first")

            await until(shown)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readuntil(b"page")).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_a_secret_of_kubernetes_is_followed(made, tmp_path):
    """The kubelet swaps a symbolic link to a folder."""
    for number, server in (("1", "first"), ("2", "second")):
        (tmp_path / number).mkdir()
        replace(tmp_path / number, made, server)
        (tmp_path / number / "web-config.yml").write_text(TLS)
    (tmp_path / "..data").symlink_to("1")
    for name in ("web-config.yml", "tls.crt", "tls.key"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    trusted = made["ours"].trusted()
    async with serving(tmp_path / "web-config.yml") as site:
        first = await serial(site, trusted)
        (tmp_path / "..tmp").symlink_to("2")
        (tmp_path / "..tmp").rename(tmp_path / "..data")

        async def new():
            return await serial(site, trusted) != first

        await until(new)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (("tls.crt", ""), "tls.crt: there is no certificate in PEM form"),
        (("tls.key", None), "cannot read"),
        (("tls.key", "other"), "the key does not match the certificate"),
        (("web-config.yml", "tls_server_config: {"), "not valid YAML"),
        (("web-config.yml", ""), "turning TLS on or off needs a restart"),
        (("web-config.yml", TLS), "turning passwords off needs a restart"),
    ],
)
async def test_broken_files_change_nothing(  # noqa: PLR0917 - pytest hands fixtures over by name
    config, made, tmp_path, caplog, broken, words
):
    """They are logged once, and the next good files are used."""
    name, content = broken
    trusted = made["ours"].trusted()
    async with serving(config(TLS + USERS)) as site:
        first = await serial(site, trusted)
        if content is None:
            (tmp_path / name).unlink()
        else:
            (tmp_path / name).write_text(made["second"][1].read_text() if content == "other" else content)

        async def logged():
            return words in caplog.text

        await until(logged)
        await asyncio.sleep(3 * LOOK)
        assert [record.levelno for record in caplog.records].count(logging.ERROR) == 1
        assert await serial(site, trusted) == first
        assert await lets_in(site, trusted) is False
        assert await lets_in(site, trusted, headers=RIGHT) is True

        config(TLS + USERS)
        replace(tmp_path, made, "second")

        async def new():
            return await serial(site, trusted) != first

        await until(new)


async def test_clients_of_a_removed_authority_are_cut_off(config, made, tmp_path):
    old, new = made["ours"].trusted(made["client"]), made["ours"].trusted(made["foreign"])
    async with serving(config(VERIFIED)) as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port, ssl=old)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        replace(tmp_path, made, authority="others")
        async with asyncio.timeout(LIMIT_SECONDS):
            with suppress(OSError):
                await reader.read()
        assert await lets_in(site, old) is None
        assert await lets_in(site, new) is True
        writer.close()


async def test_plain_requests_to_tls_are_closed(config, made, caplog):
    """Without a log line."""
    async with serving(config(TLS)) as site:
        with caplog.at_level(logging.INFO), suppress(ConnectionError):
            assert b"200" not in await site.raw(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert caplog.records == []
        assert await lets_in(site, made["ours"].trusted()) is True
