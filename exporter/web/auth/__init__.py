"""Who is let in, and over what: the web configuration file in the format of Prometheus' exporters."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exporter.web.auth.gate import Gate
    from exporter.web.auth.reload import WebAccess

__all__ = ["access_of", "gate_of"]


def access_of(web_config: Path | None) -> "WebAccess | None":
    """Read a web configuration, None where there is none; raises SettingsError.

    Only those who have one read YAML and check passwords: the others do without a megabyte.
    """
    if web_config is None:
        return None
    from exporter.web.auth.reload import WebAccess  # noqa: PLC0415 - as said above

    return WebAccess(web_config)


def gate_of(access: "WebAccess | None") -> "Gate | None":
    """Make what asks everybody who they are, None where everybody is let in."""
    if access is None:
        return None
    from exporter.web.auth.gate import Gate  # noqa: PLC0415 - as said above

    return Gate(access)
