"""Converts the readings of a GPU back to the driver's answers, by the tables of readings.

A value that was read becomes an answer; a missing one becomes an unsupported call.
"""

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from operator import attrgetter
from typing import Any

from exporter.demo.nvml.links import health_mask
from exporter.documents import Signed
from exporter.model import Bar1, Fabric, GpuReading, MigReading
from exporter.model.readings import RECOVERY_ACTIONS
from exporter.nvml.driver.records import Call
from exporter.nvml.readings import device, fabric, fields
from exporter.nvml.readings.answers import BAR1, MEMORY, CallRow, bar1, first_of_two, memory
from exporter.nvml.readings.paths import Path

Answers = dict[str, tuple[Signed, ...]]
Numbers = tuple[int, ...]

# The library's symbols, if they differ from the binding's names.
SYMBOLS = {
    "nvmlDeviceGetMemoryInfo": "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetComputeRunningProcesses": "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses": "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses": "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetPciInfo": "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetAttributes": "nvmlDeviceGetAttributes_v2",
    "nvmlDeviceGetGpuInstanceProfileInfo": "nvmlDeviceGetGpuInstanceProfileInfoV",
    "nvmlDeviceGetNvLinkRemotePciInfo": "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    "nvmlDeviceGetC2cModeInfoV1": "nvmlDeviceGetC2cModeInfoV",
}
# Its argument is a field of the struct that it fills.
TEMPERATURE_V = "nvmlDeviceGetTemperatureV"
SAMPLING_MICROSECONDS = 167_000
# Answers that a reader takes as an unknown number and an unknown flag.
NO_NUMBER, NO_FLAG = 2**32 - 1, 2
# The state of a GPU without a fabric, and its return code.
NO_FABRIC: Numbers = (0, 0)
WORDS: Mapping[str, int] = {
    word: number for words in (device.COMPUTE_MODES, RECOVERY_ACTIONS) for number, word in enumerate(words)
}
ALL_ROWS = tuple(
    row
    for row in (*device.ROWS, *device.ENERGY_ROWS, *device.SLOW_ROWS, *device.FIXED_ROWS)
    if row is not MEMORY
)


def answers_of(gpu: GpuReading, missing: Collection[str]) -> tuple[Answers, tuple[str, ...]]:
    """Return the driver's answers for a GPU, and the calls that it does not support.

    ``missing`` are symbols that are unsupported with any argument.
    """
    answers: Answers = {}
    unsupported = set(missing)
    # Without a value they may not have been read: that does not make them unsupported.
    throughput = (row for row in device.THROUGHPUT_ROWS if _at(gpu, row.into) is not None)
    for call, numbers in (*_of_calls(gpu, (*ALL_ROWS, *throughput)), *_of_fields(gpu)):
        if call.partition(":")[0] in missing:
            continue
        if numbers is None:
            unsupported.add(call)
        else:
            answers[call] = tuple(map(Signed, numbers))
    return answers, tuple(sorted(unsupported))


def answers_of_mig(mig: MigReading) -> tuple[Answers, tuple[str, ...]]:
    """Return the answers and unsupported calls of a MIG device, except those for processes and memory."""
    (call,) = (_symbol(call) for call in BAR1.calls)
    numbers = None if mig.bar1 is None else _bar1(mig.bar1)
    return ({}, (call,)) if numbers is None else ({call: tuple(map(Signed, numbers))}, ())


def _of_calls(gpu: GpuReading, rows: tuple[CallRow, ...]) -> Iterator[tuple[str, Numbers | None]]:
    for row in rows:
        value = _at(gpu, row.into)
        numbers = None if value is None else ENCODERS.get(row.decode, _plain)(value)
        if row.decode is fabric.decode_fabric and value is None and row.calls[0][0] not in gpu.unsupported:
            numbers = NO_FABRIC
        for call in row.calls:
            yield _symbol(call), numbers


