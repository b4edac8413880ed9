"""Records of advice: the window of a workload, the facts of its device model, and the verdict.

Memory is in bytes, time in seconds, compute in shares of a physical GPU. None is unknown. GPUs that are freed
are means over the window: of a pod that held half of it, half counts.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal, NamedTuple

from exporter.model import ContainerRef, DeviceKey
from exporter.model.mig_profiles import MigProfile

# What would fit: see ``exporter.advice``.
Verdict = Literal[
    "release",
    "fewer_gpus",
    "mig_profile",
    "shared_gpu",
    "smaller_profile",
    "larger_profile",
    "replicas",
    "smaller_limit",
    "larger_limit",
    "keep",
]

# Why there is no verdict: see ``exporter.advice.guards``.
Reason = Literal[
    "young",
    "not_measured",
    "preallocated",
    "self_fitting",
    "limit_hit",
    "shared_rest",
    "several_devices",
    "no_table",
    "unsettled",
    "no_rule",
    "opted_out",
]

Confidence = Literal["high", "medium"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One container on one device in the window. Shares of time are of the time held, 0 to 1."""

    holder: ContainerRef
    device: DeviceKey
    held: float
    # Shares of the time held in which memory and compute use were known.
    memory_coverage: float
    compute_coverage: float
    computing: float = 0.0  # time in 5-minute steps with compute
    memory_peak: int | None = None
    memory_flat: bool = False  # whether 95 % of the 5-minute steps were within 2 % of the peak
    # Of 5-minute means, over the steps with compute; ``compute_mean`` is over all the measured time.
    compute_p95: float | None = None
    compute_mean: float | None = None
    # SM activity likewise, as a share of the device's multiprocessors; None without a profiling meter.
    sm_p95: float | None = None
    memory_entitled: int | None = None
    compute_entitled: float | None = None
    # Node on which it holds the device now; "" if it has ended, and in a window of the node itself.
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """The devices that the workload holds; they are of one model and profile."""

    model: str
    memory: int | None  # usable memory of the held device: of the GPU, or of the MIG device
    sharing: str = "exclusive"
    isolation: str = "none"
    profile: str = ""  # profile of the held MIG device, "" for a whole GPU
    # Of this model; None if they are unknown, () if it has no MIG.
    profiles: tuple[MigProfile, ...] | None = None
    # None is unknown: a reader of only some of the series does not know.
    nvlink_traffic: bool | None = None
    media_used: bool | None = None
    # Mean share of the device's memory that no container accounts for; None is unknown.
    unattributed: float | None = None
    # Of a device with several holders: slices offered, p95 of the sum of compute, most memory used,
    # and the highest memory pressure.
    replicas: int | None = None
    sum_p95: float | None = None
    sum_peak: int | None = None
    adjacent: int | None = None  # free memory slices beside those of the held MIG device


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A workload's container on devices of one model over some time."""

    namespace: str
    workload: str  # its owner, or the pod
    container: str
    start: float  # Unix time
    end: float
    device: DeviceFacts
    uses: tuple[Use, ...]
    # Engine that preallocates memory, such as ``vLLM``; "" if none is known, None if processes are unknown.
    engine: str | None = ""
    # Largest memory of the same container by usable memory of other devices that it ran on.
    sizes: Mapping[int, int] = field(default_factory=dict)
    opted_out: bool = False  # whether a pod of it has the label that turns advice off
    cluster: str = ""  # cluster of a window by Prometheus, by its label ``cluster``

    @property
    def pods(self) -> int:
        """The number of pods in the window."""
        return len({(use.holder.namespace, use.holder.pod) for use in self.uses})

    @property
    def span(self) -> float:
        """Seconds from its start to its end."""
        return self.end - self.start

    @property
    def held(self) -> float:
        """Seconds held, in sum over the pods; devices that one pod holds at once count once."""
        return self._by_pod(lambda use: use.held)

    @property
    def computing(self) -> float:
        """Seconds computing, likewise; 0 if no device computed."""
        return self._by_pod(lambda use: use.computing)

    def _by_pod(self, seconds: Callable[[Use], float]) -> float:
        longest: dict[ContainerRef, float] = {}
        for use in self.uses:
            longest[use.holder] = max(longest.get(use.holder, 0.0), seconds(use))
        return sum(longest.values())

    @property
    def devices_of_pod(self) -> int:
        """The most devices that one container holds."""
        counts: dict[ContainerRef, set[DeviceKey]] = {}
        for use in self.uses:
            counts.setdefault(use.holder, set()).add(use.device)
        return max(map(len, counts.values()), default=0)

    def coverage(self, quantity: Literal["memory", "compute"]) -> float:
        """Return the share of the time held in which the use of memory, or of compute, was known."""
        held, share = sum(use.held for use in self.uses), attrgetter(f"{quantity}_coverage")
        return sum(use.held * share(use) for use in self.uses) / held if held else 0.0

    def entitled_gpus(self, use: Use) -> float:
        """Return the GPUs that a container is entitled to: the larger of its shares of memory and compute.

        Without an entitlement it may use all of the device.
        """
        memory = (
            use.memory_entitled / self.device.memory if use.memory_entitled and self.device.memory else None
        )
        shares = [share for share in (memory, use.compute_entitled) if share is not None]
        if self.device.profile:
            return use.compute_entitled if use.compute_entitled is not None else 1.0
        return min(max(shares), 1.0) if shares else 1.0

    def freed(self, recommended: float = 0.0, uses: Iterable[Use] | None = None) -> float:
        """Return the GPUs freed if each of these uses, by default of all, held ``recommended`` GPUs."""
        if self.span <= 0:
            return 0.0
        return sum(
            (self.entitled_gpus(use) - recommended) * min(use.held / self.span, 1.0)
            for use in (self.uses if uses is None else uses)
        )


