"""All checks of a node, and all findings."""

import threading
from collections.abc import Callable, Iterator
from typing import Final

from exporter.config.settings import Settings
from exporter.doctor import driver, gpus, kubelet, objects, series, workloads
from exporter.doctor.driver import POLL_FAILS, driver_checks
from exporter.doctor.gpus import gpu_checks, group_checks
from exporter.doctor.kubelet import kubelet_checks
from exporter.doctor.objects import file_checks, object_checks
from exporter.doctor.report import Check, Finding, Report
from exporter.doctor.series import series_checks
from exporter.doctor.workloads import workload_checks
from exporter.model import Snapshot
from exporter.model.poll_result import POLL_FAILED, PollResult


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
    yield from object_checks(snapshot, evidence)
    yield from file_checks(snapshot, health, evidence, settings)
    yield from series_checks(snapshot, settings)


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


FINDINGS: Final = {
    finding.code: finding
    for module in (driver, gpus, kubelet, workloads, objects, series)
    for finding in vars(module).values()
    if isinstance(finding, Finding)
}
"""Every finding by its code."""
