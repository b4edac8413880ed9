"""What flows through a board, and the counters that add it up: energy, traffic, time held back.

A counter is the integral of its flow over the acted time, so it grows with the load and never falls.
"""

from collections.abc import Mapping
from typing import Literal

from exporter.demo import boards
from exporter.demo.schema_gpu import Gpu

# Energy in mW, traffic in bytes per second, and in how much of each second the clocks are held back (0 or 1).
Flow = Literal[
    "energy",
    "pcie_transmit",
    "pcie_receive",
    "nvlink_transmit",
    "nvlink_receive",
    "power",
    "software_thermal",
    "hardware_thermal",
]
FLOWS: tuple[Flow, ...] = (
    "energy",
    "pcie_transmit",
    "pcie_receive",
    "nvlink_transmit",
    "nvlink_receive",
    "power",
    "software_thermal",
    "hardware_thermal",
)

REASONS = frozenset({"power", "software_thermal", "hardware_thermal"})
NANOSECONDS = 1_000_000_000
# At this much power the board's limit holds the clocks back.
CAPPED = 0.95
# Bytes per second and lane of the first PCIe generation; each later one doubles it.
LANE = 250_000_000
# How much of a link a GPU at full load makes use of. More comes in over PCIe than goes out.
PCIE_OUT, PCIE_IN, NVLINK_USE = 0.03, 0.08, 0.3


class Meters:
    """The counters of one GPU."""

    def __init__(self) -> None:
        self.now: Mapping[Flow, float] = {}
        self._totals: dict[Flow, float] = dict.fromkeys(FLOWS, 0.0)

    def advance(self, now: Mapping[Flow, float], elapsed: float) -> None:
        """Add what has flowed in ``elapsed`` seconds, up to a moment at which it flows like ``now``."""
        for name in self._totals:
            self._totals[name] += (self.now.get(name, now[name]) + now[name]) / 2 * elapsed
        self.now = now

    def totals(self) -> Mapping[Flow, int]:
        """Return mJ, bytes, and nanoseconds in which the clocks were held back."""
        return {
            name: int(total * NANOSECONDS if name in REASONS else total)
            for name, total in self._totals.items()
        }


def power_limit(gpu: Gpu) -> int:
    """Return the limit of its draw that is in force, in mW."""
    return gpu.power_max_mw if gpu.power_limit_mw is None else min(gpu.power_limit_mw, gpu.power_max_mw)


def active_nvlinks(gpu: Gpu) -> int:
    """Return how many NVLinks are up."""
    return max(0, gpu.links.nvlinks - gpu.links.down)


def flows(gpu: Gpu, load: float, power: int, temperature: int) -> Mapping[Flow, float]:
    """Return what flows through a GPU at this load in percent, mW and degrees."""
    busy = load / 100
    pcie = LANE * 2 ** (boards.pcie_generation(gpu) - 1) * gpu.links.pcie_width
    # A GPU that is cut has no use for its NVLinks: MIG devices do not reach each other.
    cut = gpu.mig is not None and gpu.mig.enabled
    nvlink = 0 if cut else active_nvlinks(gpu) * boards.nvlink_speed(gpu) * 1_000_000 * NVLINK_USE
    return {
        "energy": power,
        "pcie_transmit": pcie * PCIE_OUT * busy,
        "pcie_receive": pcie * PCIE_IN * busy,
        "nvlink_transmit": nvlink * busy,
        "nvlink_receive": nvlink * busy,
        "power": float(busy > 0 and power > CAPPED * power_limit(gpu)),
        "software_thermal": float(temperature >= gpu.thresholds.gpu),
        "hardware_thermal": float(temperature >= gpu.thresholds.slowdown),
    }
