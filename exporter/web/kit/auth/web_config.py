"""The web configuration file, in the format of Prometheus' exporter-toolkit.

Format: https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from exporter.web.kit.auth.yaml_document import Section, curtailed, read_document

VERSIONS = ("TLS12", "TLS13")
_TOO_OLD = ("TLS10", "TLS11")
# The cipher suites that Go offers, with OpenSSL's names. Those of TLS 1.3 cannot be configured.
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
# The headers that may be set, with their allowed values; () for any value.
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
    """A certificate or key, if there is one: in a file, or in the configuration itself."""

    file: Path | None
    text: str = field(repr=False)

    def __bool__(self) -> bool:
        """Return whether there is one."""
        return self.file is not None or bool(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """The TLS settings."""

    cert: Pem
    key: Pem
    client_ca: Pem
    client_auth: str
    allowed_sans: frozenset[str]  # a client's certificate must have one of these names, if there are any
    min_version: str
    max_version: str
    ciphers: tuple[str, ...]  # OpenSSL's names, () for its default
    prefer_server_ciphers: bool
    curve: str  # OpenSSL's name, "" for its default


@dataclass(frozen=True, slots=True, kw_only=True)
class WebConfig:
    """The whole file."""

    tls: TlsConfig | None  # None for plain HTTP
    headers: Mapping[str, str]
    users: Mapping[bytes, bytes] = field(repr=False)  # bcrypt hashes by name; empty for no passwords
    interval: float  # average seconds between requests, 0 for no limit
    burst: int  # number of requests without waiting


def parse_web_config(content: bytes, folder: Path) -> WebConfig:
    """Return the configuration; paths in it are relative to ``folder``. Raises DocumentError."""
    document = read_document(content)
    tls = _tls(document.section("tls_server_config"), folder)
    http = document.section("http_server_config")
    http.flag("http2")  # ignored: clients that offer HTTP/2 also offer HTTP/1.1
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
    prefer = section.flag("prefer_server_cipher_suites")
    sans = section.texts("client_allowed_sans")
    section.end()
    # Also if TLS is off: a file with an old version expects it to be served.
    for name, version in (("min_version", oldest), ("max_version", newest)):
        if version in _TOO_OLD:
            section.fail(name, f"{version} is insecure and not supported: use TLS12 or TLS13")
    if not (cert or key or client_ca or auth):
        # As in other exporters, the other keys alone do not turn TLS on.
        return None
    ciphers = tuple(CIPHERS_12[name] for name in names if name in CIPHERS_12)
    config = TlsConfig(
        cert=cert,
        key=key,
        client_ca=client_ca,
        client_auth=auth or NO_CERTIFICATE,
        allowed_sans=frozenset(sans),
        # With cipher suites for TLS 1.3 only, TLS 1.2 is impossible.
        min_version="TLS13" if names and not ciphers else oldest,
        max_version=newest,
        ciphers=ciphers,
        prefer_server_ciphers=prefer,
        curve=CURVES[curves[0]] if curves else "",
    )
    if config.min_version > config.max_version:
        section.fail("max_version", f"{config.max_version} is older than the minimum, {config.min_version}")
    _check_clients(section, config)
    for name, pem in (("cert", cert), ("key", key)):
        if not pem:
            section.fail(f"{name}_file", f"TLS needs it: set it to a file in PEM form, or set {name}")
    if len(curves) > 1:
        section.fail("curve_preferences", "only one curve can be set: set one, or none for the default")
    return config


def _check_clients(section: Section, config: TlsConfig) -> None:
    verified = config.client_auth in (IF_GIVEN, REQUIRED)
    if config.client_auth in _UNVERIFIED:
        why = f"{config.client_auth} accepts any certificate, which proves nothing: use {REQUIRED}"
        section.fail("client_auth_type", f"{why} with client_ca_file, or {NO_CERTIFICATE}")
    if config.client_ca and not verified:
        section.fail("client_auth_type", f"with client_ca_file it must be {REQUIRED} or {IF_GIVEN}")
    if verified and not config.client_ca:
        section.fail(
            "client_ca_file", "without it certificates of all public authorities are accepted: set it"
        )
    if config.allowed_sans and config.client_auth != REQUIRED:
        section.fail("client_allowed_sans", f"it needs client_auth_type {REQUIRED}")


def _pem(section: Section, name: str, folder: Path) -> Pem:
    text, file = section.text(name), section.text(f"{name}_file")
    if text and file:
        section.fail(name, f"set it or {name}_file, not both")
    # The value is not in the message, because it may be a private key in the wrong place.
    if not file.isprintable() or "-----" in file:
        section.fail(f"{name}_file", f"this is not a path; PEM text belongs in {name}")
    return Pem(file=folder / file if file else None, text=text)


def _headers(section: Section) -> Mapping[str, str]:
    headers = {}
    for name, allowed in HEADERS.items():
        value = section.text(name).strip()
        if not value:
            continue
        if allowed and value not in allowed:
            section.fail(name, f"{curtailed(value)!r} is not one of {', '.join(allowed)}")
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
            section.fail(name, "a user needs a name without a colon")
        if match is None:
            section.fail(name, "this is not a bcrypt hash; make one with: htpasswd -nBC 10 '' | tr -d ':\\n'")
        if int(match["cost"]) not in _COSTS:
            why = f"the cost of the hash must be from {_COSTS[0]} to {_COSTS[-1]}; 10 is usual"
            section.fail(name, f"{why}, and each step doubles the time that a login takes")
        try:
            users[name.encode()] = hashed.encode()
        except UnicodeEncodeError:
            section.fail(name, "the name is not valid text")
    return users
