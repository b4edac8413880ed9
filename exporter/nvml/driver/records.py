"""What is remembered of the calls into the driver, whichever thread made them."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

# A call: its name, and its arguments without the device.
Call = tuple[str, tuple[Any, ...]]
CORE = "core"
# The group of a call for several groups, until its cost is divided.
SHARED = ""
NOT_SUPPORTED = "not supported by this GPU or its driver"


class Reasons:
    """The last error of each group by GPU: of this sweep, and of readings that are not asked in every one."""

    def __init__(self) -> None:
        self._now: dict[str, dict[str, str]] = defaultdict(dict)
        self._kept: dict[str, dict[str, str]] = defaultdict(dict)

    def begin(self, gpu: str, *, slow: bool) -> None:
        """Drop the errors of the last sweep; with ``slow``, also those that are kept."""
        self._now.pop(gpu, None)
        if slow:
            self._kept.pop(gpu, None)

    def note(self, gpu: str, group: str, error: str) -> None:
        """Set the last error of a group."""
        self._now[gpu][group] = error

    def pop(self, gpu: str, group: str) -> str | None:
        """Remove and return the last error of a group in this sweep."""
        return self._now[gpu].pop(group, None)

    def keep(self, gpu: str, group: str) -> None:
        """Keep the last error of a group until ``begin`` with ``slow``."""
        if (error := self._now[gpu].get(group)) is not None:
            self._kept[gpu][group] = error

    def of(self, gpu: str) -> dict[str, str]:
        """Return the errors of a GPU by group."""
        return self._kept.get(gpu, {}) | self._now.get(gpu, {})


class CallRecords:
    """Failures, unsupported calls and costs since start."""

    def __init__(self) -> None:
        # Failures by (GPU uuid, call, error name), those of MIG devices with their GPU. Unsupported calls and
        # empty answers are not failures.
        self.errors: Counter[tuple[str, str, str]] = Counter()
        self.failures = 0
        # GPU uuid by uuid of the MIG device or vGPU.
        self.parents: dict[str, str] = {}
        # Calls and the time spent in them, by group.
        self.asked: Counter[str] = Counter()
        self.seconds: dict[str, float] = defaultdict(float)
        # Time for field values in the current sweep, as reported by the driver, by group.
        self.driver_microseconds: Counter[str] = Counter()
        self.reasons = Reasons()
        # Changes with the set of unsupported calls.
        self.generation = 0
        # Answered calls by device.
        self.answered: dict[str, set[Call]] = defaultdict(set)
        # Name of the call that has not returned, by excluded place.
        self.hanging_calls: dict[str, str] = {}
        # Unsupported calls by device, with their group.
        self._unsupported: dict[str, dict[Call, str]] = defaultdict(dict)

    @property
    def hanging(self) -> frozenset[str]:
        """Places of the calls that have not returned, in abandoned threads."""
        return frozenset(self.hanging_calls)

    def gpu_of(self, device: str) -> str:
        """Return the uuid of the GPU that a device is, or is a part of."""
        return self.parents.get(device, device)

    def count(self, device: str, call: str, error: str, group: str) -> None:
        """Count a failure of a device."""
        gpu = self.gpu_of(device)
        self.errors[gpu, call, error] += 1
        self.failures += 1
        self.reasons.note(gpu, group, error)

    def has_refused(self, device: str, call: Call) -> bool:
        """Return whether a device does not support a call."""
        return call in self._unsupported.get(device, ())

    def refuse(self, device: str, call: Call, group: str) -> None:
        """Remember that a device does not support a call."""
        self.generation += 1
        self._unsupported[device][call] = group

    def unsupported(self, device: str) -> tuple[str, ...]:
        """Return the calls that the device does not support, whatever their arguments."""
        names = {name for name, _ in self._unsupported.get(device, ())}
        return tuple(sorted(names - {name for name, _ in self.answered.get(device, ())}))

    def withheld(self, gpu: str) -> dict[str, str]:
        """Return by group why some readings of a GPU are missing: not supported, or the last error."""
        missing = dict.fromkeys(self._unsupported.get(gpu, {}).values(), NOT_SUPPORTED)
        missing.pop(SHARED, None)
        return missing | self.reasons.of(gpu)

    def note_until_due(self, device: str, group: str) -> None:
        """Keep the last error of a group in ``withheld`` until slow readings of the GPU are due again."""
        self.reasons.keep(self.gpu_of(device), group)

    def forget_unsupported(self, device: str | None = None, name: str | None = None) -> None:
        """Try unsupported calls again: of all devices, of one, or one call without arguments of one."""
        self.generation += 1
        if device is None:
            self._unsupported.clear()
            self.answered.clear()
        elif name is not None:
            self._unsupported[device].pop((name, ()), None)
        else:
            self._unsupported.pop(device, None)
            self.answered.pop(device, None)

    def share(self, device: str, groups: Mapping[str, int]) -> None:
        """Divide what is recorded for SHARED; ``groups`` has the number of readings of each group.

        The time is divided by readings, a failure counts for each group, and the call counts once, as core.
        """
        gpu = self.gpu_of(device)
        reason = self.reasons.pop(gpu, SHARED)
        spent = self.seconds.pop(SHARED, 0.0)
        self.asked[CORE] += self.asked.pop(SHARED, 0)
        readings = sum(groups.values())
        for group, count in groups.items():
            self.seconds[group] += spent * count / readings
            if reason is not None:
                self.reasons.note(gpu, group, reason)
