"""Load over time: the curves of processes, and the energy and traffic that they cause on a GPU.

A curve is a pure function of time and seed, so that a scenario looks the same each time.
"""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from exporter.demo.scenario import derive
from exporter.demo.scenario.codec import fail
from exporter.demo.scenario.gpus import Gpu

Shape = Literal["constant", "sine", "square", "burst", "ramp", "off"]

BURST = 1 / 8

# Height between low and high (0 to 1) by the elapsed part of the period (0 to 1).
HEIGHTS: Mapping[Shape, Callable[[float], float]] = {
    "constant": lambda _elapsed: 1.0,
    "sine": lambda elapsed: (1 - math.cos(2 * math.pi * elapsed)) / 2,
    "square": lambda elapsed: float(elapsed < 1 / 2),
    "burst": lambda elapsed: float(elapsed < BURST),
    "ramp": lambda elapsed: elapsed,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A level that moves between ``low`` and ``high`` once per period.

    ``constant`` stays at high, ``off`` at 0; ``square`` is high for half the period, ``burst`` for an
    eighth of it, ``ramp`` climbs and drops to low.
    """

    shape: Shape = "constant"
    low: float = 0.0
    high: float = 0.0
    period: float = 60.0  # seconds
    phase: float = 0.0  # seconds that the curve is ahead
    noise: float = 0.0  # maximum deviation from the shape

    def __post_init__(self) -> None:
        if self.period <= 0:
            fail("period", "must be above 0")
        if not 0 <= self.low <= self.high and self.shape not in ("constant", "off"):
            fail("low", "must be between 0 and high")
        if self.high < 0 or self.noise < 0:
            fail("high" if self.high < 0 else "noise", "must not be below 0")


OFF = Curve(shape="off")


def level(curve: Curve, t: float, key: str = "", seed: int = 0) -> float:
    """Return the level at ``t`` seconds, never below 0. Curves with different keys have different noise.

    Noise changes once a second. A level of 0 has none: what is idle stays exactly idle.
    """
    if curve.shape == "off":
        return 0.0
    height = HEIGHTS[curve.shape](((t + curve.phase) % curve.period) / curve.period)
    # Weighted from both ends, so that a constant level is met exactly.
    value = curve.low * (1 - height) + curve.high * height
    if not value or not curve.noise:
        return value
    return max(0.0, value + curve.noise * _noise(f"{seed}/{key}/{math.floor(t)}"))


def peak(curve: Curve) -> float:
    """Return the maximum level of a curve."""
    return 0.0 if curve.shape == "off" else curve.high + curve.noise


def _noise(key: str) -> float:
    """Return a number between -1 and 1, derived from the key."""
    digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / (1 << 63) - 1


# Energy in mW, traffic in bytes per second, and whether a reason limits the clocks (0 or 1).
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
REASONS = frozenset({"power", "software_thermal", "hardware_thermal"})
NANOSECONDS = 1_000_000_000
# Part of the power limit from which it limits the clocks.
CAPPED = 0.95
# Bytes per second of one lane of the first PCIe generation; each later one doubles them.
LANE = 250_000_000
# Part of a link's bandwidth in use at full load.
PCIE_OUT, PCIE_IN, NVLINK_USE = 0.03, 0.08, 0.3


class Meters:
    """The counters of one GPU. ``now`` are its flows at the last ``advance``."""

    def __init__(self) -> None:
        self.now: Mapping[Flow, float] = {}
        self._totals: dict[Flow, float] = dict.fromkeys(get_args(Flow), 0.0)

    def advance(self, now: Mapping[Flow, float], elapsed: float) -> None:
        """Add the mean of the flows at both ends of a step, times its length in seconds."""
        for name in self._totals:
            self._totals[name] += (self.now.get(name, now[name]) + now[name]) / 2 * elapsed
        self.now = now

    def totals(self) -> Mapping[Flow, int]:
        """Return mJ, bytes, and nanoseconds in which the clocks were limited."""
        return {
            name: int(total * NANOSECONDS if name in REASONS else total)
            for name, total in self._totals.items()
        }


def power_limit(gpu: Gpu) -> int:
    """Return the power limit that is set, in mW."""
    return gpu.power_max_mw if gpu.power_limit_mw is None else min(gpu.power_limit_mw, gpu.power_max_mw)


def active_nvlinks(gpu: Gpu) -> int:
    """Return the number of active NVLinks."""
    return max(0, gpu.links.nvlinks - gpu.links.down)


def flows(gpu: Gpu, load: float, power: int, temperature: int) -> Mapping[Flow, float]:
    """Return the flows of a GPU at a load in percent, a power in mW and a temperature in degrees."""
    busy = load / 100
    pcie = LANE * 2 ** (derive.pcie_generation(gpu) - 1) * gpu.links.pcie_width
    # MIG devices cannot reach each other over NVLink.
    nvlink = 0 if gpu.mig_enabled else active_nvlinks(gpu) * derive.nvlink_speed(gpu) * 1_000_000 * NVLINK_USE
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
