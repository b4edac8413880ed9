"""A driver with a watcher of its events, and what the watcher has recorded."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pynvml

from exporter.demo.nvml.call import NO_INSTANCE
from exporter.demo.nvml.events import Happening
from exporter.model import DeviceEvent
from exporter.nvml.driver.calls import Calls
from exporter.nvml.driver.library import Library
from exporter.nvml.events import EventWatcher
from tests.core.hardware.making import Clock, Driver
from tests.waiting import wait_until

XID, DOUBLE_BIT, MIG_CONFIG, UNAVAILABLE = 0x8, 0x2, 0x100, 0x4000


def event_threads() -> list[threading.Thread]:
    """Return the threads that wait for events."""
    return [thread for thread in threading.enumerate() if thread.name == "nvml-events"]


class Watched:
    """The library of a fake driver, opened, with a watcher that has not been started."""

    def __init__(self, driver: Driver, clock: Clock) -> None:
        self.driver = driver
        self.clock = clock  # that of the watcher
        self.wakes = 0
        self.calls = Calls()
        self.watcher = EventWatcher(self.calls, self._wake)
        self._library = Library(library=driver.library)
        self._library.open()

    @property
    def handles(self) -> Mapping[str, Any]:
        """The GPUs by uuid, as a sweep finds them."""
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return {pynvml.nvmlDeviceGetUUID(handle): handle for handle in handles}

    def start(self) -> None:
        """Watch all GPUs, as after a sweep."""
        self.watcher.start(self.handles)

    def reopen(self) -> None:
        """Open the driver again."""
        assert self.watcher.stop()
        self._library.close()
        self._library.open()
        self.calls.records.forget_unsupported()
        self.start()

    def close(self) -> None:
        """Stop watching and shut the driver down."""
        self.driver.library.release()
        wait_until(self.watcher.stop)
        self._library.close()

    def happen(self, type_: int, data: int = 0, gi: int = NO_INSTANCE, ci: int = NO_INSTANCE) -> None:
        """Let the driver report an event of the first GPU."""
        device = self.driver.library.board.gpus[0].address
        self.driver.library.events.happen(Happening(device=device, type=type_, data=data, gi=gi, ci=ci))

    def events(self, number: int = 1) -> list[tuple[str, str, str, int | None]]:
        """Return device, instance, kind and XID of the recent events, once there are ``number`` of them."""
        wait_until(lambda: len(self.recent()) >= number, f"{number} events")
        return [(event.uuid, event.mig_uuid, event.kind, event.xid) for event in self.recent()]

    def recent(self) -> tuple[DeviceEvent, ...]:
        """Return the recent events."""
        return self.watcher.log.snapshot()[2]

    def counts(self) -> dict[tuple[str, int | None], int]:
        """Return the counts by kind and XID."""
        return {(count.kind, count.xid): count.count for count in self.watcher.log.snapshot()[1]}

    def watched(self) -> frozenset[str]:
        """Return the GPUs that are subscribed to."""
        return self.watcher.log.snapshot()[0]

    def _wake(self) -> None:
        self.wakes += 1


Watch = Callable[..., Watched]
