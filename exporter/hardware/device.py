"""What one physical GPU says: the table of its readings and how each answer is understood.

A row names the field of GpuReading, the calls to try (newest first), and the function that turns the
answer into the field's unit or into None where the answer makes no sense.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pynvml

from exporter.hardware.calls import Call, Calls
from exporter.model import GpuIdentity, Memory
from exporter.model.hardware import ComputeMode
from exporter.model.readings import Clock

FIELD_MEMORY_TEMPERATURE = 82
HOTTEST_BELIEVABLE = 200
CLOCKS: tuple[tuple[Clock, int], ...] = (("graphics", 0), ("sm", 1), ("memory", 2), ("video", 3))
COMPUTE_MODES: dict[int, ComputeMode] = {
    0: "default",
    1: "exclusive_thread",
    2: "prohibited",
    3: "exclusive_process",
}
ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
MEMORY_CALLS: tuple[Call, ...] = (
    ("nvmlDeviceGetMemoryInfo", (pynvml.nvmlMemory_v2,)),
    ("nvmlDeviceGetMemoryInfo", ()),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One reading: the field it fills, the calls that can fill it, and the meaning of the answer."""

    field: str
    calls: tuple[Call, ...]
    decode: Callable[[Any], Any]


def memory(answer: Any) -> Memory | None:
    """Decode bytes; only the second version of the call tells reserved memory apart from used."""
    total, used, free = answer.total, answer.used, answer.free
    if total <= 0 or used > total:
        return None
    return Memory(total=total, used=used, free=free, reserved=getattr(answer, "reserved", None))


def percent(answer: int) -> int | None:
    """Keep a share of time; a value past 100 is a driver's garbage, not a busy device."""
    return answer if 0 <= answer <= 100 else None


def celsius(answer: int) -> int | None:
    """Keep what a thermometer can show: boards without a sensor answer 0 or a sentinel."""
    return answer if 0 < answer < HOTTEST_BELIEVABLE else None


def memory_temperature(answer: Any) -> int | None:
    """Read degrees from the member that is right whatever the type says: one driver branch mislabels it."""
    return celsius(answer[0].value.uiVal) if answer[0].nvmlReturn == 0 else None


def same(answer: Any) -> Any:
    """Take the answer as it is."""
    return answer


ROWS = (
    Row("memory", MEMORY_CALLS, memory),
    Row("power_milliwatts", (("nvmlDeviceGetPowerUsage", ()),), same),
    Row("energy_millijoules", (("nvmlDeviceGetTotalEnergyConsumption", ()),), same),
    Row(
        "temperature_celsius",
        (("nvmlDeviceGetTemperatureV", (0,)), ("nvmlDeviceGetTemperature", (0,))),
        celsius,
    ),
    Row(
        "memory_temperature_celsius",
        (("nvmlDeviceGetFieldValues", ((FIELD_MEMORY_TEMPERATURE,),)),),
        memory_temperature,
    ),
    Row("fan_percent", (("nvmlDeviceGetFanSpeed", ()),), same),
    Row("pcie_replays", (("nvmlDeviceGetPcieReplayCounter", ()),), same),
    Row("compute_mode", (("nvmlDeviceGetComputeMode", ()),), COMPUTE_MODES.get),
)


def identify(calls: Calls, handle: Any, uuid: str, index: int) -> GpuIdentity:
    """Ask what never changes about a GPU."""
    pci = calls.ask(uuid, "nvmlDeviceGetPciInfo", handle)
    return GpuIdentity(
        uuid=uuid,
        index=index,
        minor=calls.ask(uuid, "nvmlDeviceGetMinorNumber", handle),
        model=calls.ask(uuid, "nvmlDeviceGetName", handle) or "",
        pci_bus_id=_bus_id(pci) if pci is not None else "",
        serial=calls.ask(uuid, "nvmlDeviceGetSerial", handle),
        architecture=ARCHITECTURES.get(calls.ask(uuid, "nvmlDeviceGetArchitecture", handle)),
    )


def readings(calls: Calls, uuid: str, handle: Any) -> dict[str, Any]:
    """Ask every row of one device; what it does not say is None and costs nothing else."""
    found = {row.field: _read(calls, uuid, handle, row) for row in ROWS}
    return found | _utilization(calls, uuid, handle) | {"clocks_megahertz": _clocks(calls, uuid, handle)}


def _read(calls: Calls, uuid: str, handle: Any, row: Row) -> Any:
    answer = calls.first(uuid, handle, row.calls)
    return None if answer is None else row.decode(answer)


def _utilization(calls: Calls, uuid: str, handle: Any) -> dict[str, int | None]:
    answer = calls.ask(uuid, "nvmlDeviceGetUtilizationRates", handle)
    if answer is None:
        return {}
    return {
        "utilization_percent": percent(answer.gpu),
        "memory_copy_percent": percent(answer.memory),
    }


def _clocks(calls: Calls, uuid: str, handle: Any) -> dict[Clock, int]:
    found = {name: calls.ask(uuid, "nvmlDeviceGetClockInfo", handle, number) for name, number in CLOCKS}
    return {name: megahertz for name, megahertz in found.items() if megahertz is not None}


def _bus_id(pci: Any) -> str:
    # The binding's own way to the field raises where the bytes are no UTF-8.
    raw: bytes = object.__getattribute__(pci, "busId")
    return raw.decode(errors="replace")
