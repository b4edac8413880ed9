"""The web configuration file, in the format of Prometheus' exporter-toolkit.

Format: https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, NoReturn

from exporter.documents import choice, decode, fail, join, matching, read_yaml, remedy, shown

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


_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = r"(?:[0-9]+(?:\.[0-9]+)?(?:ns|us|µs|ms|h|m|s))+|0"  # in Go's format
_PART = re.compile(r"([0-9.]+)([a-zµ]+)")


def _is_true(flag: str) -> bool:
    return flag.lower() in ("true", "yes", "on")


def _seconds(duration: str) -> float:
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _PART.findall(duration))


Flag = Annotated[bool, matching("(?i:true|yes|on|false|no|off)", _is_true, "true or false")]
Number = Annotated[int, matching("[0-9]{1,9}", int, "a whole number, such as 20")]
Duration = Annotated[float, matching(_DURATION, _seconds, "a duration with its unit, such as 100ms or 1s")]
Version = Annotated[str, choice(*VERSIONS, *_TOO_OLD)]
Cipher = Annotated[str, choice(*CIPHERS_12, *CIPHERS_13)]
Curve = Annotated[str, choice(*CURVES)]
ClientAuth = Annotated[str, choice("", NO_CERTIFICATE, IF_GIVEN, REQUIRED, *_UNVERIFIED)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tls:
    cert: str = ""
    cert_file: str = ""
    key: str = ""
    key_file: str = ""
    client_ca: str = ""
    client_ca_file: str = ""
    client_auth_type: ClientAuth = ""
    client_allowed_sans: tuple[str, ...] = ()
    min_version: Version = ""
    max_version: Version = ""
    cipher_suites: tuple[Cipher, ...] = ()
    prefer_server_cipher_suites: Flag = True
    curve_preferences: tuple[Curve, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Http:
    http2: Flag = True  # ignored: clients that offer HTTP/2 also offer HTTP/1.1
    headers: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RateLimit:
    interval: Duration = 0.0
    burst: Number = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """The file as it is written."""

    tls_server_config: _Tls = field(default_factory=_Tls)
    http_server_config: _Http = field(default_factory=_Http)
    basic_auth_users: Mapping[str, str | None] = field(default_factory=dict)
    rate_limit: _RateLimit = field(default_factory=_RateLimit)


def parse_web_config(content: bytes, folder: Path) -> WebConfig:
    """Return the configuration; paths in it are relative to ``folder``. Raises DocumentError."""
    file: _File = decode(_File, read_yaml(content))
    tls = _tls(file.tls_server_config, folder)
    headers = _headers(file.http_server_config.headers)
    users = _users(file.basic_auth_users)
    rate = file.rate_limit
    if rate.interval and not rate.burst:
        fail("rate_limit.burst", "with an interval it must be 1 or more, or no request would be answered")
    return WebConfig(tls=tls, headers=headers, users=users, interval=rate.interval, burst=rate.burst)


def _tls(section: _Tls, folder: Path) -> TlsConfig | None:
    cert = _pem("cert", section.cert, section.cert_file, folder)
    key = _pem("key", section.key, section.key_file, folder)
    client_ca = _pem("client_ca", section.client_ca, section.client_ca_file, folder)
    oldest, newest = section.min_version or VERSIONS[0], section.max_version or VERSIONS[-1]
    # Also if TLS is off: a file with an old version expects it to be served.
    for name, version in (("min_version", oldest), ("max_version", newest)):
        if version in _TOO_OLD:
            _refuse(name, f"{version} is insecure and not supported: use TLS12 or TLS13")
    if not (cert or key or client_ca or section.client_auth_type):
        # As in other exporters, the other keys alone do not turn TLS on.
        return None
    ciphers = tuple(CIPHERS_12[name] for name in section.cipher_suites if name in CIPHERS_12)
    curves = section.curve_preferences
    config = TlsConfig(
        cert=cert,
        key=key,
        client_ca=client_ca,
        client_auth=section.client_auth_type or NO_CERTIFICATE,
        allowed_sans=frozenset(section.client_allowed_sans),
        # With cipher suites for TLS 1.3 only, TLS 1.2 is impossible.
        min_version="TLS13" if section.cipher_suites and not ciphers else oldest,
        max_version=newest,
        ciphers=ciphers,
        prefer_server_ciphers=section.prefer_server_cipher_suites,
        curve=CURVES[curves[0]] if curves else "",
    )
    if config.min_version > config.max_version:
        _refuse("max_version", f"{config.max_version} is older than the minimum, {config.min_version}")
    _check_clients(config)
    for name, pem in (("cert", cert), ("key", key)):
        if not pem:
            _refuse(f"{name}_file", f"TLS needs it: set it to a file in PEM form, or set {name}")
    if len(curves) > 1:
        _refuse("curve_preferences", "only one curve can be set: set one, or none for the default")
    return config


def _check_clients(config: TlsConfig) -> None:
    verified = config.client_auth in (IF_GIVEN, REQUIRED)
    if config.client_auth in _UNVERIFIED:
        why = f"{config.client_auth} accepts any certificate, which proves nothing: use {REQUIRED}"
        _refuse("client_auth_type", f"{why} with client_ca_file, or {NO_CERTIFICATE}")
    if config.client_ca and not verified:
        _refuse("client_auth_type", f"with client_ca_file it must be {REQUIRED} or {IF_GIVEN}")
    if verified and not config.client_ca:
        _refuse("client_ca_file", "without it certificates of all public authorities are accepted: set it")
    if config.allowed_sans and config.client_auth != REQUIRED:
        _refuse("client_allowed_sans", f"it needs client_auth_type {REQUIRED}")


def _refuse(key: str, why: str) -> NoReturn:
    fail(f"tls_server_config.{key}", why)


def _pem(name: str, text: str, file: str, folder: Path) -> Pem:
    if text and file:
        _refuse(name, f"set it or {name}_file, not both")
    # The value is not in the message, because it may be a private key in the wrong place.
    if not file.isprintable() or "-----" in file:
        _refuse(f"{name}_file", f"this is not a path; PEM text belongs in {name}")
    return Pem(file=folder / file if file else None, text=text)


def _headers(section: Mapping[str, str | None]) -> Mapping[str, str]:
    headers = {}
    for name, text in section.items():
        path = join("http_server_config.headers", name)
        if name not in HEADERS:
            fail(path, f"there is no such key; {remedy(name, HEADERS)}", name)
        value = (text or "").strip()
        allowed = HEADERS[name]
        if value and allowed and value not in allowed:
            fail(path, f"{shown(value)} is not one of {', '.join(allowed)}", text)
        if not (value.isascii() and value.isprintable()):
            fail(path, "a header is one line of printable ASCII characters", text)
        if value:
            headers[name] = value
    return headers


def _users(section: Mapping[str, str | None]) -> Mapping[bytes, bytes]:
    users = {}
    for name, text in section.items():
        path, hashed = join("basic_auth_users", name), text or ""
        match = _BCRYPT.fullmatch(hashed)
        if not name or ":" in name:
            fail(path, "a user needs a name without a colon", name)
        if match is None:
            fail(path, "this is not a bcrypt hash; make one with: htpasswd -nBC 10 '' | tr -d ':\\n'", name)
        if int(match["cost"]) not in _COSTS:
            why = f"the cost of the hash must be from {_COSTS[0]} to {_COSTS[-1]}; 10 is usual"
            fail(path, f"{why}, and each step doubles the time that a login takes", name)
        try:
            users[name.encode()] = hashed.encode()
        except UnicodeEncodeError:
            fail(path, "the name is not valid text", name)
    return users
