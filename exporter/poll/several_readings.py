"""Values that need several readings of a GPU: rates, counts, throttling and links below their best.

Times are seconds on a monotonic clock. Readings of links may be a minute older than the others, so a link is
judged over longer spans than that.
"""

from collections import deque
from collections.abc import Iterable, Mapping

from exporter.model import GpuReading
from exporter.model.condition_signs import UNKNOWN, Sign
from exporter.model.readings import CLOCK_EVENT_BITS, ClockEvent

THROTTLE_SECONDS = 300.0
# Throttling counts above the first share of the window, until it is below the second.
RAISED_SHARE, CLEARED_SHARE = 0.5, 0.25
# A PCIe width or number of NVLinks counts after this time: links are trained again after a reset.
LINK_SECONDS = 120.0
# A PCIe generation counts after this time, if the GPU worked for more than this share of it.
GENERATION_SECONDS, WORKING_SHARE = 900.0, 0.5
LONGEST_GAP = 60.0  # readings that are further apart say nothing about the time between them

_BITS = {reason: bit for bit, reason in CLOCK_EVENT_BITS.items()}
_THROTTLING = _BITS["hardware_thermal"] | _BITS["power_brake"] | _BITS["software_thermal"]
_IDLE = _BITS["idle"]


class StateWindow:
    """The time that a state held within the last ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        # Start, end and state of spans without overlap, oldest first.
        self._spans: deque[tuple[float, float, bool]] = deque()

    def add(self, start: float, end: float, *, holds: bool) -> None:
        """Add a span, which must not start before the end of the last one."""
        if self._spans and self._spans[-1][1:] == (start, holds):
            start = self._spans.pop()[0]
        self._spans.append((start, end, holds))
        while self._spans and self._spans[0][1] <= end - self.seconds:
            self._spans.popleft()

    def note(self, earlier: GpuReading, later: GpuReading, *, holds: bool | None) -> None:
        """Add the time between two successive readings, unless the later one does not show the state."""
        start, end = earlier.read_monotonic, later.read_monotonic
        if holds is not None and end - start <= LONGEST_GAP:
            self.add(start, end, holds=holds)

    def shares(self, now: float) -> tuple[float, float]:
        """Return the shares of the window in which the state held, and in which it is unknown."""
        begin = now - self.seconds
        spans = [(max(end - max(start, begin), 0.0), holds) for start, end, holds in self._spans]
        held = sum(length for length, holds in spans if holds)
        observed = sum(length for length, _ in spans)
        return held / self.seconds, max(1 - observed / self.seconds, 0.0)


class Throttling:
    """Whether heat or a power brake limits the clocks of a GPU; the power cap does not count."""

    def __init__(self) -> None:
        self._window = StateWindow(THROTTLE_SECONDS)
        self._raised = False

    def note(self, earlier: GpuReading, later: GpuReading) -> None:
        """Add the time between two successive readings."""
        events = later.clock_events
        self._window.note(earlier, later, holds=None if events is None else bool(events & _THROTTLING))

    def judge(self, now: float) -> Sign:
        """Return whether it lasts; unknown while too little of the window is observed to decide."""
        held, unknown = self._window.shares(now)
        if held > RAISED_SHARE:
            self._raised = True
        elif held + unknown < CLEARED_SHARE:
            self._raised = False
        minutes = round(THROTTLE_SECONDS / 60)
        if self._raised:
            return Sign(True, f"heat or power limited its clocks for {held:.0%} of {minutes} minutes")
        return Sign(False if held + unknown <= RAISED_SHARE else None)


class Below:
    """Whether a value has been below its best for ``seconds``; the best value, once reached, clears it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: float | None = None
        self._verdict: bool | None = None

    def judge(
        self, value: int | None, best: int | None, now: float, text: str, *, counts: bool = True
    ) -> Sign:
        """Return the verdict, and ``text`` with both values.

        Unknown for a value that is unknown, or was never seen at its best and is not below it for long.
        ``counts``: whether the time until now may raise it.
        """
        if value is None or best is None:
            return UNKNOWN
        if value >= best:
            self._since, self._verdict = None, False
        else:
            self._since = now if self._since is None else self._since
            if counts and now - self._since >= self._seconds:
                self._verdict = True
        return Sign(self._verdict, text.format(value, best))


class DegradedLinks:
    """The links of one GPU compared with their best."""

    def __init__(self) -> None:
        # The most NVLinks that were active since the exporter's start; it outlives a reset.
        self._most_active = 0
        self.restart()

    def restart(self) -> None:
        """Start again after a restart of the GPU, which trains its links again."""
        self._width, self._nvlinks = Below(LINK_SECONDS), Below(LINK_SECONDS)
        self._c2c = Below(LINK_SECONDS)
        self._generation = Below(GENERATION_SECONDS)
        self._work = StateWindow(GENERATION_SECONDS)

    def note(self, earlier: GpuReading, later: GpuReading) -> None:
        """Add the time between two successive readings."""
        self._work.note(earlier, later, holds=works(later))

    def judge(self, reading: GpuReading, siblings: int, now: float) -> tuple[Sign, ...]:
        """Return the verdict on each link; ``siblings`` is the most active NVLinks of comparable GPUs."""
        pcie, nvlink, c2c = reading.pcie_link, reading.nvlink, reading.c2c
        signs: list[Sign] = []
        if pcie is not None:
            # An idle GPU lowers the generation.
            busy = self._work.shares(now)[0] > WORKING_SHARE
            signs.append(self._width.judge(pcie.width, pcie.max_width, now, "PCIe width {} of {}"))
            generation = pcie.generation, pcie.max_generation
            signs.append(self._generation.judge(*generation, now, "PCIe generation {} of {}", counts=busy))
        # In MIG mode some GPUs switch their NVLinks off.
        if nvlink is not None and nvlink.links and not reading.mig_enabled:
            self._most_active = max(self._most_active, nvlink.active or 0)
            most = max(self._most_active, siblings)
            signs.append(self._nvlinks.judge(nvlink.active, most, now, "{} of {} NVLinks are active"))
        if c2c is not None and c2c.links:
            signs.append(self._c2c.judge(c2c.active, c2c.links, now, "{} of {} C2C links are active"))
        return tuple(signs)


