"""How the driver is to be read on this node."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.hardware.patient import PATIENCE_SECONDS


def _nobody() -> str:
    return ""


def _no_boot_clock() -> None:
    return None


def _machine() -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlOptions:
    """Where the driver's library is, what to ask it, and when to leave it alone.

    ``path`` names another library file, ``library`` is an object with the library's functions. ``sys_root``
    is the sysfs that shows GPUs being plugged in and out. ``pcie_throughput`` asks for PCIe throughput too,
    which takes 40 ms per GPU. ``boot_clock`` is the clock of process start times and ``clock`` that of
    readings, both in seconds. ``machine_pids`` says whether our pids are those of the machine. ``released``
    says why the driver must not be open now, "" where it may. A call about one device that takes longer than
    ``patience`` seconds hangs.
    """

    path: Path | None = None
    library: Any = None
    sys_root: Path | None = None
    pcie_throughput: bool = False
    boot_clock: Callable[[], float | None] = _no_boot_clock
    clock: Callable[[], float] = time.monotonic
    machine_pids: Callable[[], bool] = _machine
    released: Callable[[], str] = _nobody
    patience: float = PATIENCE_SECONDS
