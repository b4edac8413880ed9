"""The two balances of a GPU in one poll: the share of each class in its time.

Pure functions of the facts about a GPU, which ``balance_facts.py`` takes from the rows of the join: rules 10
to 13 of ``docs/join.md``.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from exporter.model.balances import ALLOCATION_CLASSES, USE_CLASSES, AllocationClass, UseClass

WHOLE_GPU = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """The allocation of one device. Shares and the weight are parts of the whole physical GPU."""

    weight: float  # the part of the GPU's compute that the device is
    shares: tuple[float | None, ...] = ()  # of each holder; None if unknown
    holders_known: bool = True  # whether no other container may hold it
    # Whether new pods can get the part without a holder; None if unknown.
    offered: bool | None = True
    withdrawn: bool = False  # offered since its plugin started, and not now
    withheld: float = 0.0  # the part of what is offered and not held that new pods do not get


@dataclass(frozen=True, slots=True, kw_only=True)
class UseFacts:
    """The used parts of the physical GPU's compute in a poll with a new reading."""

    holders: float = 0.0  # of containers on devices that they hold
    others: float = 0.0  # of containers on devices that they do not hold
    unclear: float = 0.0  # of containers and processes of which that is unknown
    # The part of no known container or process outside of pods; None if nothing meters the GPU.
    unattributed: float | None = None
    holders_known: bool = True  # whether no holder may have a part of ``unattributed``


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """What one poll shows of a GPU."""

    devices: tuple[DeviceFacts, ...]
    read: bool = True  # False if only the identity of the device is known
    down: bool = False  # lost, or its driver is released
    layout_known: bool = True  # whether ``devices`` are all, with their weights
    use: UseFacts | None = None  # None without a new reading


def allocation(gpu: GpuFacts) -> dict[AllocationClass, float]:
    """Return the share of each class in the allocation of a GPU; they add up to 1 but for rounding."""
    parts = dict.fromkeys(ALLOCATION_CLASSES, 0.0)
    weights = sum(device.weight for device in gpu.devices)
    # A driver cannot give out more than the GPU: such weights are wrong in proportion.
    scale = 1 / max(weights, WHOLE_GPU)
    for device in gpu.devices:
        held = min(device.weight, sum(share for share in device.shares if share is not None))
        parts["held"] += held * scale
        for name, part in _not_held(gpu, device, device.weight - held):
            parts[name] += part * scale
    parts[_class_of_unpartitioned(gpu)] += max(WHOLE_GPU - weights * scale, 0.0)
    return parts


def _not_held(gpu: GpuFacts, device: DeviceFacts, rest: float) -> Iterator[tuple[AllocationClass, float]]:
    """Yield the classes of the rest of a device that no container holds, with the part of each."""
    if not gpu.read or not device.holders_known or None in device.shares:
        yield "unknown", rest
    elif gpu.down:
        yield "down", rest
    elif device.offered is None:
        yield "unknown", rest
    elif not device.offered:
        yield "withdrawn" if device.withdrawn else "not_offered", rest
    else:
        yield "withdrawn", rest * device.withheld
        yield "free", rest * (1 - device.withheld)


def _class_of_unpartitioned(gpu: GpuFacts) -> AllocationClass:
    """Return the class of the part of a GPU that no listed device has."""
    if not gpu.read or not gpu.layout_known:
        return "unknown"
    return "down" if gpu.down else "unpartitioned"


def use(facts: UseFacts | None, held: float) -> dict[UseClass, float]:
    """Return the share of each class in the use of a GPU, of which containers hold the part ``held``."""
    parts = dict.fromkeys(USE_CLASSES, 0.0)
    if facts is None:
        return parts | {"unmeasured": WHOLE_GPU}
    rest = facts.unattributed or 0.0
    others = facts.others + (rest if facts.holders_known else 0.0)
    unclear = facts.unclear + (0.0 if facts.holders_known else rest)
    # Meters of processes round up, and those of sharing systems measure another stretch of time.
    scale = 1 / max(facts.holders + others + unclear, WHOLE_GPU)
    parts["holders"], parts["others"] = facts.holders * scale, others * scale
    parts["unmeasured"] = unclear * scale
    left = max(WHOLE_GPU - sum(parts.values()), 0.0)
    if facts.unattributed is None:
        parts["unmeasured"] += left
        return parts
    # Use that may be the holders' leaves less of what they hold idle for certain.
    parts["idle_held"] = min(left, max(held - parts["holders"] - parts["unmeasured"], 0.0))
    parts["idle_free"] = left - parts["idle_held"]
    return parts
