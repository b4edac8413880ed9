"""Signs of conditions that need several readings: throttling over a window, and links below their best.

Times are seconds on a monotonic clock. Readings of links may be a minute older than the others, so a link is
judged over longer spans than that.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from exporter.model import GpuReading
from exporter.model.condition_signs import UNDECIDED, Lasting
from exporter.model.readings import CLOCK_EVENT_BITS

THROTTLE_SECONDS = 300.0
RAISED_SHARE, CLEARED_SHARE = 0.5, 0.25
"""Throttling counts above the first share of the window, until it is below the second."""
LINK_SECONDS = 120.0
"""A PCIe width or number of NVLinks counts after this time: links are trained again after a reset."""
GENERATION_SECONDS = 900.0
WORKING_SHARE = 0.5
"""A PCIe generation counts after this time, if the GPU worked for more than this share of it."""
LONGEST_GAP = 60.0
"""Readings that are further apart say nothing about the time between them."""

_BITS = {reason: bit for bit, reason in CLOCK_EVENT_BITS.items()}
_THROTTLING = _BITS["hardware_thermal"] | _BITS["power_brake"] | _BITS["software_thermal"]
_IDLE = _BITS["idle"]


class Window:
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
        self._window = Window(THROTTLE_SECONDS)
        self._raised = False

    def note(self, earlier: GpuReading, later: GpuReading) -> None:
        """Add the time between two successive readings."""
        start, end = earlier.read_monotonic, later.read_monotonic
        if later.clock_events is not None and end - start <= LONGEST_GAP:
            self._window.add(start, end, holds=bool(later.clock_events & _THROTTLING))

    def judge(self, now: float) -> Lasting:
        """Return whether it lasts; unknown while too little of the window is observed to decide."""
        held, unknown = self._window.shares(now)
        if held > RAISED_SHARE:
            self._raised = True
        elif held + unknown < CLEARED_SHARE:
            self._raised = False
        minutes = round(THROTTLE_SECONDS / 60)
        if self._raised:
            return Lasting(True, f"heat or power limited its clocks for {held:.0%} of {minutes} minutes")
        return Lasting(False if held + unknown <= RAISED_SHARE else None)


class Below:
    """Whether a value has been below its best for ``seconds``; the best value, once reached, clears it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: float | None = None
        self._verdict: bool | None = None

    def judge(self, now: float, *, below: bool, counts: bool = True) -> bool | None:
        """Return the verdict; unknown for a value that was never seen at its best and is not below for long.

        ``counts``: whether the time until now may raise it.
        """
        if not below:
            self._since, self._verdict = None, False
            return False
        self._since = now if self._since is None else self._since
        if counts and now - self._since >= self._seconds:
            self._verdict = True
        return self._verdict


class Links:
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
        self._work = Window(GENERATION_SECONDS)

    def note(self, earlier: GpuReading, later: GpuReading) -> None:
        """Add the time between two successive readings."""
        start, end = earlier.read_monotonic, later.read_monotonic
        working = works(later)
        if working is not None and end - start <= LONGEST_GAP:
            self._work.add(start, end, holds=working)

    def judge(self, reading: GpuReading, siblings: int, now: float) -> tuple[Lasting, ...]:
        """Return the verdict on each link; ``siblings`` is the most active NVLinks of comparable GPUs."""
        pcie, nvlink = self._pcie(reading, now), self._nvlink(reading, siblings, now)
        return (*pcie, *nvlink, *self._c2c_links(reading, now))

    def _pcie(self, reading: GpuReading, now: float) -> Iterator[Lasting]:
        link = reading.pcie_link
        if link is None:
            return
        if link.width is None or link.max_width is None:
            yield UNDECIDED
        else:
            low = self._width.judge(now, below=link.width < link.max_width)
            yield Lasting(low, f"PCIe width {link.width} of {link.max_width}")
        if link.generation is None or link.max_generation is None:
            yield UNDECIDED
        else:
            # An idle GPU lowers the generation.
            busy = self._work.shares(now)[0] > WORKING_SHARE
            low = self._generation.judge(now, below=link.generation < link.max_generation, counts=busy)
            yield Lasting(low, f"PCIe generation {link.generation} of {link.max_generation}")

    def _nvlink(self, reading: GpuReading, siblings: int, now: float) -> Iterator[Lasting]:
        links = reading.nvlink
        # In MIG mode some GPUs switch their NVLinks off.
        if links is None or not links.links or reading.mig_enabled:
            return
        if links.active is None:
            yield UNDECIDED
            return
        self._most_active = max(self._most_active, links.active)
        expected = max(self._most_active, siblings)
        low = self._nvlinks.judge(now, below=links.active < expected)
        yield Lasting(low, f"{links.active} of {expected} NVLinks are active")

    def _c2c_links(self, reading: GpuReading, now: float) -> Iterator[Lasting]:
        c2c = reading.c2c
        if c2c is None or not c2c.links:
            return
        if c2c.active is None:
            yield UNDECIDED
            return
        low = self._c2c.judge(now, below=c2c.active < c2c.links)
        yield Lasting(low, f"{c2c.active} of {c2c.links} C2C links are active")


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
