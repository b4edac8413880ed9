"""Passwords, TLS and rate limits, by a web configuration file in the format of Prometheus exporters."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exporter.web.kit.auth.access import WebAccess

__all__ = ["access_of"]


def access_of(web_config: Path | None) -> "WebAccess | None":
    """Return the access by a web configuration, None without one; raises SettingsError.

    Imported on use: the libraries for YAML and passwords take a megabyte of memory.
    """
    if web_config is None:
        return None
    from exporter.web.kit.auth.access import WebAccess  # noqa: PLC0415

    return WebAccess(web_config)
