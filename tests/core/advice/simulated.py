"""Workloads as series of 5-minute steps, and the window that they make: the truth of the tests of advice."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import Any

from exporter.advice.model import DeviceFacts, Option, Use, Window
from exporter.model import ContainerRef, DeviceKey
from exporter.model.mig_profiles import listed_profiles

STEP, DAY = 300.0, 86400.0
MIB, GIB = 1 << 20, 1 << 30
H100 = "NVIDIA H100 80GB HBM3"
H100_BYTES = 81559 * MIB
LISTED = listed_profiles(H100, H100_BYTES)
assert LISTED is not None
PROFILES = LISTED.profiles


@dataclass(frozen=True, kw_only=True)
class Run:
    """One container on one device: what it used in each 5-minute step."""

    memory: Sequence[int]  # bytes
    compute: Sequence[float]  # share of a GPU
    sm: Sequence[float] | None = None  # share of the device's multiprocessors
    pod: str = "p0"
    gpu: int = 0
    memory_entitled: int | None = H100_BYTES
    compute_entitled: float | None = 1.0
    memory_coverage: float = 1.0
    compute_coverage: float = 1.0

    def use(self) -> Use:
        """Return what a reader of this run keeps of it."""
        busy = [share for share in self.compute if share > 0]
        peak = max(self.memory)
        near = sum(size >= 0.98 * peak for size in self.memory)
        return Use(
            holder=ContainerRef("ml", self.pod, "main"),
            device=DeviceKey(f"GPU-{self.gpu}"),
            held=len(self.memory) * STEP,
            memory_coverage=self.memory_coverage,
            compute_coverage=self.compute_coverage,
            computing=len(busy) * STEP,
            memory_peak=peak,
            memory_flat=near >= 0.95 * len(self.memory),
            compute_p95=p95(busy),
            compute_mean=fmean(self.compute),
            sm_p95=p95([share for share in self.sm if share > 0]) if self.sm is not None else None,
            memory_entitled=self.memory_entitled,
            compute_entitled=self.compute_entitled,
        )


def drawn(source: Random, length: int) -> Run:
    """Return a random run on a whole GPU, of some steps."""
    base, swing, level = source.uniform(0.5, 60), source.uniform(0, 20), source.random() ** 2
    compute = [min(level * source.random() + (source.random() > 0.98) * 0.5, 1.0) for _ in range(length)]
    return Run(
        memory=[gib(min(base + swing * source.random(), 75)) for _ in range(length)],
        compute=compute,
        sm=[share * 0.6 for share in compute],
    )


def stays_within(run: Run, option: Option) -> bool:
    """Return whether a run fits a profile or a share: memory at each step, compute in 95 % of them."""
    if option.verdict == "mig_profile":
        (profile,) = (each for each in PROFILES if each.name == option.target)
        memory, part = profile.memory or 0, (profile.multiprocessors or 0) / 132
        shares = run.sm or ()
    else:
        part = 1 / int(option.target.split()[0].removeprefix("1/"))
        memory, shares = int(H100_BYTES * part), run.compute
    over = sum(share > part for share in shares)
    return max(run.memory) <= memory and over <= 0.05 * len(shares)


def p95(values: Sequence[float]) -> float | None:
    """Return the smallest value that at least 95 % of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(-(-len(ordered) * 95 // 100) - 1, 0)] if ordered else None


def window(
    *runs: Run, device: DeviceFacts | None = None, days: float | None = None, **changes: Any
) -> Window:
    """Return the window of some runs; by default they are all of its time."""
    span = days * DAY if days is not None else max(len(run.memory) for run in runs) * STEP
    return Window(
        namespace="ml",
        workload="train",
        container="main",
        start=0.0,
        end=span,
        device=device or whole(),
        uses=tuple(run.use() for run in runs),
        **changes,
    )


def whole(**changes: Any) -> DeviceFacts:
    """Return the facts of whole GPUs."""
    facts = {
        "model": H100,
        "memory": H100_BYTES,
        "profiles": PROFILES,
        "nvlink_traffic": False,
        "media_used": False,
        "unattributed": 0.0,
    }
    return DeviceFacts(**(facts | changes))


def mig(profile: str, **changes: Any) -> DeviceFacts:
    """Return the facts of MIG devices of a profile."""
    (memory,) = (each.memory for each in PROFILES if each.name == profile)
    return whole(**({"memory": memory, "sharing": "mig", "isolation": "hard", "profile": profile} | changes))


def steps(days: float) -> int:
    """Return the number of steps in some days."""
    return int(days * DAY / STEP)


def gib(amount: float) -> int:
    """Return GiB in bytes."""
    return int(amount * GIB)
