"""What can be read on this node, what is lost where it cannot, and how to mend it."""

from collections.abc import Iterator

from exporter.assembly import Evidence
from exporter.doctor.driver import driver_checks
from exporter.doctor.files import file_checks
from exporter.doctor.findings.driver import POLL_FAILS
from exporter.doctor.gpus import gpu_checks
from exporter.doctor.groups import group_checks
from exporter.doctor.kubelet import kubelet_checks
from exporter.doctor.objects import object_checks
from exporter.doctor.workloads import workload_checks
from exporter.model import Snapshot
from exporter.report import Check, Report
from exporter.settings import Settings

# What the poller says of every source when it is itself that fails.
OWN_FAILURE = "the exporter's own poll fails"


def examine(snapshot: Snapshot, evidence: Evidence, settings: Settings) -> Report:
    """Judge every source by what the last poll had of it."""
    return Report(settings.node_name, tuple(_checks(snapshot, evidence, settings)))


def _checks(snapshot: Snapshot, evidence: Evidence, settings: Settings) -> Iterator[Check]:
    health = {collector.name: collector for collector in snapshot.collectors}
    broken = [each.message for each in snapshot.collectors if OWN_FAILURE in each.message]
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
