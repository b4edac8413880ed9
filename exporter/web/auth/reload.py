"""The web configuration that is in force, and its file, which is looked at again and again."""

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
# The kubelet brings a changed Secret within a minute or two; a few seconds more do no harm.
LOOK_SECONDS = 5.0


class _Read(NamedTuple):
    config: WebConfig
    material: Material
    digest: bytes


class WebAccess:
    """Who is let in, and over what, by the file at ``path``; raises SettingsError where it cannot be used.

    A file that is replaced by a broken one, or by one that protects less, changes nothing.
    """

    def __init__(self, path: Path, *, look: float = LOOK_SECONDS) -> None:
        self._path = path
        self._look = look
        self._told = ""
        try:
            self._read = _read(path)
            self._context = _context(self._read)
        except DocumentError as error:
            raise SettingsError(f"--web-config: {path}: {error}") from None

    @property
    def config(self) -> WebConfig:
        """What the file says."""
        return self._read.config

    @property
    def context(self) -> ssl.SSLContext | None:
        """What new connections are secured with; None for plain HTTP."""
        return self._context

    def lets_in(self, certificate: Mapping[str, Any] | None) -> bool:
        """Tell whether a client with this certificate, which is verified, may come in."""
        tls = self.config.tls
        return tls is None or has_allowed_name(certificate, tls.allowed_sans)

    async def follow(self, retire: Callable[[], None]) -> None:
        """Take every new file for ever; ``retire`` is called where it may let in others than before."""
        while True:
            await asyncio.sleep(self._look)
            try:
                before = self._read
                if await asyncio.to_thread(self._take) and _lets_in_others(before, self._read):
                    retire()
            except DocumentError as error:
                self._tell(str(error))
            except Exception:
                log.exception("could not reload the web config; keeping the previous one")

    def _take(self) -> bool:
        """Read the file, and tell whether it is new; raises DocumentError for one that cannot be used."""
        found = _read(self._path)
        if found.digest == self._read.digest:
            self._told = ""
            return False
        _refuse_less(self._read.config, found.config)
        self._context, self._read, self._told = _context(found), found, ""
        log.info("reloaded web config %s", self._path)
        return True

    def _tell(self, why: str) -> None:
        if why != self._told:
            log.error("rejected web config %s: %s; keeping the previous one", self._path, why)
        self._told = why


def _read(path: Path) -> _Read:
    content = read_file(path)
    config = parse_web_config(content, path.parent)
    material = read_material(config.tls) if config.tls is not None else Material(b"", b"", b"")
    together = hashlib.sha256()
    for part in (content, *material):
        together.update(hashlib.sha256(part).digest())
    return _Read(config, material, together.digest())


def _context(found: _Read) -> ssl.SSLContext | None:
    return make_context(found.config.tls, found.material) if found.config.tls is not None else None


def _refuse_less(old: WebConfig, new: WebConfig) -> None:
    """Refuse what a file that is half written might say, and nobody should get by chance."""
    if (old.tls is None) != (new.tls is None):
        raise DocumentError("tls_server_config: TLS is switched on or off by a restart only")
    if old.users and not new.users:
        raise DocumentError("basic_auth_users: passwords are done away with by a restart only")


def _lets_in_others(old: _Read, new: _Read) -> bool:
    before, now = old.config, new.config
    if before.users != now.users or old.material.client_ca != new.material.client_ca:
        return True
    if before.tls is None or now.tls is None:
        return False
    return (before.tls.client_auth, before.tls.allowed_sans) != (now.tls.client_auth, now.tls.allowed_sans)