class Need(NamedTuple):
    """What a workload needs of each device, with margins."""

    memory: int
    compute: float | None  # None: unknown
    sm: float | None  # multiprocessors, as a share of those of the device


class Option(NamedTuple):
    """One thing that would fit."""

    verdict: Verdict
    target: str  # 1g.10gb, 1/4 of a GPU, 6000 MiB and 30 % of nvidia.com/gpucores
    gpus_freed: float  # of all pods in the window that hold now; negative if more is needed
    notes: tuple[str, ...] = ()
    would_fit: bool | None = None  # whether a further holder would get what is freed; None is unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The verdict on one window, or the reason not to give one."""

    window: Window
    now: str  # what it holds
    need: Need | None
    options: tuple[Option, ...] = ()  # the first is the advice; the others exclude it. Empty with a reason
    reason: Reason | None = None
    why: str = ""  # the reason in words
    coverage: float = 0.0  # share of the time held in which the use was known that the verdict goes by
    confidence: Confidence | None = None


HOURS = 24  # hours of a day: a GPU that is freed all day frees so many GPU-hours


class Savings(NamedTuple):
    """GPUs, as means over the windows; None if of all windows nothing is known."""

    freed: float | None  # freed by the first option of each advice that frees something
    # The part of it that another holder would get, and the part of which this is unknown.
    fits: float | None
    unknown: float | None
    without: Mapping[Reason, int]  # of how many windows nothing is known, by reason


def savings_of(advices: Sequence[Advice]) -> Savings:
    """Return what the first options would free; options that exclude each other are never added up."""
    firsts = [advice.options[0] for advice in advices if advice.options]
    freeing = [option for option in firsts if option.gpus_freed > 0]
    without = Counter(advice.reason for advice in advices if advice.reason is not None)
    if advices and not firsts:
        return Savings(None, None, None, without)
    return Savings(
        freed=sum(option.gpus_freed for option in freeing),
        fits=sum(option.gpus_freed for option in freeing if option.would_fit),
        unknown=sum(option.gpus_freed for option in freeing if option.would_fit is None),
        without=without,
    )
