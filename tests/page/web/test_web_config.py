"""The web configuration file: what is allowed, and the errors of what is not."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.config import SettingsError
from exporter.documents import DocumentError
from exporter.web.kit.auth.access import WebAccess
from exporter.web.kit.auth.web_config import CIPHERS_12, parse_web_config
from tests.core.commands.program import run
from tests.page.web.access import serving
from tests.page.web.certificates import CHEAP, Authority
from tests.tools import tool

SAMPLES = sorted((Path(__file__).parents[3] / "docs" / "web-config").glob("*.yml"))
TLS = "tls_server_config:\n  cert_file: tls.crt\n  key_file: tls.key\n"
CA = "  client_ca_file: ca.crt\n"
VERIFIED = "  client_auth_type: RequireAndVerifyClientCert\n"
SECRET = CHEAP[10:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the files that samples name."""
    made = tmp_path_factory.mktemp("config")
    authority = Authority(made, "ca")
    authority.certify("tls")
    authority.certify("other")
    subprocess.run(
        [
            tool("openssl"),
            *["ec", "-aes128", "-passout", "pass:x"],
            "-in",
            made / "tls.key",
            "-out",
            made / "locked.key",
        ],
        check=True,
        capture_output=True,
    )
    (made / "empty").write_text("")
    return made


def write(folder, text):
    """Write a configuration; return its path."""
    path = folder / "web-config.yml"
    path.write_text(text)
    return path


def complaint(folder, text):
    """Return the error of a configuration: one line that names its file and has no secret."""
    path = write(folder, text)
    with pytest.raises(SettingsError) as error:
        WebAccess(path)
    words = str(error.value)
    assert words.startswith(f"--web-config: {path}: ")
    assert "\n" not in words
    assert SECRET not in words
    return words


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_samples_of_the_docs_are_valid_here_and_for_promtool(folder, sample):
    path = folder / sample.name
    shutil.copy(sample, path)
    assert (WebAccess(path).context is not None) == ("tls_server_config" in sample.read_text())
    checked = subprocess.run(
        [tool("promtool"), "check", "web-config", path], capture_output=True, text=True, check=False
    )
    newer = sample.name == "newer.yml" and "not found in type" in checked.stderr
    assert checked.returncode == 0 or newer, checked.stderr