def _of_fields(gpu: GpuReading) -> Iterator[tuple[str, Numbers | None]]:
    """Yield the fields; of each row, only the first one with a unit that divides the value has an answer."""
    links = gpu.nvlink.links if gpu.nvlink is not None else None
    states_known = gpu.nvlink is not None and gpu.nvlink.active is not None
    c2c_links = gpu.c2c.links if gpu.c2c is not None else None
    for row in (*fields.ROWS, *fields.SLOW_ROWS, *fields.link_rows(links or 0, c2c_links or 0)):
        if row.into[0] == "link_states":
            if not states_known:
                yield _field(row.fields[0]), None
            continue
        value = _at(gpu, row.into)
        encode = _bit_error_ratio if row.decode is fields.bit_error_ratio else _plain
        number = None if value is None else encode(value)[0]
        chosen = None if number is None else next(field for field in row.fields if not number % field.unit)
        for field in row.fields:
            yield _field(field), (number // field.unit,) if number is not None and field is chosen else None
    if not states_known:
        yield "nvmlDeviceGetNvLinkState", None


def _symbol(call: Call) -> str:
    """Return the key of a call in a scenario: ``symbol:argument:…``."""
    name, arguments = call
    given = () if name == TEMPERATURE_V else arguments
    return ":".join((SYMBOLS.get(name, name), *map(str, given)))


def _field(field: fields.Field) -> str:
    return f"field:{field.number}:{field.scope}" if field.scope else f"field:{field.number}"


def _at(reading: Any, path: Path) -> Any:
    """Return the value at a row's path in a reading, None if the path ends early."""
    for step in path:
        if reading is None:
            return None
        reading = reading.get(step) if isinstance(reading, Mapping) else getattr(reading, step)
    return reading


def _plain(value: Any) -> Numbers:
    return (WORDS[value] if isinstance(value, str) else int(value),)


def _bar1(bar1: Bar1) -> Numbers:
    return bar1.total, bar1.used, bar1.total - bar1.used


def _fabric(read: Fabric) -> Numbers:
    """Return state, return code, clique, health, and the domain's UUID byte by byte.

    A failed probe is complete, with an error.
    """
    failed = read.state == "failed"
    state = fabric.STATES.index("completed" if failed or not read.state else read.state) + 1
    cluster = uuid.UUID(read.cluster).bytes if read.cluster else b""
    health = health_mask(read.problems, read.misconfiguration)
    return state, int(failed), read.clique or 0, health, *cluster


def _bit_error_ratio(ratio: float) -> Numbers:
    """Return the code of a ratio: a mantissa below 16, and the exponent."""
    if not ratio:
        return (fields.NO_BIT_ERRORS,)
    digits, _, exponent = f"{ratio:.1e}".partition("e-")
    mantissa, places = round(float(digits) * 10), int(exponent or 0) + 1
    if not mantissa % 10:
        mantissa, places = mantissa // 10, places - 1
    return (mantissa << 8 | places,)


def _histogram(banks: Mapping[str, int]) -> Numbers | None:
    names = ("max", "high", "partial", "low", "none")
    return _filled([banks.get(name) for name in names], NO_NUMBER) if banks else None


def _pair(
    nothing: int, read: Callable[[Any], tuple[int | None, int | None]]
) -> Callable[[Any], Numbers | None]:
    """Return the encoder of two numbers of a record; an unknown one is ``nothing``, two of them no answer."""

    def encode(record: Any) -> Numbers | None:
        pair = read(record)
        return None if pair == (None, None) else _filled(pair, nothing)

    return encode


def _filled(values: Collection[int | None], nothing: int) -> Numbers:
    return tuple(nothing if value is None else int(value) for value in values)


# The encoder of each decoder whose answer is not a single number.
ENCODERS: Mapping[Callable[..., Any], Callable[[Any], Numbers | None]] = {
    bar1: _bar1,
    first_of_two: lambda percent: (percent, SAMPLING_MICROSECONDS),
    device.utilization: _pair(NO_NUMBER, attrgetter("utilization_percent", "memory_copy_percent")),
    device.encoder_sessions: attrgetter("count", "average_fps", "average_latency_microseconds"),
    fabric.decode_fabric: _fabric,
    device.repair_status: _pair(NO_FLAG, attrgetter("channel_repair_pending", "tpc_repair_pending")),
    memory: attrgetter("total", "used", "free"),
    device.constraints: _pair(NO_NUMBER, lambda limits: (limits.get("min"), limits.get("max"))),
    device.ecc_mode: _pair(NO_FLAG, attrgetter("enabled", "pending")),
    device.histogram: _histogram,
    device.throughput: lambda rate: (rate // device.KILOBYTE,),
}
