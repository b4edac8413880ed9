"""Where GPUs sit: processors and memory near them, and the ways from one to another."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exporter.model import PeerLink, Topology
from exporter.nvml.driver.calls import Calls, DeviceHangsError, DeviceLostError
from exporter.nvml.readings.identity import bus_id

GROUP = "topology"
# The words of `nvidia-smi topo -m` for what two GPUs have in common at the nearest.
COMMON_ANCESTORS = {0: "PSB", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
# Masks come in words of 64 bits: room for 8192 processors and 1024 NUMA nodes, the most that Linux can have.
WORD_BITS = 64
CPU_WORDS, NODE_WORDS = 128, 16
NEAREST_NODE = 0
TO_GPU, TO_SWITCH = 0, 2
# In place of a bus address: a switch leads to every other GPU that is linked to one; or to no GPU at all.
SWITCH, ELSEWHERE = "switch", "elsewhere"
REMOTE_TYPE, REMOTE_PCI = "nvmlDeviceGetNvLinkRemoteDeviceType", "nvmlDeviceGetNvLinkRemotePciInfo"


@dataclass(slots=True)
class Seat:
    """What is kept of a GPU: how it is asked now, where it sits, and where its NVLinks lead.

    ``to`` counts the active links that lead to a bus address or to a switch.
    """

    handle: Any
    bus_id: str
    place: Topology | None = None
    links: dict[int, str] = field(default_factory=dict)
    active: frozenset[int] | None = None
    to: Counter[str | None] = field(default_factory=Counter)

    @property
    def unsure(self) -> bool:
        """Whether it has NVLinks, and does not say which are active now, or where an active one leads."""
        return bool(self.links) if self.active is None else not self.active <= self.links.keys()


class TopologyReader:
    """Reads where GPUs sit, once for as long as the driver is open.

    A pair is asked for when the second of the two is read: the way there is the way back.
    """

    def __init__(self) -> None:
        self._seats: dict[str, Seat] = {}
        self._pairs: dict[frozenset[str], str] = {}

    def read(
        self, calls: Calls, uuid: str, handle: Any, bus: str, active: frozenset[int] | None
    ) -> Topology | None:
        """Return where a GPU sits that is at that bus address and has these NVLinks active."""
        calls.group = GROUP
        seat = self._seats.setdefault(uuid, Seat(handle, bus))
        seat.handle, seat.bus_id, seat.active = handle, bus, active
        if seat.place is None:
            seat.place = _place(calls, uuid, handle)
        _follow_links(calls, uuid, seat)
        seat.to = Counter(seat.links.get(link) for link in active or ())
        peers = {other: self._peer(calls, uuid, other) for other in self._seats if other != uuid}
        told = {other: link for other, link in peers.items() if link != PeerLink()}
        place = seat.place or Topology()
        topology = Topology(numa_node=place.numa_node, cpus=place.cpus, peers=told)
        return topology if topology != Topology() else None

    def leave(self, uuid: str) -> None:
        """Ask nothing more about a GPU that does not answer: nobody has a way to it."""
        self._seats.pop(uuid, None)

    def forget(self) -> None:
        """Ask everything anew: the driver was opened, and its handles are others."""
        self._seats.clear()
        self._pairs.clear()

    def _peer(self, calls: Calls, uuid: str, other: str) -> PeerLink:
        pair = frozenset({uuid, other})
        if pair not in self._pairs:
            word = self._way(calls, uuid, other)
            if word is not None:
                self._pairs[pair] = word
        here, there = self._seats[uuid], self._seats[other]
        if here.unsure or there.unsure:
            # The way over PCIe would pass for the one that is used.
            return PeerLink()
        return PeerLink(pcie=self._pairs.get(pair), nvlinks=_nvlinks(here, there))

    def _way(self, calls: Calls, uuid: str, other: str) -> str | None:
        here, there = self._seats[uuid].handle, self._seats[other].handle
        try:
            with calls.about(f"{uuid} {other}", uuid):
                level = calls.ask(uuid, "nvmlDeviceGetTopologyCommonAncestor", here, since=there)
        except (DeviceLostError, DeviceHangsError):
            # It may be the other one: whether this GPU is lost is seen by what it says of itself.
            return None
        return COMMON_ANCESTORS.get(level)


def _place(calls: Calls, uuid: str, handle: Any) -> Topology | None:
    """Ask what is near a GPU; None where a question failed, so that it is asked again."""
    # What NVML calls the NUMA node of a device is the one that the device itself is, where it is one.
    failures = calls.failures()
    nodes = _bits(calls.ask(uuid, "nvmlDeviceGetMemoryAffinity", handle, NODE_WORDS, NEAREST_NODE))
    cpus = _bits(calls.ask(uuid, "nvmlDeviceGetCpuAffinity", handle, CPU_WORDS))
    if calls.failures() > failures:
        return None
    # Where the nearest memory is that of several nodes, none of them is the GPU's.
    return Topology(numa_node=nodes[0] if len(nodes) == 1 else None, cpus=_ranges(cpus))


def _follow_links(calls: Calls, uuid: str, seat: Seat) -> None:
    """Ask where active links lead; an inactive one does not know, and one that is known stays where it is."""
    for link in sorted(seat.active or ()):
        if link not in seat.links:
            remote = _remote(calls, uuid, seat.handle, link)
            if remote is not None:
                seat.links[link] = remote


def _remote(calls: Calls, uuid: str, handle: Any, link: int) -> str | None:
    kind = calls.ask(uuid, REMOTE_TYPE, handle, link)
    if kind is None and calls.supports(uuid, REMOTE_TYPE, link):
        return None
    if kind not in {None, TO_GPU}:
        return SWITCH if kind == TO_SWITCH else ELSEWHERE
    # Where the kind is not told, the address of a GPU still tells a direct link.
    pci = calls.ask(uuid, REMOTE_PCI, handle, link)
    return None if pci is None else bus_id(pci).lower()


def _nvlinks(here: Seat, there: Seat) -> int | None:
    """Count the active links between two GPUs, directly or through switches; None where it is not told."""
    if here.active is None or there.active is None:
        return None
    if not there.bus_id and here.to.keys() - {SWITCH, ELSEWHERE}:
        # Those that lead to a GPU may lead to this one, which does not say where it is.
        return None
    return here.to[there.bus_id.lower()] + min(here.to[SWITCH], there.to[SWITCH])


def _bits(mask: Iterable[int] | None) -> list[int]:
    """List the bits that are set in words of 64."""
    return [
        place * WORD_BITS + bit
        for place, word in enumerate(mask or ())
        for bit in range(WORD_BITS)
        if word >> bit & 1
    ]


def _ranges(numbers: list[int]) -> str:
    """Return ascending numbers in the form of Linux: ``0-3,8``."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


