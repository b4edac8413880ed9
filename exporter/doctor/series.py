"""Check of the series on /metrics: how many this node has, and what larger sets would add."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from exporter.config.settings import Settings
from exporter.doctor.report import Check, Finding
from exporter.exposition.page import EVERYTHING, Exposition
from exporter.metrics import FAMILIES, AnyFamily
from exporter.metrics.dcgm import DCGM, DEFAULT
from exporter.metrics.selection import SETS, Selection, has
from exporter.model import Snapshot

CORE: Final = Selection(dcgm_names="off")
SERIES_UNMATCHED: Final = Finding(
    "series-unmatched",
    "degraded",
    "what the pattern is meant to add or to leave out",
    "correct or remove the pattern; docs/metrics.md has all names",
)


def series_checks(snapshot: Snapshot, settings: Settings) -> Iterator[Check]:
    """Yield the number of series, and a finding for each pattern that matches none."""
    chosen = Selection.of(settings)
    shown = sum(Exposition(chosen).counts(snapshot).values())
    yield Check("series", "OK", "; ".join((f"{shown:,} on /metrics", *_more(snapshot, chosen))))
    for problem in chosen.unmatched():
        yield SERIES_UNMATCHED.check("series by name", problem)


def _more(snapshot: Snapshot, chosen: Selection) -> Iterator[str]:
    """Yield what the larger sets would add, and what DCGM's names cost."""
    core, full = Exposition(CORE).counts(snapshot), Exposition(EVERYTHING).counts(snapshot)
    sizes = [sum(core.values())] + [_number(full, (f for f in FAMILIES if has(each, f))) for each in SETS[1:]]
    now = SETS.index(chosen.metric_set)
    # What only the larger sets need is not read while metrics are served.
    partly = any(row.reading is not None and row.reading.skipped for row in snapshot.gpus)
    for metric_set, size in zip(SETS[now + 1 :], sizes[now + 1 :], strict=True):
        yield f"--metric-set {metric_set} has {'at least ' if partly else ''}{size - sizes[now]:,} more"
    if chosen.dcgm_names == "default":
        default = _number(full, DEFAULT)
        more = f"{'at least ' if partly else ''}{_number(full, DCGM) - default:,} more"
        yield f"--dcgm-names all has {more}, off {default:,} fewer"


def _number(counts: Mapping[str, int], families: Iterable[AnyFamily]) -> int:
    return sum(counts.get(family.name, 0) for family in families)
