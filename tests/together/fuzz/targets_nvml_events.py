"""What GPUs report by themselves: records that the driver hands out one after the other, in a thread."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from struct import calcsize, pack, unpack_from
from typing import Any

import pynvml

from exporter.model import DeviceEvent, EventCount
from exporter.nvml import event_wait, events
from exporter.nvml.driver.binding import NO_INSTANCE
from exporter.nvml.driver.calls import DRIVER_GONE, LOST, UNSUPPORTED, DriverGoneError
from exporter.nvml.events import KINDS, MIG_CONFIG, UNKNOWN_XID, XID, EventWatcher
from tests.core.hardware.making import SMALL, Driver, gpu
from tests.together.fuzz.noisy import REFUSED, UNKNOWN, Tape
from tests.together.fuzz.promises import BrokenPromiseError
from tests.together.fuzz.spoiled import Renewed, Spoiled
from tests.together.fuzz.target import Target
from tests.together.fuzz.targets_nvml import seeds

# A record: whose it is (the first GPU, the second, nobody, a pointer that was never given out), the event's
# type and number, and its instances.
RECORD = "<BQQII"
LENGTH = calcsize(RECORD)
# What the driver answers when nothing is left, so that the wait ends; time without an event would only pass.
END = (0xFF, 0, 0, 0, 0)
FATAL = LOST | DRIVER_GONE | UNSUPPORTED
# Past so many in a row a watcher rests, so that no other thread has to wait.
MOST_RECORDS = event_wait.BURST - 1
MOST_SPOILT = 24
PATIENCE_SECONDS = 10.0
LAYOUT = {(7, 0): "MIG-small", (3, 0): "MIG-first", (3, 1): "MIG-second"}


def _make() -> Spoiled:
    return Spoiled(Driver(gpu("a", SMALL), gpu("b")).library)


_driver = Renewed(_make)


class Records:
    """Stands in for the driver's wait: hands out the records of an input, and then fails.

    ``over`` is set when nothing is left, so that whoever waits for the watcher knows that it is done.
    """

    def __init__(self, content: bytes, driver: Spoiled) -> None:
        self.over = threading.Event()
        self._driver = driver
        self._owners = (*driver.handles.values(), None, pynvml.cast(7, pynvml.c_nvmlDevice_t))
        whole = min(len(content) // LENGTH, MOST_RECORDS) * LENGTH
        self._left = iter([unpack_from(RECORD, content, place) for place in range(0, whole, LENGTH)])

    def wait(self, _set: Any, reference: Any, _milliseconds: Any) -> int:
        """Write the next record; one whose owner is the code of an error is that error."""
        # Whose an event is, the driver is asked for as well; only the registration is spoiled.
        self._driver.library.tape = Tape()
        owner, kind, data, gi, ci = next(self._left, END)
        if owner >= REFUSED:
            self.over.set()
            code: int = owner - REFUSED
            return code if code in FATAL else UNKNOWN
        record = reference._obj
        record.device = self._owners[owner % len(self._owners)]
        record.eventType, record.eventData, record.gpuInstanceId, record.computeInstanceId = (
            kind,
            data,
            gi,
            ci,
        )
        return 0


@contextmanager
def _silent() -> Iterator[None]:
    """Log nothing: of any unknown device the watcher complains, with a traceback."""
    events.log.disabled = event_wait.log.disabled = True
    try:
        yield
    finally:
        events.log.disabled = event_wait.log.disabled = False


def _watch(content: bytes) -> Any:
    """Watch two GPUs until all records are handed out.

    The first byte says how many of those behind it spoil the registration; the rest are records.
    """
    count = (content[:1] or b"\0")[0] % MOST_SPOILT
    driver = _driver()
    with _silent(), driver.opened(content[1 : 1 + count]) as calls:
        records = Records(content[1 + count :], driver)
        driver.library.nvmlEventSetWait_v2 = records.wait  # type: ignore[attr-defined]
        watcher = EventWatcher(calls)
        watcher.note_layout("GPU-a", LAYOUT)
        _until_over(watcher, driver, records)
    _, counts, recent = watcher.log.snapshot()
    return [replace(each, last=0.0) for each in counts], [replace(each, at=0.0) for each in recent]


def _until_over(watcher: EventWatcher, driver: Spoiled, records: Records) -> None:
    try:
        watcher.start(driver.handles)
        watched, _, _ = watcher.log.snapshot()
        # Where nothing is watched there is nobody to wait for: a thread that was there has ended.
        if watched and not records.over.wait(PATIENCE_SECONDS):
            raise BrokenPromiseError("the watcher has ended before the events")
    finally:
        ended = watcher.stop()
    if not ended:
        raise BrokenPromiseError("the watcher does not end")


def _check(told: tuple[list[EventCount], list[DeviceEvent]]) -> None:
    counts, recent = told
    if sum(each.count for each in counts) != len(recent) or len(recent) > MOST_RECORDS:
        raise BrokenPromiseError(f"{len(recent)} events are counted as {counts}")
    for each in recent:
        numbered = each.xid is not None and 0 <= each.xid <= UNKNOWN_XID
        if numbered != (each.kind == KINDS[XID]) or each.kind not in {*KINDS.values(), "other"}:
            raise BrokenPromiseError(f"no event is like {each}")
        parts = {"", *LAYOUT.values()} if each.uuid == "GPU-a" and each.kind == KINDS[XID] else {""}
        if each.uuid not in ("GPU-a", "GPU-b") or each.mig_uuid not in parts:
            raise BrokenPromiseError(f"no device is like that of {each}")


def _seeds() -> list[bytes]:
    """Report each kind, of each owner, of instances that there are and are not; and spoil a registration."""
    kinds = (*KINDS, 1 << 20, (1 << 64) - 1)
    places = (*LAYOUT, (7, NO_INSTANCE), (NO_INSTANCE, NO_INSTANCE), (1, 1))
    every = [pack(RECORD, place % 4, kind, 79, *places[place % 6]) for place, kind in enumerate(kinds)]
    xids = [pack(RECORD, 0, XID, number, *place) for number in (13, 999, 1 << 40) for place in places]
    recut = [pack(RECORD, 0, MIG_CONFIG, 0, NO_INSTANCE, NO_INSTANCE), pack(RECORD, 0, XID, 31, 7, 0)]
    records = [*every, *xids, *recut]
    spoilt = [bytes([len(spoil)]) + spoil + b"".join(xids[:3]) for spoil in seeds(9, 2)]
    return [b"\0" + b"".join(records), *(b"\0" + record for record in records), *spoilt]


TARGETS = (
    Target(
        name="nvml-events",
        covers=(
            "exporter.nvml.events",
            "exporter.nvml.event_wait",
        ),
        seeds=_seeds,
        decode=_watch,
        refuses=(DriverGoneError,),
        check=_check,
        words=(*(pack("<Q", kind) for kind in KINDS), b"\xff" * 4, b"\xff" * 8, pack("<II", 7, 0)),
        cost=4,
    ),
)
