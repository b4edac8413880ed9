"""The ``amdsmi`` library of ROCm, if it is installed: readings that the files lack."""

import contextlib
import importlib
import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from exporter.amd.sysfs_file import CardSlowError, Files
from exporter.model import GpuReading
from exporter.model.bounds import (
    ALL_ONES,
    IMPOSSIBLE_VALUE,
    MEMORY_ERRORS,
    MILLIJOULES,
    MILLIWATTS,
    Bound,
    bounded,
)
from exporter.model.readings import Ecc, EccScope, EccSeverity, PowerLimit

MODULE, ECC = "amdsmi", "amdsmi_get_gpu_total_ecc_count"
MICROJOULES_PER_MILLIJOULE = 1000
MICROWATTS_PER_MILLIWATT = 1000
LIMITS: dict[PowerLimit, str] = {
    "enforced": "power_cap",
    "default": "default_power_cap",
    "min": "min_power_cap",
    "max": "max_power_cap",
}
COUNTS: dict[tuple[EccSeverity, EccScope], str] = {
    ("corrected", "volatile"): "correctable_count",
    ("uncorrected", "volatile"): "uncorrectable_count",
}


class AmdSmi:
    """amdsmi, opened once, when a reading first lacks values that it has.

    It is an optional dependency: without its native library, its import prints and raises any error.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._module: Any = None
        self._tried = False
        # By PCI address.
        self._handles: dict[str, Any] = {}
        # Addresses of GPUs with energy in the files. The library counts in another unit, so that the counter
        # would jump if it replaced the files after a failure.
        self._energy_by_files: set[str] = set()

    def fill(self, address: str, reading: GpuReading) -> GpuReading:
        """Return the reading of the GPU at a PCI address, with missing values from the library."""
        if reading.energy_millijoules is not None:
            self._energy_by_files.add(address)
        no_energy = address not in self._energy_by_files
        if not reading.up or not (no_energy or reading.ecc is None or not reading.power_limits_milliwatts):
            return reading
        handle = self._handle(address)
        if handle is None:
            return reading
        if no_energy:
            energy = self._decoded("amdsmi_get_energy_count", handle, _energy, MILLIJOULES)
            reading = replace(reading, energy_millijoules=energy)
        if reading.ecc is None:
            reading = replace(reading, ecc=self._decoded(ECC, handle, _ecc, MEMORY_ERRORS))
        if not reading.power_limits_milliwatts:
            limits = self._decoded("amdsmi_get_power_cap_info", handle, _limits, MILLIWATTS)
            reading = replace(reading, power_limits_milliwatts=limits or {})
        return reading

    def close(self) -> None:
        """Shut the library down, unless a thread hangs, possibly in it; it is not opened again."""
        if self._module is not None and not self._files.hanging:
            self._ask(self._module, "amdsmi_shut_down")
        self._module, self._handles = None, {}

    def _handle(self, address: str) -> Any:
        if not self._tried:
            # It queries all GPUs, so another GPU than this one may hang.
            with contextlib.suppress(CardSlowError), self._files.about(MODULE):
                self._module, self._handles = self._open()
                self._tried = True
        return self._handles.get(address)

    def _open(self) -> tuple[Any, dict[str, Any]]:
        """Return the opened library and its handles by PCI address; None and {} if it cannot be used."""
        handles: dict[str, Any] = {}
        try:
            # Its import may print to standard output.
            with contextlib.redirect_stdout(io.StringIO()):
                module = importlib.import_module(MODULE)
            with self._files.waiting("amdsmi_init"):
                module.amdsmi_init()
        except Exception:  # noqa: BLE001 - ROCm is not installed, or does not work
            return None, handles
        for handle in self._ask(module, "amdsmi_get_processor_handles") or ():
            address = self._ask(module, "amdsmi_get_gpu_device_bdf", handle)
            if isinstance(address, str):
                handles[address.lower()] = handle
        return module, handles

    def _decoded(self, name: str, handle: Any, decode: Callable[[Any], Any], bound: Bound) -> Any:
        """Return the decoded answer of a call; None for one of an unknown form, or an impossible one."""
        answer = self._ask(self._module, name, handle)
        try:
            value, impossible = bounded(None if answer is None else decode(answer), bound)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            self._count(name, type(error).__name__)
            return None
        if impossible:
            self._count(name, IMPOSSIBLE_VALUE)
        return value

    def _ask(self, module: Any, name: str, *arguments: Any) -> Any:
        try:
            with self._files.waiting(name):
                return getattr(module, name)(*arguments)
        except Exception as error:  # noqa: BLE001 - other calls may succeed
            self._count(name, type(error).__name__)
        return None

    def _count(self, name: str, error: str) -> None:
        self._files.errors[self._files.context.device, name, error] += 1


def _positive(value: float) -> int | None:
    """Return a positive integer; the second GPU of a board reports 0, as the first is metered for both."""
    return int(value) if value > 0 and value not in ALL_ONES else None


def _energy(answer: Any) -> int | None:
    """Return energy in millijoules; the resolution of the counter is in microjoules."""
    microjoules = answer["energy_accumulator"] * answer["counter_resolution"]
    return _positive(microjoules / MICROJOULES_PER_MILLIJOULE)


def _ecc(answer: Any) -> Ecc:
    return Ecc(errors={key: int(answer[name]) for key, name in COUNTS.items()})


def _limits(answer: Any) -> dict[PowerLimit, int]:
    limits = {limit: _positive(answer[name]) for limit, name in LIMITS.items()}
    return {limit: value // MICROWATTS_PER_MILLIWATT for limit, value in limits.items() if value is not None}
