"""The web site of a node in tests, with its own history."""

from collections.abc import Callable

from exporter.doctor import Report
from exporter.exposition import Exposition
from exporter.history.ended import EndedHolders
from exporter.history.ring import History
from exporter.model import Snapshot
from exporter.web.node.app import Site
from exporter.web.node.caches import Advise, DocumentCache, MetricsCache, PageCache
from exporter.web.node.timelines.sparklines import Sparklines


def site_of(
    current: Callable[[], Snapshot],
    restart_reason: Callable[[], str | None] = lambda: None,
    report: Callable[[], Report] = lambda: Report("node", ()),
    past: History | None = None,
    advise: Advise = lambda _snapshot, _only: (),
    *,
    ended: EndedHolders | None = None,
) -> Site:
    """Return the site of the snapshot that ``current`` returns."""
    history = past or History(6 * 3600, 5)
    return Site(
        current=current,
        pages=PageCache(
            current,
            sparkline=Sparklines(history).of,
            advise=advise,
            report=report,
            ended=ended or EndedHolders(),
        ),
        documents=DocumentCache(current, advise=advise, report=report),
        metrics=MetricsCache(current, Exposition()),
        restart_reason=restart_reason,
        past=history,
    )
