"""The current web configuration, reloaded when its file changes."""

import asyncio
import hashlib
import logging
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from exporter.config.settings import SettingsError
from exporter.web.auth.tls import Material, has_allowed_name, make_context, read_file, read_material
from exporter.web.auth.web_config import WebConfig, parse_web_config
from exporter.web.auth.yaml_document import DocumentError

log = logging.getLogger(__name__)
# The kubelet takes a minute or two to update a mounted Secret, so a few seconds more do no harm.
LOOK_SECONDS = 5.0


class _Read(NamedTuple):
    config: WebConfig
    material: Material
    digest: bytes


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
        if new.digest == self._read.digest:
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
    together = hashlib.sha256()
    for part in (content, *material):
        together.update(hashlib.sha256(part).digest())
    return _Read(config, material, together.digest())


def _context(read: _Read) -> ssl.SSLContext | None:
    return make_context(read.config.tls, read.material) if read.config.tls is not None else None


def _refuse_less(old: WebConfig, new: WebConfig) -> None:
    """Raise DocumentError if protection would be turned off, as by a file that is only half written."""
    if (old.tls is None) != (new.tls is None):
        raise DocumentError("tls_server_config: turning TLS on or off needs a restart")
    if old.users and not new.users:
        raise DocumentError("basic_auth_users: turning passwords off needs a restart")


def _lets_in_others(old: _Read, new: _Read) -> bool:
    if old.config.users != new.config.users or old.material.client_ca != new.material.client_ca:
        return True
    old_tls, new_tls = old.config.tls, new.config.tls
    if old_tls is None or new_tls is None:
        return False
    return (old_tls.client_auth, old_tls.allowed_sans) != (new_tls.client_auth, new_tls.allowed_sans)
