"""Certificates and keys as they are now, and how connections are secured with them."""

import ipaddress
import os
import ssl
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from exporter.web.auth.web_config import IF_GIVEN, REQUIRED, Pem, TlsConfig
from exporter.web.auth.yaml_document import DocumentError

MOST_BYTES = 1024 * 1024
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_VERIFY = {IF_GIVEN: ssl.CERT_OPTIONAL, REQUIRED: ssl.CERT_REQUIRED}


class Material(NamedTuple):
    """The certificates and the key in PEM form, as they were read at one moment."""

    cert: bytes
    key: bytes
    client_ca: bytes


class _EncryptedKeyError(Exception):
    """The key wants a passphrase."""


def read_material(config: TlsConfig) -> Material:
    """Read what a configuration names; raises DocumentError."""
    return Material(
        cert=_read("cert", config.cert, b"-----BEGIN CERTIFICATE-----", "certificate"),
        key=_read("key", config.key, b"PRIVATE KEY-----", "private key"),
        client_ca=_read("client_ca", config.client_ca, b"-----BEGIN CERTIFICATE-----", "certificate")
        if config.client_ca
        else b"",
    )


def read_file(path: Path) -> bytes:
    """Read a small file; raises DocumentError."""
    try:
        with open(path, "rb", opener=_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise DocumentError(f"cannot read {path}: it is no regular file")
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise DocumentError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise DocumentError(f"cannot read {str(path)!r}: this is no path") from None
    if len(content) > MOST_BYTES:
        raise DocumentError(f"cannot read {path}: it is larger than 1 MiB")
    return content


def _at_once(path: str, flags: int) -> int:
    """Open without waiting for who writes, since a pipe would be waited for for ever."""
    return os.open(path, flags | os.O_NONBLOCK)


def make_context(config: TlsConfig, material: Material) -> ssl.SSLContext:
    """Make what connections are secured with; raises DocumentError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[config.min_version]
    context.maximum_version = _VERSIONS[config.max_version]
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    if not config.prefer_server_ciphers:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        if config.ciphers:
            context.set_ciphers(":".join(config.ciphers))
        if config.curve:
            context.set_ecdh_curve(config.curve)
    except (ssl.SSLError, ValueError) as error:
        raise DocumentError(f"tls_server_config: OpenSSL refuses cipher_suites or a curve: {error}") from None
    _load_pair(context, material)
    if config.client_ca:
        _load_authorities(context, material.client_ca)
        # As in other exporters, what is named is trusted, be it the root of its chain or not.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_mode = _VERIFY.get(config.client_auth, ssl.CERT_NONE)
    return context


def has_allowed_name(certificate: Mapping[str, Any] | None, allowed: frozenset[str]) -> bool:
    """Tell whether a certificate, as Python's ssl gives it, has one of the names; any will do for none."""
    names = {_name(kind, value) for kind, value in (certificate or {}).get("subjectAltName", ())}
    return not allowed or bool(names & {_plain_address(name) for name in allowed})


def _name(kind: str, value: str) -> str:
    return _plain_address(value) if kind == "IP Address" else value


def _plain_address(name: str) -> str:
    """Spell IP addresses in one way, and leave other names as they are."""
    try:
        return str(ipaddress.ip_address(name.strip()))
    except ValueError:
        return name


def _read(name: str, pem: Pem, mark: bytes, what: str) -> bytes:
    content = pem.text.encode(errors="replace") if pem.file is None else read_file(pem.file)
    if mark not in content:
        where = f"tls_server_config.{name}" if pem.file is None else str(pem.file)
        raise DocumentError(f"{where}: there is no {what} in PEM form in it")
    return content


def _load_pair(context: ssl.SSLContext, material: Material) -> None:
    def refuse() -> NoReturn:
        # Without this OpenSSL would ask at the terminal.
        raise _EncryptedKeyError

    try:
        with _in_memory(material.cert) as cert, _in_memory(material.key) as key:
            context.load_cert_chain(cert, key, refuse)
    except _EncryptedKeyError:
        why = "the key is encrypted; give one without a passphrase"
        raise DocumentError(f"tls_server_config.key: {why}") from None
    except ssl.SSLError as error:
        mismatch = error.reason == "KEY_VALUES_MISMATCH"
        why = (
            "the key is not that of the certificate" if mismatch else f"OpenSSL refuses them: {_said(error)}"
        )
        raise DocumentError(f"tls_server_config.cert and key: {why}") from None


def _load_authorities(context: ssl.SSLContext, content: bytes) -> None:
    try:
        with _in_memory(content) as path:
            context.load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise DocumentError(f"tls_server_config.client_ca: OpenSSL refuses it: {_said(error)}") from None


def _said(error: ssl.SSLError) -> str:
    return (error.reason or "it cannot be read").replace("_", " ").lower()


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Give what was read as a file, which Python's ssl wants; it is on no disk and what was checked."""
    descriptor = os.memfd_create("web-config", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{descriptor}"
