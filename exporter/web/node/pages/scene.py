"""A snapshot as shown to people: rows by device, states of holders, and reasons for missing values."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, field

from markupsafe import Markup

from exporter.advice.model import Advice
from exporter.doctor import Report
from exporter.history.ended import EndedHolders
from exporter.model import ContainerRef, ContainerRow, DeviceKey, GpuRow, Memory, MigRow, Snapshot
from exporter.model.kubelet import is_unhealthy
from exporter.model.pod_labels import PodLabels
from exporter.model.states import HolderState, Judgement, judge_row
from exporter.web.kit.elements import Pair, compute_pair, memory_pair
from exporter.web.node.parameters import Query
from exporter.wording import is_system

# Sharing modes that serve all holders by MPS.
_BY_MPS = frozenset({"mps", "nos"})


def answers(gpu: GpuRow | None) -> bool:
    """Return whether a GPU has current readings."""
    return gpu is not None and gpu.reading is not None and gpu.reading.up


def anchor_of(gpu: GpuRow) -> str:
    """Return its anchor on the page; indexes of other vendors' devices may repeat."""
    return gpu.identity.uuid if gpu.unread else str(gpu.identity.index)


def number_of(gpu: GpuRow) -> str:
    """Return the short name of a device: its index, with its vendor if the exporter does not read it."""
    index = str(gpu.identity.index) if gpu.identity.index >= 0 else gpu.identity.uuid
    return f"{gpu.identity.vendor} {index}" if gpu.unread else index


def name_of(gpu: GpuRow) -> str:
    return number_of(gpu) if gpu.unread else f"GPU {gpu.identity.index}"


def is_amd(gpu: GpuRow) -> bool:
    """Return whether it is an AMD GPU, which has partitions and no XID errors."""
    return gpu.identity.vendor == "amd"


def is_mig(device: DeviceKey) -> bool:
    """Return whether a part of a GPU is a MIG device; otherwise it is a partition of an AMD GPU."""
    return device.mig_uuid.startswith("MIG-")


def part_name(device: DeviceKey) -> str:
    """Return the word for a part of a GPU."""
    return "MIG device" if is_mig(device) else "partition"


def why_part(device: DeviceKey) -> str:
    """Return why per-process compute on a part of a GPU is unknown."""
    return (
        f"the driver does not measure per-process compute inside {'MIG' if is_mig(device) else 'partitions'}"
    )


