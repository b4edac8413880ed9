"""Memory of GPUs by cgroup: what is charged to each, and the limits that the kernel or the driver enforces.

Two backends enforce the same limits: the kernel's controller ``dmem`` (Linux 6.14), with a file for each
quantity in a cgroup's directory, and ``misc``, in which NVIDIA's driver does its own accounting (R615, on
kernels without ``dmem``). Sources: Documentation/admin-guide/cgroup-v2.rst of the kernel ("DMEM"), and
https://docs.nvidia.com/deploy/mps/latest/mpsv3-memory-partitioning.html
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from exporter.model.readings import CgroupMemory

Backend = Literal["dmem", "misc"]
Zone = Literal["safe", "borrowing", "full"]
# The driver's memory for the context of one process, at most: other meters may or may not count it.
CONTEXT_BYTES = 512 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Cgroup:
    """A cgroup of the node."""

    path: str  # below the root of the hierarchy, such as ``/kubepods.slice``
    # (pod uid, container id) of the pods that the path names, innermost first; the uid may be "".
    places: tuple[tuple[str, str], ...] = ()
    memory: Mapping[str, CgroupMemory] = field(default_factory=dict)  # by PCI address; empty without files


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupTree:
    """The cgroups of the node that may have GPU memory, or limits of it."""

    root: str = ""  # where the hierarchy is mounted
    capacity: Mapping[str, int] = field(default_factory=dict)  # bytes by PCI address; empty without ``dmem``
    cgroups: Mapping[str, Cgroup] = field(default_factory=dict)  # by path
    own: frozenset[str] = frozenset()  # paths of the exporter's own cgroups
    problems: tuple[str, ...] = ()  # what could not be read, and why


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """The memory of one container on one GPU as its cgroup meters it, with the limits in force; in bytes."""

    backend: Backend
    used: int | None
    guaranteed: int | None = None  # soft limit; None if no limit is set
    limit: int | None = None  # hard limit; None if none is set
    above: bool = False  # whether the hard limit is that of a cgroup above the container's
    shared: bool = False  # whether it is one for several containers together

    @property
    def zone(self) -> Zone | None:
        """Where the use is between the limits; None without limits, or if the use is unknown."""
        return zone_of(self.used, self.guaranteed, self.limit)


def zone_of(used: int | None, guaranteed: int | None, limit: int | None) -> Zone | None:
    """Return the zone of a use (NVIDIA: safe, pressure, failure); None if it or the limits are unknown."""
    if used is None or guaranteed is None:
        return None
    if limit is not None and used >= limit:
        return "full"
    return "safe" if used <= guaranteed else "borrowing"


def unexplained_difference(by_processes: int, charged: int, processes: int) -> int | None:
    """Return the bytes by which two meters differ, None if their contexts may explain that."""
    difference = by_processes - charged
    return difference if abs(difference) > CONTEXT_BYTES * max(processes, 1) else None


def pci_key(address: str) -> str:
    """Return a PCI address with a domain of four digits or more, in lower case.

    NVML and the keys of NVIDIA's driver write eight digits, those of the other drivers four.
    """
    domain, _, rest = address.lower().partition(":")
    return f"{domain.lstrip('0').rjust(4, '0')}:{rest}"
