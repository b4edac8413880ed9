"""AMD's GPUs as a source of the poller: one worker thread, one hop per sweep.

A read of a file can wait for a driver that is resetting its GPU, in a thread that nothing can end. What was
read of the other cards before is already published then. The thread is left behind, and another sweeps in its
place without what the read is about, be it a card or what is asked beside cards, until it returns. So no more
threads hang than there are such parts.
"""

import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from exporter.amd.card import CardReader
from exporter.amd.cards import DRIVER, Card, driver_at, find_cards, has_nvidia
from exporter.amd.kfd import Kfd, KfdReader
from exporter.amd.sysfs_file import CardSlowError, Files
from exporter.hangs import PATIENCE_SECONDS, ReplaceableWorker
from exporter.model import DriverInfo, GpuReading, HardwareReading

# A healthy card answers in milliseconds.
CARD_BUDGET_SECONDS = 5.0
# What KFD knows of all cards is asked before them.
KFD = "kfd"


class AmdSource:
    """The node's AMD GPUs through the files of sysfs; on a node without any, one folder is listed.

    ``sys_root`` and ``proc_root`` are where sysfs and the process table lie, ``boot_clock`` gives the boot
    clock in seconds that process start times are counted in, ``clock`` (seconds) dates the readings.
    ``latest`` is the newest reading of every GPU, each with its own time. ``beside_nvidia``: there are AMD
    GPUs, and at least one of NVIDIA's was there when they were found. A read of one card that takes longer
    than ``patience`` seconds hangs.
    """

    def __init__(
        self,
        sys_root: Path,
        proc_root: Path,
        boot_clock: Callable[[], float | None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self.latest: HardwareReading | None = None
        self.beside_nvidia = False
        self._sys_root = sys_root
        self._files = Files()
        self._kfd = KfdReader(self._files, sys_root, proc_root)
        self._cards = CardReader(self._files, boot_clock or (lambda: None), clock)
        self._worker = ReplaceableWorker("amd", patience, self._files.leave)
        self._driver = DriverInfo()
        self._found: dict[int, Card] = {}
        self._slow: set[str] = set()
        self._looked_beside = False
        self._number = 0

    async def read(self) -> HardwareReading:
        """Sweep once, in the worker thread."""
        return await self._worker.run(self._sweep)

    async def close(self) -> None:
        """Let go of AMD's library where it was used, and let the thread end."""
        await self._worker.finish(self._cards.library.close)

    def _sweep(self) -> HardwareReading:
        self._number += 1
        self._files.attend()
        found: dict[str, GpuReading] = {}
        self._found = find_cards(self._files, self._sys_root, self._found)
        cards = list(self._found.values())
        if cards:
            self._read_node()
        for reading in self._all(cards):
            found[reading.identity.uuid] = reading
            self._publish(self._older() | found)
        return self._publish(found)

    def _read_node(self) -> None:
        self._driver = DriverInfo(driver_version=self._files.text(self._sys_root / "module/amdgpu/version"))
        if not self._looked_beside:
            self.beside_nvidia = has_nvidia(self._files, self._sys_root)
            self._looked_beside = True

    def _all(self, cards: list[Card]) -> Iterator[GpuReading]:
        """Yield the reading of each card; one that kept the others waiting last time has its turn last."""
        kfd = self._read_kfd() if cards else Kfd()
        for card in sorted(cards, key=lambda card: (card.address in self._slow, card.index)):
            reading = self._card(card, kfd)
            if reading is not None:
                yield reading
        present = {card.address for card in cards}
        self._forget_moved(present)
        for address in [address for address in self._cards.known if address not in present]:
            yield self._cards.gone(address)

    def _forget_moved(self, present: Collection[str]) -> None:
        """Let go of cards that answer at another address, or that were given to another driver."""
        known = self._cards.known
        here = {known[address].identity.uuid for address in present if address in known}
        for address in [address for address in known if address not in present]:
            if known[address].identity.uuid in here or self._is_of_another_driver(address):
                self._cards.forget(address)

    def _is_of_another_driver(self, address: str) -> bool:
        """Whether the device at an address has a driver that is not AMD's: one for virtual machines, say."""
        try:
            with self._files.about(address, self._cards.known[address].identity.uuid):
                return driver_at(self._files, self._sys_root, address) not in {"", DRIVER}
        except CardSlowError:
            return False

    def _read_kfd(self) -> Kfd:
        turn = self._files.turn
        turn.deadline = time.monotonic() + CARD_BUDGET_SECONDS
        try:
            with self._files.about(KFD):
                return self._kfd.read()
        except CardSlowError:
            return Kfd()
        finally:
            turn.deadline = None

    def _card(self, card: Card, kfd: Kfd) -> GpuReading | None:
        """Read one card; None for one that never said who it is."""
        self._slow.discard(card.address)
        turn = self._files.turn
        turn.deadline = time.monotonic() + CARD_BUDGET_SECONDS
        known = self._cards.known.get(card.address)
        try:
            with self._files.about(card.address, known.identity.uuid if known is not None else ""):
                return self._cards.read(card, kfd, self._number)
        except CardSlowError:
            self._slow.add(card.address)
        except Exception as error:  # noqa: BLE001 - whatever one card answers, the others are read
            self._files.errors[turn.device, "read", type(error).__name__] += 1
        finally:
            turn.deadline, turn.device = None, ""
        return self._cards.gone(card.address) if card.address in self._cards.known else None

    def _older(self) -> dict[str, GpuReading]:
        gpus = self.latest.gpus if self.latest is not None else ()
        return {reading.identity.uuid: reading for reading in gpus}

    def _publish(self, gpus: dict[str, GpuReading]) -> HardwareReading:
        self.latest = HardwareReading(
            driver=self._driver,
            gpus=tuple(gpus.values()),
            # Also cards that have not reported their identity yet, and lost ones.
            gpu_count=len({card.address for card in self._found.values()} | self._cards.known.keys()),
            errors=dict(self._files.errors),
        )
        return self.latest