DRIVER = "bus/pci/drivers/nvidia"
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


class BoundDevices:
    """Compares the devices that are bound now with those at the time the library was opened."""

    def __init__(self, sys_root: Path | None) -> None:
        self._folder = None if sys_root is None else sys_root / DRIVER
        self._noted: frozenset[str] | None = None

    def note(self, bound: frozenset[str] | None) -> frozenset[str]:
        """Remember what was bound when the library was opened; return the addresses that no longer are.

        They are spelled as ``normalize_pci`` does. None is not known, and changes nothing.
        """
        if bound is None:
            return frozenset()
        before, self._noted = self._noted or frozenset(), bound
        return frozenset(map(normalize_pci, before - bound))

    def changed(self) -> bool:
        """Whether other devices are bound than were noted; False where that cannot be told."""
        now = self.now()
        return now is not None and self._noted is not None and now != self._noted

    def now(self) -> frozenset[str] | None:
        """Return what is bound at this moment, None where that cannot be told."""
        if self._folder is None:
            return None
        try:
            names = [path.name for path in self._folder.iterdir()]
        except OSError:
            # Not this driver, no sysfs, or the module is just being exchanged.
            return None
        return frozenset(name for name in names if ADDRESS.fullmatch(name))


def normalize_pci(address: str) -> str:
    """Return an address without the zeros that NVML puts before the domain."""
    domain, _, rest = address.lower().partition(":")
    return f"{domain.lstrip('0')}:{rest}"
