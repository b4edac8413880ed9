"""AMD's own library (``amdsmi``, part of ROCm), where it is installed: it fills what the files left open."""

import contextlib
import importlib
import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from exporter.amd.sysfs_file import CardSlowError, Files
from exporter.model import GpuReading
from exporter.model.readings import Ecc, EccScope, EccSeverity, PowerLimit

MODULE = "amdsmi"
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


class Library:
    """amdsmi, opened when a reading first lacks something that it could tell; then kept, or not tried again.

    It is no dependency: without its native half, importing it prints and fails with whatever error.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._module: Any = None
        self._tried = False
        self._handles: dict[str, Any] = {}
        # The library takes another unit for the same count: where the files fail for a moment, the counter
        # would jump and fall back.
        self._energy_by_files: set[str] = set()

    def fill(self, address: str, reading: GpuReading) -> GpuReading:
        """Return the reading with what the library knows of the GPU at a PCI address."""
        if reading.energy_millijoules is not None:
            self._energy_by_files.add(address)
        no_energy = address not in self._energy_by_files
        if not reading.up or not (no_energy or reading.ecc is None or not reading.power_limits_milliwatts):
            return reading
        handle = self._handle(address)
        if handle is None:
            return reading
        if no_energy:
            reading = replace(reading, energy_millijoules=self._energy(handle))
        if reading.ecc is None:
            reading = replace(reading, ecc=self._ecc(handle))
        if not reading.power_limits_milliwatts:
            reading = replace(reading, power_limits_milliwatts=self._limits(handle))
        return reading

    def close(self) -> None:
        """Shut the library down, unless a thread hangs that may be in it; it is not opened again."""
        if self._module is not None and not self._files.hanging:
            self._ask(self._module, "amdsmi_shut_down")
        self._module, self._handles = None, {}

    def _handle(self, address: str) -> Any:
        if not self._tried:
            # It asks all GPUs: one of them that hangs must not be taken for the one that is read.
            with contextlib.suppress(CardSlowError), self._files.about(MODULE):
                self._module, self._handles = self._opened()
                self._tried = True
        return self._handles.get(address)

    def _opened(self) -> tuple[Any, dict[str, Any]]:
        """Open the library, with its complaints kept off our standard output; None where there is none."""
        handles: dict[str, Any] = {}
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                module = importlib.import_module(MODULE)
            with self._files.waiting("amdsmi_init"):
                module.amdsmi_init()
        except Exception:  # noqa: BLE001 - no ROCm here, or none that works: nothing is lost
            return None, handles
        for handle in self._ask(module, "amdsmi_get_processor_handles") or ():
            address = self._ask(module, "amdsmi_get_gpu_device_bdf", handle)
            if isinstance(address, str):
                handles[address.lower()] = handle
        return module, handles

    def _energy(self, handle: Any) -> int | None:
        """Return energy in millijoules; the library counts in steps of so many microjoules."""

        def read(told: Any) -> int | None:
            microjoules = told["energy_accumulator"] * told["counter_resolution"]
            return _positive(microjoules / MICROJOULES_PER_MILLIJOULE)

        found: int | None = self._told("amdsmi_get_energy_count", handle, read)
        return found

    def _ecc(self, handle: Any) -> Ecc | None:
        def read(told: Any) -> Ecc:
            return Ecc(errors={key: int(told[name]) for key, name in COUNTS.items()})

        found: Ecc | None = self._told("amdsmi_get_gpu_total_ecc_count", handle, read)
        return found

    def _limits(self, handle: Any) -> dict[PowerLimit, int]:
        def read(told: Any) -> dict[PowerLimit, int]:
            limits = {limit: _positive(told[name]) for limit, name in LIMITS.items()}
            return {limit: value // MICROWATTS_PER_MILLIWATT for limit, value in limits.items() if value}

        return self._told("amdsmi_get_power_cap_info", handle, read) or {}

    def _told(self, name: str, handle: Any, read: Callable[[Any], Any]) -> Any:
        """Ask, and read the answer; one of another form than this library's says nothing."""
        answer = self._ask(self._module, name, handle)
        try:
            return None if answer is None else read(answer)
        except (KeyError, TypeError, ValueError) as error:
            self._count(name, error)
        return None

    def _ask(self, module: Any, name: str, *arguments: Any) -> Any:
        try:
            with self._files.waiting(name):
                return getattr(module, name)(*arguments)
        except Exception as error:  # noqa: BLE001 - one question fails, the rest is asked
            self._count(name, error)
        return None

    def _count(self, name: str, error: Exception) -> None:
        self._files.errors[self._files.turn.device, name, type(error).__name__] += 1


def _positive(value: float) -> int | None:
    """Return a whole number; 0 is what the second GPU of a board says, which is metered with the first."""
    return int(value) if value > 0 else None
