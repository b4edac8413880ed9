"""What a web configuration file says, in the format of Prometheus' exporter-toolkit."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from exporter.web.auth.yaml_document import DocumentError, Section, curtailed, read_document

VERSIONS = ("TLS12", "TLS13")
_TOO_OLD = ("TLS10", "TLS11")
# Go's names of what it offers, with those of OpenSSL; nobody can choose among those of TLS 1.3.
CIPHERS_12 = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
}
CIPHERS_13 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
CURVES = {
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
    "X25519": "X25519",
}
NO_CERTIFICATE, IF_GIVEN, REQUIRED = "NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"
_UNVERIFIED = ("RequestClientCert", "RequireAnyClientCert", "RequireClientCert")
# Which headers may be set, and to what where that is not free.
HEADERS: Mapping[str, tuple[str, ...]] = {
    "Content-Security-Policy": (),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-Content-Type-Options": ("nosniff",),
    "X-XSS-Protection": (),
    "Strict-Transport-Security": (),
}
_BCRYPT = re.compile(r"\$2[aby]\$(?P<cost>[0-9]{2})\$[./A-Za-z0-9]{53}")
_COSTS = range(4, 17)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pem:
    """A certificate or key: a file, or what the configuration holds itself; neither where there is none."""

    file: Path | None
    text: str = field(repr=False)

    def __bool__(self) -> bool:
        """Tell whether there is one."""
        return self.file is not None or bool(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """How connections are secured; ``ciphers`` and ``curve`` have OpenSSL's names, empty for its own choice.

    ``allowed_sans`` are names of which a client's certificate must have one, where there are any.
    """

    cert: Pem
    key: Pem
    client_ca: Pem
    client_auth: str
    allowed_sans: frozenset[str]
    min_version: str
    max_version: str
    ciphers: tuple[str, ...]
    prefer_server_ciphers: bool
    curve: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WebConfig:
    """The whole file; ``tls`` is None for plain HTTP, and without ``users`` no password is asked for.

    ``interval`` are the seconds from request to request that are answered in the long run, 0 for any
    number of them, and ``burst`` is how many are answered at once. ``users`` have bcrypt hashes.
    """

    tls: TlsConfig | None
    headers: Mapping[str, str]
    users: Mapping[bytes, bytes] = field(repr=False)
    interval: float
    burst: int


def parse_web_config(content: bytes, folder: Path) -> WebConfig:
    """Read a file; what it names is relative to ``folder``. Raises DocumentError."""
    document = read_document(content)
    tls = _tls(document.section("tls_server_config"), folder)
    http = document.section("http_server_config")
    http.flag("http2", default=True)  # a client that offers HTTP/1.1 beside it, as all do, is served that
    headers = _headers(http.section("headers"))
    http.end()
    users = _users(document.section("basic_auth_users"))
    rate = document.section("rate_limit")
    interval, burst = rate.duration("interval"), rate.number("burst")
    if interval and not burst:
        rate.fail("burst", "with an interval it must be 1 or more, or no request would be answered")
    rate.end()
    document.end()
    return WebConfig(tls=tls, headers=headers, users=users, interval=interval, burst=burst)


def _tls(section: Section, folder: Path) -> TlsConfig | None:
    cert, key = _pem(section, "cert", folder), _pem(section, "key", folder)
    client_ca = _pem(section, "client_ca", folder)
    auth = section.choice("client_auth_type", (NO_CERTIFICATE, IF_GIVEN, REQUIRED, *_UNVERIFIED), "")
    versions = (*VERSIONS, *_TOO_OLD)
    oldest = section.choice("min_version", versions, VERSIONS[0])
    newest = section.choice("max_version", versions, VERSIONS[-1])
    names = section.choices("cipher_suites", (*CIPHERS_12, *CIPHERS_13))
    curves = section.choices("curve_preferences", tuple(CURVES))
    prefer = section.flag("prefer_server_cipher_suites", default=True)
    sans = section.texts("client_allowed_sans")
    section.end()
    _check_served(section, (oldest, newest))
    if not (cert or key or client_ca or auth):
        # So it is in other exporters: the rest of this section alone does not ask for TLS.
        return None
    ciphers = tuple(CIPHERS_12[name] for name in names if name in CIPHERS_12)
    config = TlsConfig(
        cert=cert,
        key=key,
        client_ca=client_ca,
        client_auth=auth or NO_CERTIFICATE,
        allowed_sans=frozenset(sans),
        # Where suites are given and none of them is for TLS 1.2, that cannot be spoken.
        min_version="TLS13" if names and not ciphers else oldest,
        max_version=newest,
        ciphers=ciphers,
        prefer_server_ciphers=prefer,
        curve=CURVES[curves[0]] if curves else "",
    )
    _check_versions(section, config)
    _check_clients(section, config)
    for name, pem in (("cert", cert), ("key", key)):
        if not pem:
            section.fail(f"{name}_file", f"TLS needs it: name a file in PEM form, or give {name}")
    if len(curves) > 1:
        section.fail(
            "curve_preferences",
            "only one curve can be set here: name one, or leave it out for the usual ones",
        )
    return config


def _check_served(section: Section, given: tuple[str, str]) -> None:
    """Refuse old versions also if TLS is off: who writes them expects them to be served."""
    for name, version in zip(("min_version", "max_version"), given, strict=True):
        if version in _TOO_OLD:
            section.fail(name, f"{version} is not safe any more and not served: write TLS12 or TLS13")


def _check_versions(section: Section, config: TlsConfig) -> None:
    if config.min_version > config.max_version:
        why = f"{config.max_version} is older than what is spoken at least, {config.min_version}"
        section.fail("max_version", why)


def _check_clients(section: Section, config: TlsConfig) -> None:
    verified = config.client_auth in (IF_GIVEN, REQUIRED)
    if config.client_auth in _UNVERIFIED:
        why = f"{config.client_auth} takes any certificate, which proves nothing: write {REQUIRED}"
        section.fail("client_auth_type", f"{why} with client_ca_file, or {NO_CERTIFICATE}")
    if config.client_ca and not verified:
        section.fail("client_auth_type", f"with client_ca_file it must be {REQUIRED} or {IF_GIVEN}")
    if verified and not config.client_ca:
        section.fail(
            "client_ca_file", "without it every certificate of any public authority would do: name yours"
        )
    if config.allowed_sans and config.client_auth != REQUIRED:
        section.fail("client_allowed_sans", f"it needs client_auth_type {REQUIRED}")


def _pem(section: Section, name: str, folder: Path) -> Pem:
    text, file = section.text(name), section.text(f"{name}_file")
    if text and file:
        section.fail(name, f"give it or {name}_file, not both")
    # It is not repeated, since it may be a key that stands in the wrong place.
    if not file.isprintable() or "-----" in file:
        section.fail(
            f"{name}_file", f"this is no path; what is no file but stands here itself goes to {name}"
        )
    return Pem(file=folder / file if file else None, text=text)


def _headers(section: Section) -> Mapping[str, str]:
    headers = {}
    for name, allowed in HEADERS.items():
        value = section.text(name).strip()
        if not value:
            continue
        if allowed and value not in allowed:
            section.fail(name, f"{curtailed(value)!r} is none of {', '.join(allowed)}")
        if not (value.isascii() and value.isprintable()):
            section.fail(name, "a header is one line of printable ASCII characters")
        headers[name] = value
    section.end()
    return headers


def _users(section: Section) -> Mapping[bytes, bytes]:
    users = {}
    for name, hashed in section.pairs().items():
        match = _BCRYPT.fullmatch(hashed)
        if not name or ":" in name:
            section.fail(name, "a user needs a name, without a colon in it")
        if match is None:
            section.fail(name, "this is no bcrypt hash; make one with: htpasswd -nBC 10 '' | tr -d ':\\n'")
        if int(match["cost"]) not in _COSTS:
            why = f"the cost of the hash must be from {_COSTS[0]} to {_COSTS[-1]}; 10 is usual"
            section.fail(name, f"{why}, and each step doubles the time that a login takes")
        try:
            users[name.encode()] = hashed.encode()
        except UnicodeEncodeError:
            section.fail(name, "the name is no text")
    return users


__all__ = ["DocumentError", "Pem", "TlsConfig", "WebConfig", "parse_web_config"]