def works(reading: GpuReading) -> bool | None:
    """Return whether a GPU worked at the time of its reading, None if unknown."""
    if reading.clock_events is not None:
        return not reading.clock_events & _IDLE
    return None if reading.utilization_percent is None else reading.utilization_percent > 0


def switched_links(gpus: Iterable[GpuReading]) -> Mapping[str, int]:
    """Return by model the most active NVLinks of a GPU behind switches; such GPUs have equally many.

    Links through switches reach every peer, so they add up to more than the GPU has. GPUs without switches
    may be bridged differently.
    """
    most: dict[str, int] = {}
    for gpu in gpus:
        active = gpu.nvlink.active if gpu.nvlink is not None else None
        if active and gpu.up and not gpu.mig_enabled and behind_switches(gpu):
            most[gpu.identity.model] = max(most.get(gpu.identity.model, 0), active)
    return most


def behind_switches(reading: GpuReading) -> bool:
    """Return whether the NVLinks of a GPU lead to switches, as far as its peers show it."""
    active = reading.nvlink.active if reading.nvlink is not None else None
    peers = reading.topology.peers.values() if reading.topology is not None else ()
    return bool(active) and sum(peer.nvlinks or 0 for peer in peers) > (active or 0)


def nvlink_bytes_per_second(earlier: GpuReading, later: GpuReading) -> float | None:
    """Return the mean traffic over all NVLinks, both directions, between two readings of one GPU.

    None if a reading lacks a counter, if no time has passed, and if a counter fell because the driver was
    reloaded in between.
    """
    seconds = later.read_monotonic - earlier.read_monotonic
    old, new = earlier.traffic_bytes, later.traffic_bytes
    if seconds <= 0:
        return None
    moved = 0
    for direction in ("nvlink_transmit", "nvlink_receive"):
        if direction not in old or direction not in new or new[direction] < old[direction]:
            return None
        moved += new[direction] - old[direction]
    return moved / seconds


class NvlinkRates:
    """The rate of each GPU from sweep to sweep; a GPU that was not read again keeps its rate."""

    def __init__(self) -> None:
        self._readings: dict[str, GpuReading] = {}
        self._rates: dict[str, float | None] = {}

    def advance(self, gpus: Iterable[GpuReading]) -> Mapping[str, float]:
        """Take the GPUs of a poll and return bytes per second by uuid; a GPU that is gone is dropped."""
        latest = {gpu.identity.uuid: gpu for gpu in gpus if gpu.up}
        self._rates = {uuid: self._rate(uuid, gpu) for uuid, gpu in latest.items()}
        self._readings = latest
        return {uuid: rate for uuid, rate in self._rates.items() if rate is not None}

    def _rate(self, uuid: str, reading: GpuReading) -> float | None:
        previous = self._readings.get(uuid)
        if previous is None:
            return None
        if previous.read_monotonic == reading.read_monotonic:
            return self._rates.get(uuid)
        return nvlink_bytes_per_second(previous, reading)


class ClockEvents:
    """Counts how often each reason began to limit the clocks of a GPU, from sweep to sweep."""

    def __init__(self) -> None:
        self._masks: dict[str, int] = {}
        self._counts: dict[str, dict[ClockEvent, int]] = {}

    def advance(self, gpus: Iterable[GpuReading]) -> Mapping[str, Mapping[ClockEvent, int]]:
        """Take the GPUs of a poll and return the counts by uuid; a silent GPU keeps its counts."""
        present = set()
        for gpu in gpus:
            present.add(gpu.identity.uuid)
            if gpu.clock_events is not None:
                self._note(gpu.identity.uuid, gpu.clock_events)
        self._masks = {uuid: mask for uuid, mask in self._masks.items() if uuid in present}
        self._counts = {uuid: counts for uuid, counts in self._counts.items() if uuid in present}
        return {uuid: dict(counts) for uuid, counts in self._counts.items()}

    def _note(self, uuid: str, mask: int) -> None:
        # A reason that is active at the first reading began earlier, at an unknown time.
        begun = mask & ~self._masks.get(uuid, mask)
        counts = self._counts.setdefault(uuid, dict.fromkeys(CLOCK_EVENT_BITS.values(), 0))
        for bit, reason in CLOCK_EVENT_BITS.items():
            if begun & bit:
                counts[reason] += 1
        self._masks[uuid] = mask
