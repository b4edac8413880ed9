"""What the routes are made of: where each of them gets what it hands out."""

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
    """The site of one node. ``restart_reason`` tells why the process should be restarted, or None.

    ``report`` judges the sources by the last poll; ``past`` tells of what was before it. ``ticker`` is to be
    told of each snapshot, so that those who follow hear of it. ``spans`` are those that pages offer to look
    back over, and ``sparkline`` draws the last hour of a container, None where no history is kept.
    """

    pages: RenderCache
    restart_reason: Callable[[], str | None]
    report: Callable[[], Report]
    past: PastReader
    spans: tuple[str, ...] = ("5m", "1h", "6h")
    sparkline: Callable[[ContainerRow], Markup] | None = None
    ticker: Ticker = field(default_factory=Ticker)
