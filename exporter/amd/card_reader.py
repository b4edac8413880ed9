"""One card, read whole: who it is, how it is cut, what its board and its parts say."""

import time
from collections.abc import Callable
from dataclasses import replace

from exporter.amd.amdsmi import Library
from exporter.amd.cards import Card, identify
from exporter.amd.gpu_metrics import parse
from exporter.amd.kfd import Kfd
from exporter.amd.partitions import read_parts
from exporter.amd.sensors import read_board
from exporter.amd.sysfs_file import Files
from exporter.model import GpuIdentity, GpuReading
from exporter.model.lost_gpu import with_known_layout, without_values

ASLEEP = "the GPU is suspended, and asking would wake it up"
# What the bus tells even of a card whose driver no longer answers.
OF_THE_BUS = frozenset({"pcie_link", "topology"})


class CardReader:
    """Reads cards one after the other, and keeps by PCI address what was known of them last.

    ``boot_clock`` gives the boot clock in seconds that process start times are counted in, ``clock``
    (seconds) dates the readings.
    """

    def __init__(
        self, files: Files, boot_clock: Callable[[], float | None], clock: Callable[[], float]
    ) -> None:
        self.known: dict[str, GpuReading] = {}
        self.library = Library(files)
        self._files = files
        self._boot_clock = boot_clock
        self._clock = clock
        self._complete: set[str] = set()

    def read(self, card: Card, kfd: Kfd, sweep: int) -> GpuReading:
        """Read one card; what it does not say is None. Raises CardSlowError."""
        # Before any process is listed: one that begins later may have the number of one that was in the list.
        boot_seconds = self._boot_clock()
        nodes = kfd.of_card(card)
        architecture = nodes[0].architecture if nodes else None
        identity = self._identify(card, architecture)
        self._files.turn.device = identity.uuid
        awake = self._files.text(card.path / "power/runtime_status") != "suspended"
        metrics = parse(self._files.content(card.path / "gpu_metrics")) if awake else parse(None)
        board = read_board(self._files, card, metrics, identity.architecture) if awake else {}
        parts = read_parts(self._files, card, kfd, metrics, board.get("memory"))
        told = (value for name, value in board.items() if name not in OF_THE_BUS)
        reading = GpuReading(
            identity=identity,
            up=not awake or any(value not in (None, {}) for value in told),
            **board,
            **parts.fields,
            withheld={**parts.withheld, **({} if awake else {"core": ASLEEP})},
            sweep=sweep,
            read_at=time.time(),
            read_monotonic=self._clock(),
            boot_seconds=boot_seconds,
        )
        if not kfd.complete:
            # What it did not tell now is as it was.
            reading = with_known_layout(reading, self.known[card.address])
        if awake:
            reading = self.library.fill(card.address, reading)
        self.known[card.address] = reading if reading.up else self._bare(reading)
        return self.known[card.address]

    def gone(self, address: str) -> GpuReading:
        """Return what is still known of a card that does not answer; it is asked who it is when it does."""
        self._complete.discard(address)
        self.known[address] = self._bare(self.known[address])
        return self.known[address]

    def forget(self, address: str) -> None:
        """Let go of a card that is another's now, or elsewhere."""
        self._complete.discard(address)
        self.known.pop(address, None)

    def _bare(self, reading: GpuReading) -> GpuReading:
        return replace(without_values(reading), read_monotonic=self._clock())

    def _identify(self, card: Card, architecture: str | None) -> GpuIdentity:
        """Ask the facts of a card until it has told them all."""
        known = self.known.get(card.address)
        if known is not None and card.address in self._complete and known.identity.index == card.index:
            return known.identity
        failures = self._files.failures()
        identity = identify(self._files, card, architecture)
        if self._files.failures() > failures and known is not None:
            identity = replace(identity, uuid=known.identity.uuid)
        elif architecture is not None:
            self._complete.add(card.address)
        # It is known from now on, even if it is lost before it has told the rest.
        before = known if known is not None else GpuReading(identity=identity)
        self.known[card.address] = replace(before, identity=identity)
        return identity
