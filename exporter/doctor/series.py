"""Check of the series on /metrics: how many this node has, and what larger sets would add."""

from collections.abc import Iterator
from typing import Final

from exporter.config.settings import Settings
from exporter.doctor.report import Check, Finding
from exporter.exposition.page import Exposition
from exporter.metrics.selection import SETS, Selection
from exporter.model import Snapshot

SERIES_UNMATCHED: Final = Finding(
    "series-unmatched",
    "degraded",
    "what the pattern is meant to add or to leave out",
    "correct or remove the pattern; docs/metrics.md has all names",
)


def series_checks(snapshot: Snapshot, settings: Settings) -> Iterator[Check]:
    """Yield the number of series, and a finding if a pattern matches none."""
    chosen = Selection.of(settings)
    yield Check("series", "OK", f"{_count(snapshot, chosen):,} on /metrics{_more(snapshot, chosen)}")
    for pattern, nearest in chosen.unmatched().items():
        names = f"; the names most like it are {', '.join(nearest)}" if nearest else ""
        yield SERIES_UNMATCHED.check("series by name", f"no series matches {pattern!r}{names}")


def _more(snapshot: Snapshot, chosen: Selection) -> str:
    """Return what the larger sets would add, "" if there is none."""
    native = [_count(snapshot, Selection(metric_set=each, dcgm_names="off")) for each in SETS]
    of_dcgm = [_count(snapshot, Selection(dcgm_names=each)) - native[0] for each in ("off", "default", "all")]
    now = SETS.index(chosen.metric_set)
    larger = [
        f"--metric-set {each} has {native[place] - native[now]:,} more"
        for place, each in enumerate(SETS)
        if place > now
    ]
    if chosen.dcgm_names == "default":
        larger.append(f"--dcgm-names all has {of_dcgm[2] - of_dcgm[1]:,} more, off {of_dcgm[1]:,} fewer")
    return "".join(f"; {each}" for each in larger)


def _count(snapshot: Snapshot, selection: Selection) -> int:
    return sum(samples.count(b"\n") for _, samples in Exposition(selection).blocks(snapshot))