@pytest.mark.parametrize(
    "text", ["", "{}", "# nothing\n", "http_server_config: {http2: true}\n", "basic_auth_users:\n"]
)
async def test_an_empty_configuration_changes_nothing(folder, text):
    async with serving(write(folder, text)) as site:
        assert site.url.startswith("http://")
        assert (await site.get())[0] == 200


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- a\n", "the file (line 1): must be a mapping, not a list"),
        ("[", "not valid YAML: line "),
        ("a: &a [*a]\n", "a (line 1): there is no such key; there are tls_server_config"),
        (
            "basic_auth_user: {}\n",
            "basic_auth_user (line 1): there is no such key; did you mean basic_auth_users?",
        ),
        ("tls_config: {}\n", "tls_config (line 1): there is no such key"),
        (
            f"{TLS}  certfile: x\n",
            "tls_server_config.certfile (line 4): there is no such key; did you mean cert_file?",
        ),
        (f"{TLS}  cert_file: x\n", "tls_server_config.cert_file (line 4): this key is repeated"),
        (f"{TLS}  cert: x\n", "tls_server_config.cert: set it or cert_file, not both"),
        ("tls_server_config: {cert_file: tls.crt}\n", "tls_server_config.key_file: TLS needs it"),
        ("tls_server_config: {key_file: tls.key}\n", "tls_server_config.cert_file: TLS needs it"),
        (
            "tls_server_config: {client_auth_type: NoClientCert}\n",
            "tls_server_config.cert_file: TLS needs it",
        ),
        ("tls_server_config: {cert_file: no.crt, key_file: tls.key}\n", "/no.crt: No such file or directory"),
        (
            "tls_server_config: {cert_file: empty, key_file: tls.key}\n",
            "/empty: there is no certificate in PEM form",
        ),
        (
            "tls_server_config: {cert_file: tls.crt, key_file: tls.crt}\n",
            "/tls.crt: there is no private key in PEM",
        ),
        (
            "tls_server_config: {cert_file: tls.crt, key_file: other.key}\n",
            "the key does not match the certificate",
        ),
        ("tls_server_config: {cert_file: tls.crt, key_file: locked.key}\n", "the key is encrypted"),
        (
            "tls_server_config: {cert_file: tls.crt, key: secret}\n",
            "tls_server_config.key: there is no private key",
        ),
        (
            "tls_server_config: {cert_file: [a], key_file: b}\n",
            "cert_file (line 1): must be a string, not a list",
        ),
        (f"{TLS}  min_version: TLS9\n", "min_version (line 4): 'TLS9' is not one of TLS12, TLS13"),
        (f"{TLS}  min_version: TLS10\n", "min_version: TLS10 is insecure and not supported"),
        ("tls_server_config:\n  min_version: TLS10\n", "min_version: TLS10 is insecure and not supported"),
        ("tls_server_config:\n  max_version: TLS11\n", "max_version: TLS11 is insecure and not supported"),
        (f"{TLS}  max_version: TLS11\n", "max_version: TLS11 is insecure and not supported"),
        (f"{TLS}  min_version: TLS13\n  max_version: TLS12\n", "max_version: TLS12 is older"),
        (f"{TLS}  cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]\n", "is not one of TLS_ECDHE_ECDSA_WITH_AES_128"),
        (
            f"{TLS}  cipher_suites: [TLS_AES_128_GCM_SHA256]\n  max_version: TLS12\n",
            "max_version: TLS12 is older",
        ),
        (
            f"{TLS}  curve_preferences: [P256]\n",
            "'P256' is not one of CurveP256, CurveP384, CurveP521, X25519",
        ),
        (f"{TLS}  curve_preferences: [X25519, CurveP256]\n", "curve_preferences: only one curve"),
        (
            f"{TLS}  prefer_server_cipher_suites: 1\n",
            "prefer_server_cipher_suites (line 4): '1' is not true or false",
        ),
        (f"{TLS}  client_auth_type: Any\n", "'Any' is not one of NoClientCert, VerifyClientCertIfGiven"),
        (f"{TLS}  client_auth_type: RequestClientCert\n", "accepts any certificate, which proves nothing"),
        (f"{TLS}  client_auth_type: RequireAnyClientCert\n{CA}", "use RequireAndVerifyClientCert"),
        (f"{TLS}{VERIFIED}", "client_ca_file: without it"),
        (f"{TLS}{CA}", "client_auth_type: with client_ca_file it must be"),
        (f"{TLS}{VERIFIED}  client_ca_file: empty\n", "/empty: there is no certificate"),
        (f"{TLS}  client_allowed_sans: [a]\n", "client_allowed_sans: it needs client_auth_type RequireAnd"),
        (
            "http_server_config: {http2: maybe}\n",
            "http_server_config.http2 (line 1): 'maybe' is not true or false",
        ),
        ("http_server_config: {http3: true}\n", "http_server_config.http3 (line 1): there is no such key"),
        (
            "http_server_config: {headers: {Server: x}}\n",
            "http_server_config.headers.Server (line 1): there is no",
        ),
        ("http_server_config: {headers: {X-Frame-Options: x}}\n", "'x' is not one of deny, sameorigin"),
        ('http_server_config: {headers: {X-XSS-Protection: "a\\r\\nb"}}\n', "a header is one line"),
        ("basic_auth_users: [a]\n", "basic_auth_users (line 1): must be a mapping, not a list"),
        ("basic_auth_users: {ann: secret}\n", "basic_auth_users.ann (line 1): this is not a bcrypt hash"),
        ("basic_auth_users: {ann: }\n", "basic_auth_users.ann (line 1): this is not a bcrypt hash"),
        (f"basic_auth_users: {{ann: '$2y$20${CHEAP[7:]}'}}\n", "the cost of the hash must be from 4 to 16"),
        (f"basic_auth_users: {{'a:b': '{CHEAP}'}}\n", "a user needs a name without a colon"),
        (f"basic_auth_users: {{'': '{CHEAP}'}}\n", "a user needs a name"),
        (
            "rate_limit: {interval: 1}\n",
            "rate_limit.interval (line 1): '1' is not a duration with its unit",
        ),
        ("rate_limit: {interval: 1s}\n", "rate_limit.burst: with an interval it must be 1 or more"),
        (
            "rate_limit: {interval: 1s, burst: many}\n",
            "rate_limit.burst (line 1): 'many' is not a whole number",
        ),
    ],
)
def test_errors_name_the_key_and_line(folder, text, words):
    assert words in complaint(folder, text)


