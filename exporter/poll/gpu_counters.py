"""The counters of GPUs: which of them are believed in a reading, and when a GPU was restarted."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

from exporter.model import GpuReading, MigReading
from exporter.poll.counter import OVERSHOOT, GpuCounter, most_millijoules

# Bounds per second, wide enough for the next generations of GPUs.
_LINK_BYTES: Final = 1e13
_PCIE_BYTES: Final = 1e12
_NANOSECONDS: Final = OVERSHOOT * 1e9
_ERRORS: Final = 1e6
_PACKETS: Final = 1e9
_CYCLES: Final = 1e14
_GPU: Final = ""  # stands for the GPU where its MIG devices have their uuid
Record = TypeVar("Record", GpuReading, MigReading)


class _CounterField(NamedTuple):
    """The counters in one field of a reading."""

    path: tuple[str, ...]
    per_second: float  # the most that one may rise by in a second
    quick: bool = False  # whether they are read in every sweep; the others are kept between two reads
    restarts: bool = False  # whether they begin again when the GPU is initialized
    cleared: bool = False  # whether an administrator can clear them, too


_ENERGY: Final = _CounterField(("energy_millijoules",), 0.0, restarts=True)
_KINDS: Final = (
    _ENERGY,
    _CounterField(("violations_nanoseconds",), _NANOSECONDS, quick=True, restarts=True),
    _CounterField(("pcie_replays",), _ERRORS, restarts=True),
    _CounterField(("traffic_bytes",), _LINK_BYTES, quick=True),
    _CounterField(("profiling", "cycles"), _CYCLES, quick=True),
    _CounterField(("profiling", "bytes_total"), _PCIE_BYTES, quick=True),
    _CounterField(("nvlink", "errors"), _PACKETS, restarts=True, cleared=True),
    _CounterField(("nvlink", "packet_errors"), _PACKETS),
    _CounterField(("nvlink", "recoveries"), _ERRORS),
    _CounterField(("c2c", "errors"), _PACKETS),
    _CounterField(("ecc", "errors"), _ERRORS, restarts=True, cleared=True),
    _CounterField(("ecc", "by_location"), _ERRORS),
)
# A counter: uuid of the MIG device, or _GPU; field; and key in that field.
_CounterKey = tuple[str, _CounterField, Any]
_ENERGY_KEY: Final[_CounterKey] = (_GPU, _ENERGY, None)


class GpuCounters:
    """The counters of one GPU and of its MIG devices."""

    def __init__(self) -> None:
        # If the last reading shows a restart, the Unix time of the first reading after it.
        self.restarted: float | None = None
        self._counters: dict[_CounterKey, GpuCounter] = {}
        self._read_at: float | None = None
        self._slow_read_at: float | None = None
        # Whether the GPU did not answer since the reading before; with energy, since that was read.
        self._silent = False
        # Unix time of the first of the readings in which a counter is low.
        self._low_since: float | None = None

    @property
    def shows_restarts(self) -> bool:
        """Whether the GPU has a counter that only a restart sets back."""
        return any(kind.restarts and not kind.cleared for _, kind, _ in self._counters)

    def take(self, reading: GpuReading) -> GpuReading:
        """Return the reading without the counters that are not believed."""
        self.restarted = None
        if not reading.up:
            self._silent = True
            return reading
        new = reading.read_monotonic != self._read_at
        slow = new and (reading.slow_read_at is None or reading.slow_read_at != self._slow_read_at)
        self._read_at, self._slow_read_at = reading.read_monotonic, reading.slow_read_at
        read = {kind for kind in _KINDS if (new if kind.quick else slow)} - {_ENERGY}
        if new and not reading.energy_kept:
            read.add(_ENERGY)
        low, again = self._take_all(reading, read)
        if low or again:
            self._low_since = reading.read_at if self._low_since is None else self._low_since
        if self._is_restart(low, again):
            self.restarted = self._low_since
            self._counters.clear()
            self._take_all(reading, read)
        if not low or self.restarted is not None:
            self._low_since = None
        self._silent = self._silent and _ENERGY_KEY in self._counters and _ENERGY not in read
        return self._believed(reading)

    def _take_all(
        self, reading: GpuReading, read: Collection[_CounterField]
    ) -> tuple[set[_CounterField], set[_CounterField]]:
        """Take all values, of which those of the kinds in ``read`` are new.

        Return the kinds with a low counter: those that may have begun again, and those that have.
        """
        low: set[_CounterField] = set()
        again: set[_CounterField] = set()
        at, most_energy = reading.read_monotonic, most_millijoules(reading)
        for counter_key, value in _counts(reading):
            _, kind, key = counter_key
            rises = kind is _ENERGY
            counter = self._counters.setdefault(counter_key, GpuCounter(rises=rises))
            taken = kind in read or not counter.knows(value)
            if taken:
                per_second = most_energy if rises else kind.per_second
                counter.take(value, at, per_second, outage=self._silent)
            if kind.restarts and not _is_aggregate(key):
                if counter.low:
                    low.add(kind)
                if taken and counter.began_again:
                    again.add(kind)
        return low, again

    def _is_restart(self, low: set[_CounterField], again: set[_CounterField]) -> bool:
        """Return whether the GPU was restarted, which takes two signs.

        A counter is low, and it goes on from there, another kind is low, or the GPU did not answer meanwhile.
        If energy is counted, it must be low.
        """
        if _ENERGY_KEY in self._counters:
            return _ENERGY in again or (_ENERGY in low and len(low | again) > 1)
        return len(again) > 1 or any(not kind.cleared for kind in again)

    def _believed(self, reading: GpuReading) -> GpuReading:
        believed = self._without_doubts(_GPU, reading)
        if not believed.mig:
            return believed
        mig = tuple(self._without_doubts(device.uuid, device) for device in believed.mig)
        owners = {_GPU, *(device.uuid for device in mig)}
        self._counters = {key: counter for key, counter in self._counters.items() if key[0] in owners}
        return believed if mig == believed.mig else replace(believed, mig=mig)

    def _without_doubts(self, owner: str, record: Record) -> Record:
        for kind in _KINDS:
            values = _values(record, kind.path)
            doubted = {
                key for key, value in values.items() if not self._counters[owner, kind, key].believes(value)
            }
            if doubted:
                record = _without(record, kind.path, doubted)
        return record


class NodeCounters:
    """The counters of all GPUs of the node."""

    def __init__(self) -> None:
        self._gpus: dict[str, GpuCounters] = {}

    def advance(self, gpus: Iterable[GpuReading]) -> dict[str, GpuReading]:
        """Return the readings of a poll by uuid, without counters that are not believed.

        GPUs that are gone are forgotten.
        """
        readings = {gpu.identity.uuid: gpu for gpu in gpus}
        self._gpus = {uuid: self._gpus.get(uuid, GpuCounters()) for uuid in readings}
        return {uuid: self._gpus[uuid].take(reading) for uuid, reading in readings.items()}

    def of_gpu(self, uuid: str) -> GpuCounters:
        return self._gpus.get(uuid) or GpuCounters()


def _counts(reading: GpuReading) -> Iterator[tuple[_CounterKey, int]]:
    """Yield all values of counters, each with its owner, its kind and its key."""
    records: list[tuple[str, GpuReading | MigReading]] = [(_GPU, reading)]
    records += [(mig.uuid, mig) for mig in reading.mig or ()]
    for owner, record in records:
        for kind in _KINDS:
            for key, value in _values(record, kind.path).items():
                yield (owner, kind, key), value


def _is_aggregate(key: Any) -> bool:
    """Return whether a counter of ECC errors outlives a restart."""
    return isinstance(key, tuple) and "aggregate" in key


def _values(record: GpuReading | MigReading, path: tuple[str, ...]) -> Mapping[Any, int]:
    """Return the counters in a field by their key, None for the only one."""
    value: Any = record
    for name in path:
        value = getattr(value, name, None)
    if value is None:
        return {}
    return value if isinstance(value, Mapping) else {None: value}


def _without(record: Any, path: tuple[str, ...], keys: Collection[Any]) -> Any:
    """Return a record in whose field these counters are unknown."""
    name, *rest = path
    value = getattr(record, name)
    if rest:
        return replace(record, **{name: _without(value, tuple(rest), keys)})
    if not isinstance(value, Mapping):
        return replace(record, **{name: None})
    return replace(record, **{name: {key: count for key, count in value.items() if key not in keys}})
