"""How far the driver's samples and its accounting disagree on who computed, by GPU, over about an hour."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from exporter.attribution.audit import Audit, Booked
from exporter.model import ContainerRef
from exporter.model.hardware import BOOKING_SECONDS
from exporter.model.snapshot import Disagreement

# Figures count half after this time, in seconds.
HALF_LIFE = 3600.0
# Of a process with a sample, the driver rounds the share up to a whole percent.
ROUNDED_UP = 0.01
# GPU-seconds that are not kept any longer.
NEGLIGIBLE = 1e-6


@dataclass(slots=True)
class _Window:
    """Both figures of a GPU, in GPU-seconds."""

    sampled: dict[ContainerRef | None, float] = field(default_factory=dict)
    accounted: dict[ContainerRef | None, float] = field(default_factory=dict)
    explained: float = 0.0  # by which they may differ although both are right
    unbroken: bool = False  # whether the last poll compared all processes

    def add(self, audit: Audit, seconds: float) -> None:
        """Add a poll of ``seconds``."""
        self._fade(0.5 ** (seconds / HALF_LIFE))
        for figure in audit.booked:
            _add(self.sampled, figure.owner, figure.sampled * seconds)
            _add(self.accounted, figure.owner, figure.accounted)
            self.explained += _explained(figure, audit, seconds)
        if any(figure.ended and not figure.came_and_went for figure in audit.booked):
            # Samples of its last BOOKING_SECONDS never get into the account of a process that ended.
            # Together, such processes have lost up to that time before this poll, too.
            self.explained += BOOKING_SECONDS
        if not (self.unbroken and audit.complete):
            # Where the comparison begins or ends, the two are not of the same second.
            self.explained += 2 * BOOKING_SECONDS
        self.unbroken = audit.complete

    def _fade(self, part: float) -> None:
        self.explained *= part
        for figures in (self.sampled, self.accounted):
            for owner in list(figures):
                figures[owner] *= part
                if figures[owner] < NEGLIGIBLE:
                    del figures[owner]

    def disagreement(self) -> Disagreement | None:
        """Return the shares of the larger of both figures; None if nothing has computed."""
        owners = self.sampled.keys() | self.accounted.keys()
        pairs = [(self.sampled.get(owner, 0.0), self.accounted.get(owner, 0.0)) for owner in owners]
        whole = sum(map(max, pairs))
        if not whole:
            return None
        apart = sum(abs(sampled - accounted) for sampled, accounted in pairs)
        return Disagreement(apart / whole, min((self.explained + BOOKING_SECONDS) / whole, 1.0))


class Disagreements:
    """Keeps the figures of all GPUs from poll to poll."""

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}

    def add(self, audits: Mapping[str, Audit], measured: Mapping[str, float]) -> dict[str, Disagreement]:
        """Add one poll; return the disagreement of each GPU that was compared in it, by uuid.

        ``measured``: seconds that each GPU's new reading covers; 0 if nothing is known of them.
        """
        compared: dict[str, Disagreement] = {}
        for uuid, window in self._windows.items():
            if uuid not in audits or not measured.get(uuid):
                window.unbroken = False
        for uuid, audit in audits.items():
            seconds = measured.get(uuid, 0.0)
            if not seconds or not (audit.booked or audit.complete):
                continue
            window = self._windows.setdefault(uuid, _Window())
            window.add(audit, seconds)
            disagreement = window.disagreement()
            if disagreement is not None:
                compared[uuid] = disagreement
        return compared

    def keep_only(self, gpus: Collection[str]) -> None:
        """Forget GPUs that are not listed."""
        self._windows = {uuid: window for uuid, window in self._windows.items() if uuid in gpus}


def _explained(figure: Booked, audit: Audit, seconds: float) -> float:
    """Return the GPU-seconds by which both figures of a process may differ although both are right."""
    sampled = figure.sampled * seconds
    rounded = ROUNDED_UP * seconds if figure.sampled else 0.0
    # A mean over samples is of their time, which differs from that of the poll by a sample at each end.
    ends = figure.sampled * (2 * audit.sample_seconds + audit.overlap)
    length = figure.accounted * audit.uncertainty
    lost = min(sampled, BOOKING_SECONDS) if figure.ended else 0.0
    return rounded + ends + length + lost


def _add(figures: dict[ContainerRef | None, float], owner: ContainerRef | None, amount: float) -> None:
    figures[owner] = figures.get(owner, 0.0) + amount