def test_a_missing_file_ends_the_program_with_one_line(tmp_path):
    path = tmp_path / "none.yml"
    done = run("demo", "--listen", "127.0.0.1:0", "--web-config", path)
    assert done.returncode == 2
    assert done.stderr == (
        f"gpuslice-exporter: --web-config: {path}: cannot read {path}: No such file or directory\n"
    )


def test_a_huge_file_is_refused_without_reading_it(tmp_path):
    path = tmp_path / "holes.yml"
    path.touch()
    os.truncate(path, 2**40)
    with pytest.raises(SettingsError, match="larger than 1 MiB"):
        WebAccess(path)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), os.mkdir])
def test_pipes_devices_and_folders_are_refused(tmp_path, make):
    make(tmp_path / "tls.key")
    (tmp_path / "tls.crt").write_text("-----BEGIN CERTIFICATE-----")
    with pytest.raises(
        SettingsError, match=r"cannot read /.*/tls.key: (it is not a regular file|Is a directory)"
    ):
        WebAccess(write(tmp_path, TLS))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            f"basic_auth_users: {{'{CHEAP}': ann}}\n",
            "basic_auth_users['…'] (line 1): this is not a bcrypt hash",
        ),
        (f"'{CHEAP}': ann\n", "['…'] (line 1): there is no such key"),
        (f"{TLS}  min_version: '{CHEAP}'\n", "'…' is not one of"),
        (f"{TLS}  min_version: {'long' * 100}\n", f"'{'long' * 50}' is not one of"),
        (f"http_server_config: {{headers: {{X-Frame-Options: '{CHEAP}'}}}}\n", "'…' is not one of deny"),
        (
            f"tls_server_config:\n  cert_file: tls.crt\n  key_file: |\n    {SECRET}\n    {SECRET}\n",
            "tls_server_config.key_file: this is not a path; PEM text belongs in key",
        ),
        (
            f"tls_server_config:\n  cert_file: tls.crt\n  key_file: '-----BEGIN PRIVATE KEY----- {SECRET}'\n",
            "tls_server_config.key_file: this is not a path",
        ),
    ],
)
def test_misplaced_secrets_are_not_repeated(folder, text, words):
    assert words in complaint(folder, text)


def test_openssl_knows_all_cipher_suites(folder):
    for name in CIPHERS_12:
        WebAccess(write(folder, f"{TLS}  cipher_suites: [{name}]\n"))


async def test_certificates_may_be_inline(folder):
    inline = {
        name: "    ".join((folder / file).read_text().splitlines(keepends=True))
        for name, file in (("cert", "tls.crt"), ("key", "tls.key"), ("client_ca", "ca.crt"))
    }
    text = "tls_server_config:\n" + "".join(f"  {name}: |\n    {pem}" for name, pem in inline.items())
    async with serving(write(folder, f"{text}  client_auth_type: VerifyClientCertIfGiven\n")) as site:
        authority = Authority.__new__(Authority)
        authority.cert = folder / "ca.crt"
        assert (await site.get(tls=authority.trusted()))[0] == 200


KEYS = (
    "tls_server_config",
    "http_server_config",
    "headers",
    "basic_auth_users",
    "rate_limit",
    "interval",
    "burst",
    "cert",
    "key_file",
    "client_auth_type",
    "min_version",
    "cipher_suites",
    "http2",
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from(["TLS12", "1s", "0", "RequireAndVerifyClientCert", CHEAP, "tls.key", "X25519"])
)
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=50)
@given(st.binary(max_size=80) | TREES.map(lambda tree: repr(tree).encode(errors="replace")))
def test_any_file_gives_a_configuration_or_one_line(content):
    words = ""
    try:
        parse_web_config(content, Path("/etc"))
    except DocumentError as error:
        words = str(error)
    assert "\n" not in words
