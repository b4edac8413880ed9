"""What can be read on this node, what is lost where it cannot, and how to mend it."""

from collections.abc import Iterable, Iterator, Mapping

from exporter.assembly import Evidence
from exporter.doctor.groups import group_checks
from exporter.doctor.objects import object_checks
from exporter.model import CollectorHealth, GpuRow, Snapshot
from exporter.report import Check, Report
from exporter.settings import Settings
from exporter.sources import NVIDIA_MODULE


def examine(snapshot: Snapshot, evidence: Evidence, settings: Settings) -> Report:
    """Judge every source by what the last poll had of it."""
    return Report(settings.node_name, tuple(_checks(snapshot, evidence, settings)))


def _checks(snapshot: Snapshot, evidence: Evidence, settings: Settings) -> Iterator[Check]:
    health = {collector.name: collector for collector in snapshot.collectors}
    yield from _drivers(snapshot, health, evidence, settings)
    yield from (_gpu(row) for row in snapshot.gpus)
    yield from (_mig(row) for row in snapshot.gpus if row.reading and row.reading.mig_enabled)
    yield from group_checks(snapshot)
    yield _allocations(health["podresources"], evidence, settings)
    if evidence.allocations is not None:
        yield _resolution(snapshot)
    yield _process_view(health["processes"], settings)
    yield _names(health["identity"], evidence, settings)
    yield from object_checks(snapshot, evidence)


def _drivers(
    snapshot: Snapshot, health: Mapping[str, CollectorHealth], evidence: Evidence, settings: Settings
) -> Iterator[Check]:
    """Judge the drivers of the vendors that have hardware here, and a dcgm-exporter where one is named."""
    if "nvml" in health:
        yield _driver(snapshot, health["nvml"], evidence, settings)
    if "amd" in health:
        cards = [gpu for gpu in snapshot.gpus if gpu.identity.vendor == "amd"]
        found = health["amd"].message or f"{_count(len(cards), 'AMD GPU')} in {settings.sys_root}"
        lost, remedy = ("", "") if health["amd"].success else ("everything about AMD GPUs", AMD_REMEDY)
        yield Check("amdgpu", "OK" if health["amd"].success else "missing", found, lost, remedy)
    if "dcgm" in health:
        good = health["dcgm"].success
        lost = "" if good else "profiling meters before Hopper"
        remedy = "" if good else "see docs/deploy.md: profiling from a dcgm-exporter"
        # Without the URL, which may have a password in it.
        found = health["dcgm"].message or "answers at --dcgm-exporter-url"
        yield Check("dcgm-exporter", "OK" if good else "degraded", found, lost, remedy)


AMD_REMEDY = "run as root on the host, or privileged in a pod: deploy/components/amd"


def _driver(snapshot: Snapshot, health: CollectorHealth, evidence: Evidence, settings: Settings) -> Check:
    others_only = snapshot.gpus and all(gpu.foreign for gpu in snapshot.gpus)
    if others_only and not evidence.nvidia_module:
        return Check("driver", "absent", "no GPU of NVIDIA's is here; devices of other makers are not read")
    driver = snapshot.node.driver
    if health.success and driver is not None:
        others = sum(gpu.identity.vendor == "amd" for gpu in snapshot.gpus)
        gpus = max((snapshot.node.gpu_count or 0) - others, 0)
        found = f"driver {driver.driver_version}, NVML {driver.nvml_version}, {_count(gpus, 'GPU')}"
        if gpus:
            return Check("driver", "OK", found)
        return Check("driver", "missing", found, "everything about GPUs", VISIBLE_REMEDY)
    if snapshot.node.released:
        return Check("driver", "missing", health.message, "the readings of all GPUs", RELEASED_REMEDY)
    missing = f"no kernel module ({settings.sys_root / NVIDIA_MODULE} is not there)"
    loaded = "the kernel module is loaded" if evidence.nvidia_module else missing
    return Check(
        "driver",
        "missing",
        f"{health.message}; {loaded}",
        "everything about GPUs",
        "make the driver answer as said above; to see a node that has one: gpuslice-exporter demo",
    )


RELEASED_REMEDY = "wait until who asked for it has done its work, or see docs/deploy.md: release windows"
VISIBLE_REMEDY = "make all GPUs visible to this process (NVIDIA_VISIBLE_DEVICES=all)"
SYSTEM_REMEDY = "see in the pods' annotations whether the sharing system says which GPUs it gave them"


