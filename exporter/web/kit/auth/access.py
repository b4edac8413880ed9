"""The current web configuration with its certificates, reloaded when its file changes."""

import asyncio
import ipaddress
import logging
import os
import ssl
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from exporter.config import SettingsError
from exporter.documents import DocumentError
from exporter.web.kit.auth.web_config import IF_GIVEN, REQUIRED, Pem, TlsConfig, WebConfig, parse_web_config

log = logging.getLogger(__name__)
# The kubelet takes a minute or two to update a mounted Secret, so a few seconds more do no harm.
LOOK_SECONDS = 5.0
MOST_BYTES = 1024 * 1024
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_VERIFY = {IF_GIVEN: ssl.CERT_OPTIONAL, REQUIRED: ssl.CERT_REQUIRED}


class Material(NamedTuple):
    """The certificates and the key in PEM form, read at one time."""

    cert: bytes
    key: bytes
    client_ca: bytes


class _EncryptedKeyError(Exception):
    """The key has a passphrase."""


class _Read(NamedTuple):
    content: bytes
    config: WebConfig
    material: Material


class WebAccess:
    """The configuration in the file at ``path``, read every ``look`` seconds.

    A new file that is invalid, or that turns off TLS or passwords, is rejected. Raises SettingsError if the
    first one is invalid.
    """

    def __init__(self, path: Path, *, look: float = LOOK_SECONDS) -> None:
        self._path = path
        self._look = look
        self._rejected = ""
        try:
            self._read = _read(path)
            self._context = _context(self._read)
        except DocumentError as error:
            raise SettingsError(f"--web-config: {path}: {error}") from None

    @property
    def config(self) -> WebConfig:
        """The current configuration."""
        return self._read.config

    @property
    def context(self) -> ssl.SSLContext | None:
        """The TLS context of new connections, None for plain HTTP."""
        return self._context

    def lets_in(self, certificate: Mapping[str, Any] | None) -> bool:
        """Return whether a client with this verified certificate is allowed."""
        tls = self.config.tls
        return tls is None or has_allowed_name(certificate, tls.allowed_sans)

    async def follow(self, retire: Callable[[], None]) -> None:
        """Reload the file forever; ``retire`` is called if a new one may allow other clients than before."""
        while True:
            await asyncio.sleep(self._look)
            try:
                previous = self._read
                if await asyncio.to_thread(self._reload) and _lets_in_others(previous, self._read):
                    retire()
            except DocumentError as error:
                self._reject(str(error))
            except Exception:
                log.exception("could not reload the web config; keeping the previous one")

    def _reload(self) -> bool:
        """Read the file, and return whether it has changed; raises DocumentError if it is rejected."""
        new = _read(self._path)
        if new == self._read:
            self._rejected = ""
            return False
        _refuse_less(self._read.config, new.config)
        self._context, self._read, self._rejected = _context(new), new, ""
        log.info("reloaded web config %s", self._path)
        return True

    def _reject(self, why: str) -> None:
        if why != self._rejected:
            log.error("rejected web config %s: %s; keeping the previous one", self._path, why)
        self._rejected = why


def _read(path: Path) -> _Read:
    content = read_file(path)
    config = parse_web_config(content, path.parent)
    material = read_material(config.tls) if config.tls is not None else Material(b"", b"", b"")
    return _Read(content, config, material)


def _context(read: _Read) -> ssl.SSLContext | None:
    return make_context(read.config.tls, read.material) if read.config.tls is not None else None


def _refuse_less(old: WebConfig, new: WebConfig) -> None:
    """Raise DocumentError if protection would be turned off, as by a file that is only half written."""
    if (old.tls is None) != (new.tls is None):
        raise DocumentError("tls_server_config", "turning TLS on or off needs a restart")
    if old.users and not new.users:
        raise DocumentError("basic_auth_users", "turning passwords off needs a restart")


def _lets_in_others(old: _Read, new: _Read) -> bool:
    if old.config.users != new.config.users or old.material.client_ca != new.material.client_ca:
        return True
    old_tls, new_tls = old.config.tls, new.config.tls
    if old_tls is None or new_tls is None:
        return False
    return (old_tls.client_auth, old_tls.allowed_sans) != (new_tls.client_auth, new_tls.allowed_sans)


