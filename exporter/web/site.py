"""The sources of the routes of a node."""

from collections.abc import Callable
from dataclasses import dataclass, field

from markupsafe import Markup

from exporter.doctor.report import Report
from exporter.history import PastReader
from exporter.model import ContainerRow
from exporter.web.live.broadcaster import Ticker
from exporter.web.render_cache import RenderCache


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The site of one node."""

    pages: RenderCache
    restart_reason: Callable[[], str | None]  # why the process needs a restart, None if it does not
    report: Callable[[], Report]  # the doctor's report on the last poll
    past: PastReader
    spans: tuple[str, ...] = ("5m", "1h", "6h")  # ranges of timelines
    sparkline: Callable[[ContainerRow], Markup] | None = None  # draws the last hour; None without history
    ticker: Ticker = field(default_factory=Ticker)  # ticks with each snapshot