@dataclass(eq=False)
class Scene:
    """One snapshot with the facts that pages need; states of holders are those at the time of the poll."""

    snapshot: Snapshot
    _: KW_ONLY
    now: float  # Unix time
    idle_after: float = 600.0  # seconds without compute until a holder is idle
    interval: float = 5.0  # seconds between snapshots
    root: str = ""  # path from the page to the node page
    query: Query = field(default_factory=Query)  # of the page's URL
    spans: tuple[str, ...] = ()  # ranges of timelines
    sparkline: Callable[[ContainerRow], Markup] | None = None  # draws the last hour; None without history
    # Returns the advice on a container; one that holds devices of several models has several.
    advise: Callable[[Snapshot, ContainerRef], Sequence[Advice]] = lambda _snapshot, _ref: ()
    report: Callable[[], Report] = lambda: Report("", ())  # the doctor's report
    ended: EndedHolders = field(default_factory=EndedHolders)
    in_short: bool = True  # whether a device with very many holders shows only some of them

    def __post_init__(self) -> None:
        snapshot = self.snapshot
        self.gpus: dict[str, GpuRow] = {gpu.identity.uuid: gpu for gpu in snapshot.gpus}
        self.migs: dict[DeviceKey, MigRow] = {mig.device: mig for mig in snapshot.migs}
        self.failing = {
            health.name: health.message or "no reason reported"
            for health in snapshot.collectors
            if not health.success
        }
        self.released = snapshot.node.released if "nvml" in self.failing else ""
        # Resources claimed through DRA have no domain before a slash, and the kubelet does not offer them.
        self.claimed = any(row.resource and "/" not in row.resource for row in snapshot.containers)
        self.labels = PodLabels(snapshot.pods)
        self._rows: dict[DeviceKey, list[ContainerRow]] = defaultdict(list)
        self._of_gpu: dict[str, list[ContainerRow]] = defaultdict(list)
        # Pods with a row on a device whose containers cannot be distinguished.
        self._merged: set[tuple[DeviceKey, str, str]] = set()
        for row in snapshot.containers:
            self._rows[row.device].append(row)
            self._of_gpu[row.device.uuid].append(row)
            if not row.holder.container:
                self._merged.add((row.device, row.holder.namespace, row.holder.pod))
        # Judged once, for several parts of a page. Rows live as long as the snapshot, so ids are stable.
        self._judged = {id(row): judge_row(snapshot, row, self.idle_after) for row in snapshot.containers}

    def in_full(self) -> "Scene":
        """Return the same scene for a page that shows all holders."""
        full = copy(self)
        full.in_short = False
        return full

    def rows(self, key: DeviceKey) -> list[ContainerRow]:
        """Return the containers on one device."""
        return self._rows.get(key, [])

    def rows_of(self, uuid: str) -> list[ContainerRow]:
        """Return the containers on a GPU and on its MIG devices or partitions."""
        return self._of_gpu.get(uuid, [])

    def unhealthy_pods(self, uuid: str) -> dict[str, list[str]]:
        """Return the pods on a GPU (``namespace/name``) by the bad health that the kubelet reports of it."""
        found: dict[str, dict[str, None]] = {}
        for row in self.rows_of(uuid):
            if is_unhealthy(row.health):
                found.setdefault(row.health, {})[f"{row.holder.namespace}/{row.holder.pod}"] = None
        return {health: list(pods) for health, pods in found.items()}

    def devices_of(self, uuid: str) -> list[DeviceKey]:
        """Return the MIG devices of a GPU, then those that containers hold but the driver does not list."""
        return [key for key in dict.fromkeys((*self.migs, *self._rows)) if key.uuid == uuid and key.mig_uuid]

    def device_memory(self, row: ContainerRow) -> Memory | None:
        """Return the memory of a container's device, None if it is not reported."""
        if row.device.mig_uuid:
            mig = self.migs.get(row.device)
            return mig.reading.memory if mig is not None else None
        gpu = self.gpus.get(row.device.uuid)
        return gpu.reading.memory if gpu is not None and gpu.reading is not None else None

    def judged(self, row: ContainerRow) -> Judgement:
        """Return the state and activity of a holder."""
        return self._judged[id(row)]

    def state(self, row: ContainerRow) -> HolderState:
        return self.judged(row).state

    def memory(self, row: ContainerRow) -> Pair:
        """Return a container's memory, with reasons for missing values."""
        why, why_entitled = self.why_memory(row), self.why_entitled(row)
        return memory_pair(row.memory_used, why, row.memory_entitled, why_entitled)

    def compute(self, row: ContainerRow) -> Pair:
        """Return a container's compute, with reasons for missing values."""
        why, why_entitled = self.why_compute(row), self.why_entitled(row)
        return compute_pair(row.compute_used, why, row.compute_entitled, why_entitled)

    def why_memory(self, row: ContainerRow) -> str:
        """Return why a container's memory is not measured."""
        return self.why_processes(row) or "the driver does not report the memory of its processes"

    def why_compute(self, row: ContainerRow) -> str:
        """Return why a container's compute is not measured."""
        if reason := self.why_processes(row):
            return reason
        if row.device.mig_uuid:
            return why_part(row.device)
        if row.sharing in _BY_MPS:
            return "the driver reports the compute of all MPS clients as that of one process, the MPS server"
        return "the driver does not report the compute of its processes"

    def why_processes(self, row: ContainerRow) -> str:
        """Return why a container's processes are not visible, "" if they are."""
        node = self.snapshot.node
        if silent := self._why_silent(row):
            return silent
        if not node.process_view:
            return node.process_view_reason or "host processes are not visible"
        if (row.device, row.holder.namespace, row.holder.pod) in self._merged:
            return "its processes cannot be distinguished from those of another container of its pod"
        return f"pod names are missing: {self.failing['identity']}" if "identity" in self.failing else ""

    def why_holders(self) -> str:
        """Return why the holders of the GPUs are unknown."""
        silent = "the kubelet has not answered yet"
        if self.snapshot.node.allocations_read_at is not None:
            silent = "the kubelet answers, but the number of slices per GPU is not known"
        return self.failing.get("podresources", silent)

    def is_released(self, gpu: GpuRow | None) -> bool:
        """Return whether a GPU is not read because its driver is released."""
        return bool(self.released) and gpu is not None and gpu.identity.vendor == "nvidia"

    def _why_silent(self, row: ContainerRow) -> str:
        gpu = self.gpus.get(row.device.uuid)
        if answers(gpu):
            return ""
        if gpu is not None and gpu.unread:
            return "this exporter does not read this device"
        return "the driver is released" if self.is_released(gpu) else "the GPU does not answer"

    def why_entitled(self, row: ContainerRow) -> str:
        """Return why a container's entitlement is unknown."""
        if row.slices == 0:
            return "it holds nothing here"
        if row.slices is None:
            reason = self.failing.get("podresources")
            return f"its allocation is not known: {reason}" if reason else "its allocation is not known"
        if row.holder in self.snapshot.node.contested.get(row.device, ()):
            return "another container holds the same device"
        if is_system(row.sharing):
            return "no limit is set or reported"
        mig = self.migs.get(row.device)
        shared = mig is not None and mig.reading.memory_shared
        return self._why_silent(row) or (
            "it shares its GPU instance with other compute instances"
            if shared
            else "the kubelet does not report the number of slices of this device"
        )