def read_material(config: TlsConfig) -> Material:
    """Return the certificates and key of a configuration; raises DocumentError."""
    return Material(
        cert=_read_pem("cert", config.cert, b"-----BEGIN CERTIFICATE-----", "certificate"),
        key=_read_pem("key", config.key, b"PRIVATE KEY-----", "private key"),
        client_ca=_read_pem("client_ca", config.client_ca, b"-----BEGIN CERTIFICATE-----", "certificate")
        if config.client_ca
        else b"",
    )


def read_file(path: Path) -> bytes:
    """Return the content of a regular file of up to 1 MiB; raises DocumentError."""

    def open_at_once(name: str, flags: int) -> int:
        # Opening a pipe would wait for a writer.
        return os.open(name, flags | os.O_NONBLOCK)

    try:
        with open(path, "rb", opener=open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise DocumentError("", f"cannot read {path}: it is not a regular file")
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise DocumentError("", f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise DocumentError("", f"cannot read {str(path)!r}: this is not a path") from None
    if len(content) > MOST_BYTES:
        raise DocumentError("", f"cannot read {path}: it is larger than 1 MiB")
    return content


def make_context(config: TlsConfig, material: Material) -> ssl.SSLContext:
    """Return the TLS context of a configuration; raises DocumentError."""
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
        raise DocumentError(
            "tls_server_config", f"OpenSSL refuses cipher_suites or a curve: {error}"
        ) from None
    _load_pair(context, material)
    if config.client_ca:
        _load_authorities(context, material.client_ca)
        # As in other exporters, a named authority is trusted even if it is not a root.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_mode = _VERIFY.get(config.client_auth, ssl.CERT_NONE)
    return context


def has_allowed_name(certificate: Mapping[str, Any] | None, allowed: frozenset[str]) -> bool:
    """Return whether a certificate, as Python's ssl returns it, has one of these names, if there are any."""
    names = {
        _normal_address(value) if kind == "IP Address" else value
        for kind, value in (certificate or {}).get("subjectAltName", ())
    }
    return not allowed or bool(names & {_normal_address(name) for name in allowed})


def _normal_address(name: str) -> str:
    """Return an IP address in its normal form, and other names unchanged."""
    try:
        return str(ipaddress.ip_address(name.strip()))
    except ValueError:
        return name


def _read_pem(name: str, pem: Pem, mark: bytes, what: str) -> bytes:
    content = pem.text.encode(errors="replace") if pem.file is None else read_file(pem.file)
    if mark not in content:
        where = f"tls_server_config.{name}" if pem.file is None else str(pem.file)
        raise DocumentError(where, f"there is no {what} in PEM form in it")
    return content


def _load_pair(context: ssl.SSLContext, material: Material) -> None:
    def refuse() -> NoReturn:
        # Without this OpenSSL asks for the passphrase at the terminal.
        raise _EncryptedKeyError

    try:
        with _in_memory(material.cert) as cert, _in_memory(material.key) as key:
            context.load_cert_chain(cert, key, refuse)
    except _EncryptedKeyError:
        why = "the key is encrypted; use one without a passphrase"
        raise DocumentError("tls_server_config.key", why) from None
    except ssl.SSLError as error:
        why = (
            "the key does not match the certificate"
            if error.reason == "KEY_VALUES_MISMATCH"
            else f"OpenSSL refuses them: {_reason(error)}"
        )
        raise DocumentError("tls_server_config.cert and key", why) from None


def _load_authorities(context: ssl.SSLContext, content: bytes) -> None:
    try:
        with _in_memory(content) as path:
            context.load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise DocumentError("tls_server_config.client_ca", f"OpenSSL refuses it: {_reason(error)}") from None


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "it cannot be read").replace("_", " ").lower()


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Yield the path of a file in memory with this content: ssl needs a path, and the checked content."""
    descriptor = os.memfd_create("web-config", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{descriptor}"
