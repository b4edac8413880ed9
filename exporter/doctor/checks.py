"""All checks of a node.

The check of the series on /metrics is here: how many this node has, and what larger sets would add.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from exporter.config import Settings
from exporter.doctor import Check, Report, degraded
from exporter.doctor.driver import POLL_FAILS, driver_checks
from exporter.doctor.gpus import gpu_checks, group_checks
from exporter.doctor.kubelet import kubelet_checks
from exporter.doctor.memory_limits import memory_limit_checks
from exporter.doctor.requests import request_checks
from exporter.doctor.workloads import file_checks, object_checks, workload_checks
from exporter.exposition import EVERYTHING, Exposition
from exporter.metrics import FAMILIES, AnyFamily
from exporter.metrics.dcgm import DCGM, DEFAULT
from exporter.metrics.selection import SETS, Selection, has
from exporter.model import Snapshot
from exporter.model.poll_result import POLL_FAILED, PollResult

CORE: Final = Selection(dcgm_names="off")
SERIES_UNMATCHED: Final = degraded(
    "series-unmatched",
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
    everything = replace(EVERYTHING, dcgm_version=chosen.dcgm_version)
    core, full = Exposition(CORE).counts(snapshot), Exposition(everything).counts(snapshot)
    sizes = [sum(core.values())] + [_number(full, (f for f in FAMILIES if has(each, f))) for each in SETS[1:]]
    now = SETS.index(chosen.metric_set)
    # What only the larger sets need is not read while metrics are served.
    partly = any(row.reading is not None and row.reading.skipped for row in snapshot.gpus)
    for metric_set, size in zip(SETS[now + 1 :], sizes[now + 1 :], strict=True):
        yield f"--metric-set {metric_set} has {'at least ' if partly else ''}{size - sizes[now]:,} more"
    if chosen.dcgm_names == "default":
        default = _number(full, DEFAULT[chosen.dcgm_version])
        more = f"{'at least ' if partly else ''}{_number(full, DCGM[chosen.dcgm_version]) - default:,} more"
        yield f"--dcgm-names all has {more}, off {default:,} fewer"


def _number(counts: Mapping[str, int], families: Iterable[AnyFamily]) -> int:
    return sum(counts.get(family.name, 0) for family in families)


def examine(snapshot: Snapshot, evidence: PollResult, settings: Settings) -> Report:
    """Return the checks of every source, from the result of the last poll."""
    return Report(settings.node_name, tuple(_checks(snapshot, evidence, settings)))


def _checks(snapshot: Snapshot, evidence: PollResult, settings: Settings) -> Iterator[Check]:
    health = {collector.name: collector for collector in snapshot.collectors}
    broken = [collector.message for collector in snapshot.collectors if collector.reason == POLL_FAILED]
    if broken:
        yield POLL_FAILS.check("exporter", broken[0])
        return
    yield from driver_checks(snapshot, health, evidence, settings)
    yield from gpu_checks(snapshot, health, evidence)
    yield from group_checks(snapshot)
    yield from kubelet_checks(snapshot, health["podresources"], evidence, settings)
    yield from workload_checks(snapshot, health, evidence, settings)
    yield from memory_limit_checks(snapshot, health.get("cgroups"), evidence, settings)
    yield from object_checks(snapshot, evidence)
    yield from file_checks(snapshot, health, evidence, settings)
    yield from series_checks(snapshot, settings)
    yield from request_checks(snapshot, evidence, settings)


class Doctor:
    """Checks the last snapshot given to ``record``; ``evidence`` returns the poll result it is made of."""

    def __init__(self, evidence: Callable[[], PollResult], settings: Settings) -> None:
        self._evidence = evidence
        self._settings = settings
        self._last: tuple[Snapshot, PollResult] | None = None
        self._made: tuple[Snapshot, Report] | None = None
        self._making = threading.Lock()

    def record(self, snapshot: Snapshot) -> None:
        """Keep a snapshot with its poll result; on the event loop, since the next poll replaces both."""
        self._last = snapshot, self._evidence()

    def report(self) -> Report:
        """Return the report of the last poll, without checks before the first. Callable from any thread."""
        with self._making:
            last = self._last
            if last is None:
                return Report(self._settings.node_name, ())
            if self._made is None or self._made[0] is not last[0]:
                self._made = last[0], examine(*last, self._settings)
            return self._made[1]
