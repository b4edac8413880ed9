"""A fake driver whose GPUs and faults a test changes between two sweeps, and its parts."""

import itertools
import json
from collections import Counter
from collections.abc import Callable, Collection
from functools import cached_property
from typing import Any

from exporter.demo.machine import Machine
from exporter.demo.nvml import FakeNvml
from exporter.demo.present import present
from exporter.demo.scenario import NvmlError, NvmlHang
from exporter.demo.scenario.catalog import parse
from exporter.model import GpuReading
from exporter.nvml.driver.library import NvmlOptions
from exporter.nvml.sweep import Sweeper
from tests.core.hardware import tiny

MIB, GIB = 1 << 20, 1 << 30
# A limit that no healthy call or GPU reaches on a busy machine; tests of limits set their own.
NEVER_SECONDS = 600.0
WALL = 1_700_000_000.0
NODE = {
    "name": "node-1",
    "driver_version": "550.90.07",
    "nvml_version": "12.550.90.07",
    "cuda_version": 12040,
}


class Clock:
    """Replaces the module ``time``; tests move it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.wall_offset = 0.0

    def time(self) -> float:
        """Return Unix time."""
        return WALL + self.now + self.wall_offset

    def monotonic(self) -> float:
        """Return the monotonic time."""
        return self.now


def nvml(library: Any = None, **changes: Any) -> NvmlOptions:
    """Return options to read a library; the clock of readings moves five seconds at each look at it."""
    limits = {"call_timeout": NEVER_SECONDS, "gpu_budget": NEVER_SECONDS}
    return NvmlOptions(**{"library": library, "clock": ticking(), **limits, **changes})


def ticking() -> Callable[[], float]:
    """Return a clock that moves five seconds at each look at it."""
    return itertools.count(0.0, 5.0).__next__


class Driver:
    """A driver's library over GPUs that ``become`` and ``fail`` change; uuids are those of ``gpu``."""

    def __init__(self, *gpus: dict[str, Any], missing: Collection[str] = (), **parts: Any) -> None:
        scenario = _scenario(gpus or (gpu("a"),), parts)
        self.library = FakeNvml(scenario.node, missing)
        self._faults: tuple[NvmlError | NvmlHang, ...] = ()
        self._seconds = 0.0
        self._become(scenario)

    def become(self, *gpus: dict[str, Any], **parts: Any) -> None:
        """Replace the GPUs; the library counts them at once."""
        self._become(_scenario(gpus, parts))
        if self.library.opened:
            self.library.list_again()

    def go_on(self, *gpus: dict[str, Any], **parts: Any) -> None:
        """Replace what the GPUs and their processes are, and let the hardware run for a second."""
        self._scenario = _scenario(gpus, parts)
        self.advance(1.0)

    def fail(self, code: str, function: str | None = None, device: str | None = None) -> None:
        """Answer calls with an NVML error, in addition to those that fail already."""
        fault = NvmlError(kind="nvml_error", code=code, function=function, device=device)
        self._show((*self._faults, fault))

    def hang(self, function: str | None = None, device: str | None = None) -> None:
        """Let calls hang."""
        self._show((*self._faults, NvmlHang(kind="nvml_hang", function=function, device=device)))

    def recover(self) -> None:
        """End all failures and hangs."""
        self._show(())

    def advance(self, seconds: float) -> None:
        """Let the hardware run for some time."""
        self._seconds += seconds
        self._step()

    def asked(self, function: str, device: str = "") -> int:
        """Return how often a function was called about a device."""
        return self.library.calls[function, device]

    @cached_property
    def sweeper(self) -> Sweeper:
        """The sweeper of this driver."""
        return Sweeper(nvml(self.library))

    def configure(self, **options: Any) -> None:
        """Sweep with other options from now on, as a new process does."""
        self.sweeper = Sweeper(nvml(self.library, **options))

    def sweep(self) -> dict[str, GpuReading]:
        """Sweep once; return the readings by uuid."""
        return sweep(self.sweeper)

    def read(self) -> GpuReading:
        """Sweep once; return the reading of the only GPU."""
        [reading] = self.sweep().values()
        return reading

    def ups(self) -> dict[str, bool]:
        """Sweep once; return which GPUs are up, in the order in which they were read."""
        return {uuid: reading.up for uuid, reading in self.sweep().items()}

    def errors(self) -> Counter[tuple[str, str, str]]:
        """Return the errors since start by (GPU uuid, call, error name)."""
        return self.sweeper.calls.records.errors

    def _become(self, scenario: Any) -> None:
        self._scenario = scenario
        self._machine = Machine()
        self._step()

    def _show(self, faults: tuple[NvmlError | NvmlHang, ...]) -> None:
        self._faults = faults
        self._step()

    def _step(self) -> None:
        now = present(self._scenario, self._seconds)
        self.library.show(self._machine.step(now, WALL + self._seconds), self._faults)


def _scenario(gpus: tuple[dict[str, Any], ...], parts: dict[str, Any]) -> Any:
    return parse(json.dumps({"name": "test", "node": NODE, "gpus": gpus} | parts))


def gpu(name: str, *instances: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return the board GPU-<name>: 16 GiB, 512 MiB reserved, 100 MiB in use; MIG if it has instances."""
    board = {
        "uuid": f"GPU-{name}",
        "model": "NVIDIA Test",
        "architecture": 7,
        "memory_total": "16 GiB",
        "memory_reserved": "512 MiB",
        "overhead": "100 MiB",
        "power_idle_mw": 20_000,
        "power_max_mw": 120_000,
        "temperature_base": 30,
        "memory_temperature": True,
        "fan": 30,
        "clocks": {"sm_idle": 210, "sm_max": 1410, "memory": 1215, "video_max": 1290},
        "mig": {"instances": list(instances)} if instances else None,
    }
    return board | changes


def instance(name: str, gi: int, **changes: Any) -> dict[str, Any]:
    """Return the 1g.2gb instance MIG-<name>, placed by its ``gi``."""
    cut = {
        "uuid": f"MIG-{name}",
        "gi": gi,
        "start": gi,
        "profile": "1g.2gb",
        "memory_bytes": "1856 MiB",
        "multiprocessors": 14,
    }
    return cut | changes


SMALL = instance("small", gi=7, start=6)
LARGE = instance(
    "large",
    gi=2,
    start=0,
    profile="3g.8gb",
    memory_bytes="7424 MiB",
    size=4,
    multiprocessors=42,
    reserved="16 MiB",
)


def process(pid: int, device: str, **changes: Any) -> dict[str, Any]:
    """Return a process, for ``host_processes``, that uses 1 GiB of a device."""
    return {"pid": pid, "device": device, "command": "train", "memory": "1 GiB"} | changes


def sweep(sweeper: Sweeper) -> dict[str, GpuReading]:
    """Sweep once; return the readings by uuid."""
    return {reading.identity.uuid: reading for reading in sweeper.sweep()}


def refuse(driver: Driver, function: str, code: int, devices: set[str]) -> None:
    """Answer a call with a code if it is about one of these devices, or finds one."""
    real = getattr(driver.library, function)

    def call(*arguments: Any) -> int:
        answer = real(*arguments)
        handle = tiny.handle_of(arguments[-1]) if function.endswith("ByIndex") else arguments[0]
        device = driver.library.board.by_address.get(tiny.address(handle))
        return code if device is not None and device.spec.uuid in devices else answer

    setattr(driver.library, function, call)
