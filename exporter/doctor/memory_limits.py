"""Findings and checks of memory limits of containers, which the kernel or the driver enforces by cgroup.

Nothing is said on a node without limits. Not visible from outside of a container, and so not found: an entry
of ``CUDA_MPS_PINNED_DEVICE_MEM_LIMIT`` that drops all limits of a client.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from exporter.config import Settings
from exporter.doctor import Check, Finding, absent, degraded
from exporter.model import CollectorHealth, ContainerRow, ProcessRow, Snapshot
from exporter.model.memory_limits import CgroupTree, unexplained_difference
from exporter.model.poll_result import PollResult
from exporter.wording import gibibytes, plural

CGROUPS_NOT_VISIBLE: Final = absent("cgroups-not-visible")
CGROUPS_UNREADABLE: Final = degraded(
    "cgroups-unreadable",
    "limits of device memory, and the memory that cgroups meter",
    "mount the node's /sys/fs/cgroup at {root}, read-only (deploy/components/memory-limits)",
)
EXPORTER_LIMITED: Final = degraded(
    "exporter-limited",
    "the memory of {gpus}, its unattributed part, and shares of it",
    "clear the limit of the exporter's cgroup: nvidia-smi memory-limits --set with --soft-limit 0 and "
    "--hard-limit max",
)
LIMIT_ABOVE: Final = degraded(
    "limit-above",
    "the limit in the container: its programs see the memory of the whole GPU, and may size themselves by it",
    "set the limit on the container's own cgroup, or size its programs explicitly",
)
RESERVATION_LEFT: Final = degraded(
    "reservation-left",
    "the memory that is reserved for no container",
    "lower its soft limit to the sum of those below with nvidia-smi memory-limits; clear the soft limit of a "
    "container before its cgroup is removed",
)
RESERVATION_SHORT: Final = degraded(
    "reservation-short",
    "a part of the guarantees below it: the kernel honours them as far as each cgroup above reserves",
    "set soft limits with nvidia-smi memory-limits or NVML, which raise those above, not by writing dmem.min",
)
METERS_DISAGREE: Final = degraded(
    "meters-disagree",
    "the limit on a part of the memory: managed memory (UVM) is not charged, so it is not limited either",
    "expect the container to use more than its limit, or have its programs allocate device memory only",
)
OUTSIDE_MPS: Final = degraded(
    "outside-mps",
    "the limits of MPS for that container: it runs as without MPS, and nothing reports an error to it",
    "correct CUDA_MPS_PIPE_DIRECTORY of the container, and check that its MPS server runs",
)
_NAME: Final = "memory limits"
_BY_MPS: Final = frozenset({"mps", "nos"})
_SERVER: Final = "nvidia-cuda-mps"  # the kernel keeps 15 bytes of a name
_FIRST_DRIVER: Final = 615


def memory_limit_checks(
    snapshot: Snapshot, health: CollectorHealth | None, evidence: PollResult, settings: Settings
) -> Iterator[Check]:
    """Yield the checks of limits; ``health`` is that of reading cgroups, None while it succeeds."""
    tree = evidence.workloads.cgroups if evidence.workloads is not None else None
    if health is not None or (tree is not None and tree.problems):
        text = health.message if health is not None else _first(tree.problems if tree else ())
        yield CGROUPS_UNREADABLE.check(_NAME, text, root=settings.cgroup_root)
    else:
        yield from _in_force(snapshot, tree, settings)
    yield from _own_limit(snapshot)
    rows = [row for row in snapshot.containers if row.memory_limit_above]
    if rows:
        text = f"{_names(rows)}: the limit is that of a cgroup above"
        yield LIMIT_ABOVE.check("limits on containers", text)
    yield from _reservations(tree or CgroupTree())
    yield from _meters(snapshot.containers)
    yield from _outside_mps(snapshot)


def _in_force(snapshot: Snapshot, tree: CgroupTree | None, settings: Settings) -> Iterator[Check]:
    limited = [row for row in snapshot.containers if row.memory_guaranteed is not None]
    if limited:
        hard = sum(row.memory_limit is not None for row in limited)
        by = ", ".join(sorted({row.limit_backend for row in limited}))
        yield Check(
            _NAME, "OK", f"{plural(len(limited), 'container')} on GPUs by {by}, {hard} with a hard limit"
        )
        return
    driver = snapshot.node.driver
    branch = (driver.driver_version or "" if driver is not None else "").partition(".")[0]
    if branch.isdecimal() and int(branch[:9]) >= _FIRST_DRIVER and tree is not None and not tree.cgroups:
        text = f"no cgroup of a container is visible in {settings.cgroup_root}: limits are not known"
        yield CGROUPS_NOT_VISIBLE.check(_NAME, text)


def _own_limit(snapshot: Snapshot) -> Iterator[Check]:
    readings = [row.reading for row in snapshot.gpus if row.reading is not None]
    limited = [each for each in readings if "own cgroup" in each.withheld.get("memory", "")]
    if limited:
        gpus = ", ".join(f"GPU {reading.identity.index}" for reading in limited)
        text = f"the exporter's own cgroup has a limit on {gpus}"
        lost = EXPORTER_LIMITED.lost.format(gpus=gpus)
        yield EXPORTER_LIMITED.check("exporter's own limit", text, lost=lost)


class _Reservation(NamedTuple):
    """A cgroup whose soft limit is not the sum of those below it."""

    path: str
    pci: str
    own: int  # bytes
    below: int

    def text(self) -> str:
        """Return it in words."""
        own, below = gibibytes(self.own), gibibytes(self.below)
        return f"{self.path} reserves {own} GiB of {self.pci}, and the cgroups below it {below} GiB"


def _reservations(tree: CgroupTree) -> Iterator[Check]:
    """Yield cgroups around those of containers that reserve more or less than the cgroups in them."""
    below: dict[tuple[str, str], int] = defaultdict(int)
    for path, cgroup in tree.cgroups.items():
        for pci, memory in cgroup.memory.items():
            below[path.rpartition("/")[0], pci] += memory.guaranteed
    found = [
        _Reservation(path, pci, memory.guaranteed, below[path, pci])
        for path, cgroup in sorted(tree.cgroups.items())
        for pci, memory in cgroup.memory.items()
        if (path, pci) in below and not any(container for _, container in cgroup.places)
    ]
    yield from _of(
        RESERVATION_LEFT, "reserved for nothing", [each for each in found if each.own > each.below]
    )
    # A reservation of 0 at the top is one of NVIDIA's ways to use soft limits without the kernel's.
    short = [each for each in found if each.own < each.below and (each.own or each.path.count("/") > 1)]
    yield from _of(RESERVATION_SHORT, "reserved too little", short)


def _of(finding: Finding, name: str, found: Sequence[_Reservation]) -> Iterator[Check]:
    if found:
        # The lowest one: those above it have the same difference.
        lowest = max(found, key=lambda each: each.path.count("/"))
        yield finding.check(name, lowest.text() + _more(len(found)))


def _meters(rows: Sequence[ContainerRow]) -> Iterator[Check]:
    """Yield containers whose processes and cgroup differ by more than a context for each process."""
    differing = [row for row in rows if _difference(row) is not None]
    if not differing:
        return
    row = max(differing, key=lambda row: abs(_difference(row) or 0))
    text = (
        f"{_name(row)}: its processes use {gibibytes(row.memory_used)} GiB, and its cgroup is charged "
        f"{gibibytes(row.memory_charged)} GiB"
    )
    if row.limit_backend == "misc":
        text += " (read up to a minute before)"
    yield METERS_DISAGREE.check("meters of memory", text + _more(len(differing)))


def _difference(row: ContainerRow) -> int | None:
    if row.memory_source != "process" or row.memory_used is None or row.memory_charged is None:
        return None
    return unexplained_difference(row.memory_used, row.memory_charged, row.processes or 0)


def _outside_mps(snapshot: Snapshot) -> Iterator[Check]:
    """Yield holders with processes outside of MPS on a GPU whose other holders are its clients."""
    served = {process.device for process in snapshot.processes if "mps" in process.kinds}
    by_mps = {
        (row.holder, row.device) for row in snapshot.containers if row.slices and row.sharing in _BY_MPS
    }
    outside = sorted(
        {
            f"{process.holder.namespace}/{process.holder.pod}"
            for process in snapshot.processes
            if process.device in served
            and process.holder is not None
            and (process.holder, process.device) in by_mps
            and _is_outside(process)
        }
    )
    if outside:
        text = f"{outside[0]} computes without MPS on a GPU that is shared by it{_more(len(outside))}"
        yield OUTSIDE_MPS.check("clients of MPS", text)


def _is_outside(process: ProcessRow) -> bool:
    """Return whether a process is no client of MPS; the server is none, nor is one without a known name."""
    return process.kinds == {"compute"} and bool(process.command) and _SERVER not in (process.command or "")


def _name(row: ContainerRow) -> str:
    return f"{row.holder.namespace}/{row.holder.pod}/{row.holder.container}"


def _names(rows: Sequence[ContainerRow]) -> str:
    return f"{_name(rows[0])}{_more(len(rows))}"


def _more(count: int) -> str:
    return f"; {count - 1} more" if count > 1 else ""


def _first(problems: Sequence[str]) -> str:
    return f"{problems[0]}{_more(len(problems))}" if problems else ""