def _gpu(row: GpuRow) -> Check:
    name = f"GPU {row.identity.index}"
    reading = row.reading
    if row.foreign:
        number = row.identity.index if row.identity.index >= 0 else row.identity.uuid
        name = f"{row.identity.vendor} {number}"
        found = f"{row.identity.model}, {row.sharing}: who holds it is known, it is not read by this exporter"
        return Check(name, "absent", found)
    if reading is None or not reading.up:
        return Check(
            name,
            "missing",
            "does not answer",
            "its readings",
            "see the kernel log for an XID; reset it or reboot",
        )
    missing = [
        label
        for label, value in (
            ("memory", reading.memory),
            ("processes", reading.processes if not reading.mig_enabled else ()),
        )
        if value is None
    ]
    unsupported = f", {_count(len(reading.unsupported), 'call')} not supported" if reading.unsupported else ""
    found = f"{row.identity.model}, {row.sharing}{unsupported}"
    if not missing:
        return Check(name, "OK", found)
    lost = f"{' and '.join(missing)} of this GPU"
    amd = row.identity.vendor == "amd"
    asleep = reading.withheld.get("core", "") if amd else ""
    remedy = AMD_REMEDY if amd else "run as root on the host, or with all devices visible"
    return Check(name, "degraded", f"{found}: {asleep}" if asleep else found, lost, remedy)


def _mig(row: GpuRow) -> Check:
    if row.identity.vendor == "amd":
        return _partitions(row)
    name = f"GPU {row.identity.index} MIG"
    instances = row.reading.mig if row.reading is not None else None
    if instances is None:
        return Check(name, "degraded", "MIG devices are not listed", "all of its MIG devices", MIG_REMEDY)
    blind = [mig.uuid for mig in instances if mig.memory is None or mig.processes is None]
    found = f"{len(instances)} MIG devices"
    if blind:
        return Check(name, "degraded", found, f"memory or processes of {len(blind)} MIG devices", MIG_REMEDY)
    return Check(name, "OK", found)


def _partitions(row: GpuRow) -> Check:
    name = f"GPU {row.identity.index} partitions"
    reading = row.reading
    parts = (reading.mig if reading is not None else None) or ()
    blind = [part for part in parts if part.processes is None]
    found = _count(len(parts), "partition")
    if reading is None or reading.mig is None or not reading.mig_complete:
        return Check(name, "degraded", f"{found} told, there may be more", "who holds the others", AMD_REMEDY)
    if not blind:
        return Check(name, "OK", found)
    return Check(name, "degraded", found, f"the processes of {len(blind)} of them", AMD_REMEDY)


MIG_REMEDY = (
    "give the pod the right to monitor MIG: deploy/components/mig-monitor, or NVIDIA_MIG_MONITOR_DEVICES=all"
)


def _allocations(health: CollectorHealth, evidence: Evidence, settings: Settings) -> Check:
    name = "pod-resources"
    if not health.success or evidence.allocations is None:
        lost = "who holds what: holders, slices and entitlements"
        return Check(
            name, "missing", health.message, lost, f"mount the directory of {settings.pod_resources_socket}"
        )
    allocated = _count(len(evidence.allocations.allocated), "device id")
    found = f"{evidence.allocations.api_version}, {allocated} allocated"
    if evidence.allocations.offered is None:
        lost = "how many slices a GPU has, and with it every share of it"
        return Check(name, "degraded", found, lost, "a kubelet from 1.23 on")
    return Check(name, "OK", f"{found}, {len(evidence.allocations.offered)} offered")


def _resolution(snapshot: Snapshot) -> Check:
    unresolved = snapshot.node.unresolved
    if not unresolved:
        return Check("device ids", "OK", "every allocated id is a visible device")
    found = ", ".join(f"{count} of {resource}" for resource, count in unresolved.items())
    return Check(
        "device ids",
        "degraded",
        f"{found} match no visible device",
        "the holders of these ids",
        _resolution_remedy(unresolved),
    )


def _resolution_remedy(resources: Iterable[str]) -> str:
    vendors = {resource.partition("/")[0] for resource in resources}
    if vendors == {"amd.com"}:
        return AMD_REMEDY
    return VISIBLE_REMEDY if "nvidia.com" in vendors else SYSTEM_REMEDY


def _process_view(health: CollectorHealth, settings: Settings) -> Check:
    if health.success:
        return Check("processes", "OK", f"{settings.proc_root} shows the node's processes")
    lost = "per-container use on every shared device"
    return Check(
        "processes", "missing", health.message, lost, "set hostPID: true, or --proc-root to the host's /proc"
    )


def _names(health: CollectorHealth, evidence: Evidence, settings: Settings) -> Check:
    if not health.success:
        lost = "whose a process is, wherever several containers share a device"
        remedy = f"mount {settings.pod_logs}, or the directory of {settings.pods_api_socket}"
        return Check("pod names", "missing", health.message, lost, remedy)
    pods = evidence.workloads.pods if evidence.workloads is not None else None
    by_id = any(pod.container_ids for pod in (pods or {}).values())
    if by_id or not pods:
        return Check("pod names", "OK", f"{_count(len(pods or {}), 'pod')}, containers by id")
    return Check(
        "pod names",
        "degraded",
        f"{_count(len(pods), 'pod')} from {settings.pod_logs}, containers by name only",
        "which container of a pod uses a device, where several of the pod hold it",
        f"a kubelet from 1.37 on, with {settings.pods_api_socket.parent} mounted, or --kubernetes-api on",
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
