"""A driver with a watcher of its events, and readers of what the watcher has noted."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import pynvml

from exporter.demo.nvml.call import NO_INSTANCE
from exporter.demo.nvml.events import Happening
from exporter.nvml.driver.calls import Calls
from exporter.nvml.driver.library import Library
from exporter.nvml.events import EventWatcher
from tests.hardware.making import Driver

XID, DOUBLE_BIT, MIG_CONFIG, UNAVAILABLE = 0x8, 0x2, 0x100, 0x4000
SECONDS = 5.0


class Watched:
    """The library of a fake driver, opened, with a watcher that has not been started."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.wakes = 0
        self.calls = Calls()
        self.watcher = EventWatcher(self.calls, self._woken)
        self._library = Library(library=driver.library)
        self._library.open()

    @property
    def handles(self) -> Mapping[str, Any]:
        """The GPUs by uuid, as a sweep finds them."""
        found = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return {pynvml.nvmlDeviceGetUUID(handle): handle for handle in found}

    def start(self) -> None:
        """Watch all GPUs, as after a sweep."""
        self.watcher.start(self.handles)

    def reopen(self) -> None:
        """Open the driver anew."""
        assert self.watcher.stop()
        self._library.close()
        self._library.open()
        self.calls.forget_unsupported()
        self.start()

    def close(self) -> None:
        """Stop to watch and shut the driver down."""
        self.driver.library.release()
        self.watcher.stop()
        self._library.close()

    def happen(self, type_: int, data: int = 0, gi: int = NO_INSTANCE, ci: int = NO_INSTANCE) -> None:
        """Let something occur on the first GPU."""
        device = self.driver.library.board.gpus[0].address
        self.driver.library.events.happen(Happening(device=device, type=type_, data=data, gi=gi, ci=ci))

    def noted(self, number: int = 1) -> list[tuple[str, str, str, int | None]]:
        """Return device, instance, kind and XID of the recent events, as soon as there are so many."""
        until(lambda: len(self.recent()) >= number)
        return [(each.uuid, each.mig_uuid, each.kind, each.xid) for each in self.recent()]

    def recent(self) -> tuple[Any, ...]:
        """Return the recent events."""
        return self.watcher.log.snapshot()[2]

    def counts(self) -> dict[tuple[str, int | None], int]:
        """Return the counts by kind and XID."""
        return {(each.kind, each.xid): each.count for each in self.watcher.log.snapshot()[1]}

    def watched(self) -> frozenset[str]:
        """Return the GPUs that are waited for."""
        return self.watcher.log.snapshot()[0]

    def _woken(self) -> None:
        self.wakes += 1


Watch = Callable[..., Watched]


def until(true: Callable[[], bool]) -> None:
    """Wait until something is so, which another thread is about to bring about."""
    end = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < end, "it has not come about"
        time.sleep(0.002)
