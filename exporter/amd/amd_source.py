"""AMD GPUs as a source of the poller, in a worker thread.

A read of a file can hang while the driver resets a GPU, and its thread cannot be ended. The cards that were
read before are then already published. The thread is abandoned, and a new one sweeps without the card or
other part of that read until the read returns. So at most one thread hangs for each part.
"""

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from exporter.amd.amdsmi import AmdSmi
from exporter.amd.card_parts import read_parts
from exporter.amd.card_readings import own_bridges, read_board
from exporter.amd.cards import DRIVER, Card, Identified, driver_at, find_cards, has_nvidia, identify
from exporter.amd.gpu_metrics import Metrics, parse
from exporter.amd.kfd import Kfd, KfdReader
from exporter.amd.sysfs_file import CardSlowError, Files
from exporter.concurrency import ReplaceableWorker
from exporter.model import DriverInfo, GpuReading, HardwareReading
from exporter.model.exceeded_memory import without_exceeded_memory
from exporter.model.lost_gpu import with_known_layout, without_values

# Place of the reads of KFD, which are for all cards.
KFD = "kfd"
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
        # Cards with a complete identity, by PCI address.
        self._identified: dict[str, Identified] = {}

    def read(self, card: Card, kfd: Kfd, sweep: int) -> GpuReading:
        """Return the reading of one card. Raises CardSlowError."""
        # Before the processes are listed: a process that starts later may reuse the pid of a listed one.
        boot_seconds = self._boot_clock()
        nodes = kfd.of_card(card)
        architecture = nodes[0].architecture if nodes else None
        identified = self._identify(card, architecture)
        identity = identified.identity
        self._files.context.device = identity.uuid
        awake = self._files.text(card.path / "power/runtime_status") != "suspended"
        metrics = self._metrics(card.path / "gpu_metrics") if awake else parse(None)
        board = read_board(self._files, card, metrics, identified) if awake else {}
        parts, withheld = read_parts(self._files, card, kfd, metrics)
        from_driver = (value for name, value in board.items() if name not in OF_THE_BUS)
        reading = GpuReading(
            identity=identity,
            up=not awake or any(value not in (None, {}) for value in from_driver),
            **board,
            **parts,
            withheld={**withheld, **({} if awake else {"core": ASLEEP})},
            sweep=sweep,
            read_at=time.time(),
            read_monotonic=self._clock(),
            boot_seconds=boot_seconds,
        )
        reading = without_exceeded_memory(reading)
        if not kfd.complete:
            reading = with_known_layout(reading, self.known[card.address])
        if awake:
            reading = self.library.fill(card.address, reading)
        self.known[card.address] = reading if reading.up else self._bare(reading)
        return self.known[card.address]

    def gone(self, address: str) -> GpuReading:
        """Return the known facts of a card that does not answer; its identity will be read again."""
        self._identified.pop(address, None)
        self.known[address] = self._bare(self.known[address])
        return self.known[address]

    def forget(self, address: str) -> None:
        """Drop a card that has another driver or another address now."""
        self._identified.pop(address, None)
        self.known.pop(address, None)

    def _bare(self, reading: GpuReading) -> GpuReading:
        return without_values(reading, self._clock())

    def _metrics(self, path: Path) -> Metrics:
        metrics = parse(self._files.content(path))
        if metrics.impossible:
            self._files.count_impossible(path)
        return metrics

    def _identify(self, card: Card, architecture: str | None) -> Identified:
        """Return the facts of a card; they are read until they are complete."""
        known = self.known.get(card.address)
        last = self._identified.get(card.address)
        if last is not None and last.identity.index == card.index:
            return last
        failures = self._files.failures()
        identity = identify(self._files, card, architecture)
        found = Identified(identity, own_bridges(self._files, card))
        if self._files.failures() > failures and known is not None:
            found = replace(found, identity=replace(identity, uuid=known.identity.uuid))
        elif architecture is not None:
            self._identified[card.address] = found
        # Known from now on, even if it is lost before the rest has been read.
        reading = known if known is not None else GpuReading(identity=found.identity)
        self.known[card.address] = replace(reading, identity=found.identity)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdOptions:
    """Options of the AMD source."""

    sys_root: Path  # root of sysfs
    call_timeout: float  # a read that takes longer is abandoned, in seconds: ``Budget.call_timeout``
    card_budget: float  # time to read one card, in seconds
    # Clock of process start times, and of readings, in seconds.
    boot_clock: Callable[[], float | None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    machine_pids: Callable[[], bool] = lambda: True  # whether the exporter's pids are those of the machine


class AmdSource:
    """The node's AMD GPUs, read from sysfs; on a node without any, this lists one folder."""

    def __init__(self, options: AmdOptions) -> None:
        # The newest reading of every GPU, each with its own time.
        self.latest = HardwareReading()
        # Whether the node had an NVIDIA GPU, too, when its AMD GPUs were first read.
        self.beside_nvidia = False
        self._sys_root = options.sys_root
        self._files = Files()
        self._kfd = KfdReader(self._files, options.sys_root, options.machine_pids)
        self._reader = CardReader(self._files, options.boot_clock, options.clock)
        self._worker = ReplaceableWorker("amd", options.call_timeout, self._files.abandon_if_hung)
        self._card_budget = options.card_budget
        self._driver = DriverInfo()
        # By number of the card.
        self._cards: dict[int, Card] = {}
        # Addresses of the cards that exceeded their time in the last sweep.
        self._slow: set[str] = set()
        self._nvidia_checked = False
        # Number of the sweep.
        self._number = 0

    async def read(self) -> HardwareReading:
        """Return the readings of one sweep."""
        return await self._worker.run(self._sweep)

    async def close(self) -> None:
        """Close the amdsmi library and the thread."""
        await self._worker.finish(self._reader.library.close)

    def _sweep(self) -> HardwareReading:
        self._number += 1
        self._files.attend()
        published = {reading.identity.uuid: reading for reading in self.latest.gpus}
        readings: dict[str, GpuReading] = {}
        self._cards = find_cards(self._files, self._sys_root, self._cards)
        cards = list(self._cards.values())
        if cards:
            self._read_node()
        for reading in self._all(cards):
            readings[reading.identity.uuid] = reading
            self._publish(published | readings)
        return self._publish(readings)

    def _read_node(self) -> None:
        self._driver = DriverInfo(driver_version=self._files.text(self._sys_root / "module/amdgpu/version"))
        if not self._nvidia_checked:
            self.beside_nvidia = has_nvidia(self._files, self._sys_root)
            self._nvidia_checked = True

    def _all(self, cards: list[Card]) -> Iterator[GpuReading]:
        """Yield the reading of each card, slow and missing ones last."""
        kfd = self._read_kfd() if cards else Kfd()
        for card in sorted(cards, key=lambda card: (card.address in self._slow, card.index)):
            reading = self._card(card, kfd)
            if reading is not None:
                yield reading
        present = {card.address for card in cards}
        self._forget_moved(present)
        for address in [address for address in self._reader.known if address not in present]:
            yield self._reader.gone(address)

    def _forget_moved(self, present: Collection[str]) -> None:
        """Forget absent cards that are at another address now, or have another driver."""
        known = self._reader.known
        uuids = {known[address].identity.uuid for address in present if address in known}
        for address in [address for address in known if address not in present]:
            if known[address].identity.uuid in uuids or self._has_other_driver(address):
                self._reader.forget(address)

    def _has_other_driver(self, address: str) -> bool:
        """Return whether the device at an address has another driver than amdgpu, such as vfio-pci."""
        try:
            with self._files.about(address, self._reader.known[address].identity.uuid):
                return driver_at(self._files, self._sys_root, address) not in {"", DRIVER}
        except CardSlowError:
            return False

    def _read_kfd(self) -> Kfd:
        try:
            with self._files.about(KFD, within=self._card_budget):
                return self._kfd.read()
        except CardSlowError:
            return Kfd()

    def _card(self, card: Card, kfd: Kfd) -> GpuReading | None:
        """Return the reading of one card; None if its identity has never been read."""
        self._slow.discard(card.address)
        context = self._files.context
        known = self._reader.known.get(card.address)
        uuid = known.identity.uuid if known is not None else ""
        try:
            with self._files.about(card.address, uuid, within=self._card_budget):
                return self._reader.read(card, kfd, self._number)
        except CardSlowError:
            self._slow.add(card.address)
        except Exception as error:  # noqa: BLE001 - one card must not prevent the others from being read
            self._files.errors[context.device, "read", type(error).__name__] += 1
        finally:
            context.device = ""
        return self._reader.gone(card.address) if card.address in self._reader.known else None

    def _publish(self, gpus: dict[str, GpuReading]) -> HardwareReading:
        self.latest = HardwareReading(
            driver=self._driver,
            gpus=tuple(gpus.values()),
            # Including lost cards, and cards without a known identity.
            gpu_count=len({card.address for card in self._cards.values()} | self._reader.known.keys()),
            errors=dict(self._files.errors),
        )
        return self.latest
