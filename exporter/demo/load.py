"""Curves over time: how busy a process keeps a GPU, and how much memory it holds.

A curve is a pure function of time and seed, so that a scenario shows the same picture each time.
"""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from exporter.demo.scenario import derive
from exporter.demo.scenario.codec import fail
from exporter.demo.scenario.gpus import Gpu

Shape = Literal["constant", "sine", "square", "burst", "ramp", "off"]

BURST = 1 / 8

# From the part of a period that has passed (0 to 1) to the height between low and high (0 to 1).
HEIGHTS: Mapping[Shape, Callable[[float], float]] = {
    "constant": lambda turn: 1.0,  # noqa: ARG005 - a constant does not look at the time
    "sine": lambda turn: (1 - math.cos(2 * math.pi * turn)) / 2,
    "square": lambda turn: float(turn < 1 / 2),
    "burst": lambda turn: float(turn < BURST),
    "ramp": lambda turn: turn,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A level that moves between ``low`` and ``high`` once in ``period`` seconds, ``phase`` seconds ahead.

    ``constant`` stays at high, ``off`` at 0; ``square`` is high for half the period, ``burst`` for an
    eighth of it, ``ramp`` climbs and falls back. ``noise`` is the widest deviation from the shape.
    """

    shape: Shape = "constant"
    low: float = 0.0
    high: float = 0.0
    period: float = 60.0
    phase: float = 0.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        if self.period <= 0:
            fail("period", "must be above 0")
        if not 0 <= self.low <= self.high and self.shape not in ("constant", "off"):
            fail("low", "must lie between 0 and high")
        if self.high < 0 or self.noise < 0:
            fail("high" if self.high < 0 else "noise", "must not be below 0")


OFF = Curve(shape="off")


def level(curve: Curve, t: float, key: str = "", seed: int = 0) -> float:
    """Return the curve's height at ``t`` seconds, never below 0. ``key`` sets one curve's noise apart.

    Noise changes once a second and leaves a level of 0 alone: what is idle stays exactly idle.
    """
    if curve.shape == "off":
        return 0.0
    turn = ((t + curve.phase) % curve.period) / curve.period
    height = HEIGHTS[curve.shape](turn)
    # Weighted from both ends, so that a constant level is met exactly.
    value = curve.low * (1 - height) + curve.high * height
    if not value or not curve.noise:
        return value
    return max(0.0, value + curve.noise * _noise(f"{seed}/{key}/{math.floor(t)}"))


def peak(curve: Curve) -> float:
    """Return the highest level that the curve can reach."""
    return 0.0 if curve.shape == "off" else curve.high + curve.noise


def _noise(key: str) -> float:
    """Return a number between -1 and 1 that depends on the key alone."""
    digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / (1 << 63) - 1


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
    pcie = LANE * 2 ** (derive.pcie_generation(gpu) - 1) * gpu.links.pcie_width
    # A GPU that is cut has no use for its NVLinks: MIG devices do not reach each other.
    cut = gpu.mig is not None and gpu.mig.enabled
    nvlink = 0 if cut else active_nvlinks(gpu) * derive.nvlink_speed(gpu) * 1_000_000 * NVLINK_USE
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
