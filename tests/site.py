"""The site of a node in tests, with a history of its own."""

from collections.abc import Callable

from exporter.doctor.report import Report
from exporter.exposition.page import Exposition
from exporter.history.ring import History
from exporter.model import Snapshot
from exporter.web.render_cache import RenderCache
from exporter.web.routes import Site
from exporter.web.timelines.sparklines import Sparklines


def site_of(
    current: Callable[[], Snapshot],
    restart_reason: Callable[[], str | None] = lambda: None,
    report: Callable[[], Report] = lambda: Report("node", ()),
    past: History | None = None,
) -> Site:
    """Make the site of the snapshot that ``current`` returns."""
    history = past or History(6 * 3600, 5)
    return Site(
        pages=RenderCache(current, Exposition()),
        restart_reason=restart_reason,
        report=report,
        past=history,
        sparkline=Sparklines(history).of,
    )
