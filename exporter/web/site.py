"""What the routes are made of: where each of them gets what it hands out."""

from collections.abc import Callable
from dataclasses import dataclass

from exporter.history import PastReader
from exporter.report import Report
from exporter.web.pages import Pages


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The site of one node. ``restart_reason`` tells why the process should be restarted, or None.

    ``report`` judges the sources by the last poll; ``past`` tells of what was before it.
    """

    pages: Pages
    restart_reason: Callable[[], str | None]
    report: Callable[[], Report]
    past: PastReader
