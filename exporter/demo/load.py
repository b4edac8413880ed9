"""Curves over time: how busy a process keeps a GPU, and how much memory it holds.

A curve is a pure function of time and seed, so that a scenario shows the same picture each time.
"""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from exporter.demo.codec import fail

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
