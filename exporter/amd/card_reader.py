"""Reads one card completely: identity, board, partitions and processes."""

import time
from collections.abc import Callable
from dataclasses import replace

from exporter.amd.amdsmi import AmdSmi
from exporter.amd.cards import Card, identify
from exporter.amd.gpu_metrics import parse
from exporter.amd.kfd import Kfd
from exporter.amd.partitions import read_parts
from exporter.amd.sensors import read_board
from exporter.amd.sysfs_file import Files
from exporter.model import GpuIdentity, GpuReading
from exporter.model.lost_gpu import with_known_layout, without_values

ASLEEP = "the GPU is suspended, and reading it would wake it up"
# Fields that the PCI bus reports even if the driver of the card does not answer.
OF_THE_BUS = frozenset({"pcie_link", "topology"})


class CardReader:
    """Reads cards one after the other, and keeps the last reading of each by PCI address.

    ``boot_clock`` is the clock of process start times, ``clock`` dates the readings, both in seconds.
    """

    def __init__(
        self, files: Files, boot_clock: Callable[[], float | None], clock: Callable[[], float]
    ) -> None:
        self.known: dict[str, GpuReading] = {}
        self.library = AmdSmi(files)
        self._files = files
        self._boot_clock = boot_clock
        self._clock = clock
        # Addresses of cards with a complete identity.
        self._identified: set[str] = set()

    def read(self, card: Card, kfd: Kfd, sweep: int) -> GpuReading:
        """Return the reading of one card. Raises CardSlowError."""
        # Before the processes are listed: a process that starts later may reuse the pid of a listed one.
        boot_seconds = self._boot_clock()
        nodes = kfd.of_card(card)
        architecture = nodes[0].architecture if nodes else None
        identity = self._identify(card, architecture)
        self._files.context.device = identity.uuid
        awake = self._files.text(card.path / "power/runtime_status") != "suspended"
        metrics = parse(self._files.content(card.path / "gpu_metrics")) if awake else parse(None)
        board = read_board(self._files, card, metrics, identity.architecture) if awake else {}
        parts = read_parts(self._files, card, kfd, metrics, board.get("memory"))
        from_driver = (value for name, value in board.items() if name not in OF_THE_BUS)
        reading = GpuReading(
            identity=identity,
            up=not awake or any(value not in (None, {}) for value in from_driver),
            **board,
            **parts.fields,
            withheld={**parts.withheld, **({} if awake else {"core": ASLEEP})},
            sweep=sweep,
            read_at=time.time(),
            read_monotonic=self._clock(),
            boot_seconds=boot_seconds,
        )
        if not kfd.complete:
            reading = with_known_layout(reading, self.known[card.address])
        if awake:
            reading = self.library.fill(card.address, reading)
        self.known[card.address] = reading if reading.up else self._bare(reading)
        return self.known[card.address]

    def gone(self, address: str) -> GpuReading:
        """Return the known facts of a card that does not answer; its identity will be read again."""
        self._identified.discard(address)
        self.known[address] = self._bare(self.known[address])
        return self.known[address]

    def forget(self, address: str) -> None:
        """Drop a card that has another driver or another address now."""
        self._identified.discard(address)
        self.known.pop(address, None)

    def _bare(self, reading: GpuReading) -> GpuReading:
        return without_values(reading, self._clock())

    def _identify(self, card: Card, architecture: str | None) -> GpuIdentity:
        """Return the identity of a card; it is read until it is complete."""
        known = self.known.get(card.address)
        if known is not None and card.address in self._identified and known.identity.index == card.index:
            return known.identity
        failures = self._files.failures()
        identity = identify(self._files, card, architecture)
        if self._files.failures() > failures and known is not None:
            identity = replace(identity, uuid=known.identity.uuid)
        elif architecture is not None:
            self._identified.add(card.address)
        # Known from now on, even if it is lost before the rest has been read.
        last = known if known is not None else GpuReading(identity=identity)
        self.known[card.address] = replace(last, identity=identity)
        return identity
