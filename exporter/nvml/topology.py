"""Topology: NUMA node and CPUs of a GPU, and connections between GPUs."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from exporter.model import PeerLink, Topology
from exporter.nvml.driver.binding import text_field
from exporter.nvml.driver.calls import Calls, DeviceHangsError, DeviceLostError

GROUP = "topology"
# ``nvmlGpuTopologyLevel_t`` in the words of `nvidia-smi topo -m`.
COMMON_ANCESTORS = {0: "PSB", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
# Masks are words of 64 bits, sized for the maximum of Linux: 8192 CPUs and 1024 NUMA nodes.
WORD_BITS = 64
CPU_WORDS, NODE_WORDS = 128, 16
NEAREST_NODE = 0
TO_GPU, TO_SWITCH = 0, 2
# Remote ends of an NVLink in place of a bus address: a switch, which connects all GPUs that are linked to
# one, and a device that is not a GPU.
SWITCH, OTHER_DEVICE = "switch", "other"
REMOTE_TYPE, REMOTE_PCI = "nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetNvLinkRemotePciInfo"


@dataclass(slots=True)
class GpuLinks:
    """The place of a GPU and its NVLinks."""

    handle: Any
    bus_id: str
    place: Topology | None = None  # NUMA node and CPUs, without peers
    # Known remote ends by link: a bus address, SWITCH or OTHER_DEVICE.
    remotes: dict[int, str] = field(default_factory=dict)
    active: frozenset[int] | None = None  # None if unknown
    counts: Counter[str | None] = field(default_factory=Counter)  # number of active links by remote end

    @property
    def incomplete(self) -> bool:
        """Whether it has NVLinks and it is unknown which are active, or where an active one leads."""
        return bool(self.remotes) if self.active is None else not self.active <= self.remotes.keys()


class TopologyReader:
    """Reads the topology of GPUs; keeps it while the driver is open.

    The path between two GPUs, which is symmetric, is read with the second of them.
    """

    def __init__(self) -> None:
        self._gpus: dict[str, GpuLinks] = {}
        # PCIe paths by uuids.
        self._paths: dict[frozenset[str], str] = {}

    def read(
        self, calls: Calls, uuid: str, handle: Any, bus: str, active: frozenset[int] | None
    ) -> Topology | None:
        """Return the topology of a GPU with this bus address and these active NVLinks, None if unknown.

        Raises as ``Calls.ask`` does.
        """
        calls.group = GROUP
        gpu = self._gpus.setdefault(uuid, GpuLinks(handle, bus))
        gpu.handle, gpu.bus_id, gpu.active = handle, bus, active
        if gpu.place is None:
            gpu.place = _read_place(calls, uuid, handle)
        # An inactive link has no remote end; a known one does not change.
        for link in sorted((active or frozenset()) - gpu.remotes.keys()):
            remote = _read_remote(calls, uuid, handle, link)
            if remote is not None:
                gpu.remotes[link] = remote
        gpu.counts = Counter(gpu.remotes.get(link) for link in active or ())
        peers = {other: self._peer(calls, uuid, other) for other in self._gpus if other != uuid}
        known = {other: link for other, link in peers.items() if link != PeerLink()}
        place = gpu.place or Topology()
        topology = Topology(numa_node=place.numa_node, cpus=place.cpus, peers=known)
        return topology if topology != Topology() else None

    def remove(self, uuid: str) -> None:
        """Remove a GPU that does not answer; it is then not a peer of others."""
        self._gpus.pop(uuid, None)

    def forget(self) -> None:
        """Read everything again: the driver was opened, and old handles are invalid."""
        self._gpus.clear()
        self._paths.clear()

    def _peer(self, calls: Calls, uuid: str, other: str) -> PeerLink:
        pair = frozenset({uuid, other})
        if pair not in self._paths:
            path = self._read_path(calls, uuid, other)
            if path is not None:
                self._paths[pair] = path
        gpu, peer = self._gpus[uuid], self._gpus[other]
        if gpu.incomplete or peer.incomplete:
            # The PCIe path alone would look like the one in use.
            return PeerLink()
        return PeerLink(pcie=self._paths.get(pair), nvlinks=_nvlinks(gpu, peer))

    def _read_path(self, calls: Calls, uuid: str, other: str) -> str | None:
        handle, other_handle = self._gpus[uuid].handle, self._gpus[other].handle
        try:
            with calls.about(f"{uuid} {other}", uuid):
                level = calls.ask(uuid, "nvmlDeviceGetTopologyCommonAncestor", handle, since=other_handle)
        except (DeviceLostError, DeviceHangsError):
            # The other GPU may be the reason. If this one is lost, its other calls fail, too.
            return None
        return COMMON_ANCESTORS.get(level)


def _read_place(calls: Calls, uuid: str, handle: Any) -> Topology | None:
    """Return NUMA node and CPUs of a GPU; None after a failure, so that they are read again."""
    # nvmlDeviceGetNumaNodeId is something else: the node of the GPU's own memory.
    failures = calls.records.failures
    nodes = _bits(calls.ask(uuid, "nvmlDeviceGetMemoryAffinity", handle, NODE_WORDS, NEAREST_NODE))
    cpus = _bits(calls.ask(uuid, "nvmlDeviceGetCpuAffinity", handle, CPU_WORDS))
    if calls.records.failures > failures:
        return None
    # If several nodes are nearest, none of them is the GPU's.
    return Topology(numa_node=nodes[0] if len(nodes) == 1 else None, cpus=_ranges(cpus))


def _read_remote(calls: Calls, uuid: str, handle: Any, link: int) -> str | None:
    """Return the remote end of an NVLink; None if unknown."""
    kind = calls.ask(uuid, REMOTE_TYPE, handle, link)
    if kind is None and calls.supports(uuid, REMOTE_TYPE, link):
        return None
    if kind not in {None, TO_GPU}:
        return SWITCH if kind == TO_SWITCH else OTHER_DEVICE
    # Without a type, a PCI address is still that of a GPU with a direct link.
    pci = calls.ask(uuid, REMOTE_PCI, handle, link)
    return None if pci is None else text_field(pci, "busId").lower()


def _nvlinks(gpu: GpuLinks, peer: GpuLinks) -> int | None:
    """Return the number of active links between two GPUs, direct or through switches; None if unknown."""
    if gpu.active is None or peer.active is None:
        return None
    if not peer.bus_id and gpu.counts.keys() - {SWITCH, OTHER_DEVICE}:
        # Direct links may lead to the peer, which has no known address.
        return None
    return gpu.counts[peer.bus_id.lower()] + min(gpu.counts[SWITCH], peer.counts[SWITCH])


def _bits(mask: Iterable[int] | None) -> list[int]:
    """Return the numbers of the bits that are set in words of 64 bits."""
    return [
        place * WORD_BITS + bit
        for place, word in enumerate(mask or ())
        for bit in range(WORD_BITS)
        if word >> bit & 1
    ]


def _ranges(numbers: list[int]) -> str:
    """Return ascending numbers in the kernel's list format: ``0-3,8``."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)
