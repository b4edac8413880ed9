"""Calls into the driver, and the meaning of their errors.

Every call of a sweep goes through ``Calls.ask``, which returns a value, or None if there is none. Calls that
a device does not support are remembered and not repeated. Error codes are those of ``nvmlReturn_t`` in
nvml.h.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pynvml

from exporter.concurrency import HANGS, Watched
from exporter.nvml.driver.accounting import ACCOUNTING
from exporter.nvml.driver.binding import CORRECTED, to_python
from exporter.nvml.driver.library import FINDING, PICKING, SLOT, error_name
from exporter.nvml.driver.records import CORE, SHARED, Call, CallRecords

# The device or the driver does not have this reading.
UNSUPPORTED = frozenset({3, 13, 25, 26})
# The GPU is lost, and further calls about it would fail too.
LOST = frozenset({15, 28})
# The driver must be opened again.
DRIVER_GONE = frozenset({1, 9, 18})
# Not found; and success, which the binding raises for an empty list.
NOTHING_THERE = frozenset({0, 6})
INVALID_ARGUMENT = 2  # of some drivers for an empty MIG slot

# Reads many field values at once. A driver that does not know one of them may refuse the whole call.
FIELDS = "nvmlDeviceGetFieldValues"
# Exceptions of the binding for answers that it cannot decode: a sentinel in a field that it adds up, or more
# records than there was room for.
BINDING_TROUBLE = (TypeError, ValueError, IndexError, OverflowError, MemoryError)
# Calls for which it matters whether they have ever been answered.
REMEMBERED = PICKING | {FIELDS}
MAX_RETRIES = 2
# Place of the calls that free resources of the driver.
FREEING = "freeing"


class DeviceLostError(Exception):
    """A GPU was lost while it was being read."""


class DeviceSlowError(Exception):
    """The time to read this GPU is over."""


class DeviceHangsError(DeviceSlowError):
    """A call about this device, or about this part of it, has not returned, so it is excluded."""


class DriverGoneError(Exception):
    """The driver was unloaded, upgraded or shut down; ``name`` is the name of the NVML error."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Calls:
    """Calls the driver from one thread; ``records`` are shared by all threads."""

    def __init__(self, records: CallRecords | None = None) -> None:
        self.records = CallRecords() if records is None else records
        # Monotonic time after which calls raise DeviceSlowError; None: no limit.
        self.deadline: float | None = None
        # The group of readings that the next calls are for; the readers set it.
        self.group = CORE
        self._watched = Watched(self.records.hanging_calls)
        self._place = ""

    def successor_if_hung(self, call_timeout: float) -> "Calls | None":
        """Abandon the thread if its call takes longer than ``call_timeout`` seconds.

        Return the calls of the next thread; None: the thread is not abandoned.
        """
        return Calls(self.records) if self._watched.abandon_if_hung(call_timeout) else None

    @contextmanager
    def about(self, place: str, device: str | None = None) -> Iterator[None]:
        """Make calls about one part of the node, which is excluded if one of them hangs.

        ``device`` is the uuid to count failures for, by default ``place``. Raises DeviceHangsError while the
        place is excluded.
        """
        hanging = self.records.hanging_calls
        if place in hanging:
            self.count(place if device is None else device, hanging.get(place, ""), HANGS)
            raise DeviceHangsError
        outer, self._place = self._place, place
        try:
            yield
        finally:
            self._place = outer

    def supports(self, device: str, name: str, *arguments: Any) -> bool:
        """Return whether a call with these arguments, without the device, may be supported."""
        return (name in ACCOUNTING or hasattr(pynvml, name)) and not self.records.has_refused(
            device, (name, arguments)
        )

    def refused(self, device: str, name: str, *arguments: Any) -> None:
        """Remember that a device does not support a call with these arguments."""
        self.records.refuse(device, (name, arguments), self.group)

    @contextmanager
    def shared(self, device: str, groups: Mapping[str, int]) -> Iterator[None]:
        """Make a call for several groups; ``groups`` has the number of readings of each.

        The call counts as ``CallRecords.share`` divides it.
        """
        outer, self.group = self.group, SHARED
        try:
            yield
        finally:
            self.group = outer
            self.records.share(device, groups)

    def ask(self, device: str, name: str, *arguments: Any, since: Any = None, none: Any = None) -> Any:
        """Return the driver's answer in Python types, or None without one.

        ``since`` is a last argument that is not part of the call's identity in the records of unsupported
        calls. ``none`` is returned if the driver answers that there is nothing.
        Raises DeviceLostError, DeviceSlowError and DriverGoneError: further calls would fail too.
        """
        call = (name, arguments[1:])
        function = CORRECTED.get(name) or ACCOUNTING.get(name) or getattr(pynvml, name, None)
        if function is None or self.records.has_refused(device, call):
            return None
        try:
            given = arguments if since is None else (*arguments, since)
            answer = self.timed(name, _with_retries, (function, given), device)
        except pynvml.NVMLLibraryMismatchError:
            self._remember(device, call)
        except pynvml.NVMLError as error:
            return self._failure(device, call, error, none)
        except BINDING_TROUBLE as error:
            self.count(device, name, type(error).__name__)
        else:
            if name in REMEMBERED:
                self.records.answered[device].add(call)
            return answer if type(answer) is int else to_python(answer)
        return None

    def first(
        self, device: str, handle: Any, calls: Iterable[Call], *, since: Any = None, none: Any = None
    ) -> Any:
        """Return the answer of the first of these calls that is supported, as ``ask`` does.

        The forms differ slightly in meaning, so a failure of one does not lead to another one.
        """
        for name, arguments in calls:
            answer = self.ask(device, name, handle, *arguments, since=since, none=none)
            if answer is not None or self.supports(device, name, *arguments):
                return answer
        return None

    def form(self, device: str, calls: Sequence[Call]) -> str:
        """Return the name of the first of these calls that is supported, else of the last one."""
        supported = (name for name, arguments in calls if self.supports(device, name, *arguments))
        return next(supported, calls[-1][0])

    def count(self, device: str, call: str, error: str) -> None:
        self.records.count(device, call, error, self.group)

    def free(self, name: str, function: Callable[..., Any], resource: Any) -> None:
        """Free a resource of the driver; errors are ignored."""
        with suppress(pynvml.NVMLError, DeviceSlowError), self.about(FREEING, ""):
            self.timed(name, function, (resource,))

    def timed(
        self, name: str, function: Callable[..., Any], arguments: tuple[Any, ...], device: str = ""
    ) -> Any:
        """Return the result of a function of the binding; count the call and its time.

        Raises DeviceSlowError after the deadline, AbandonedError if the thread was abandoned meanwhile, and
        the errors of the function.
        """
        began = time.monotonic()
        if self.deadline is not None and began > self.deadline:
            self.count(device, name, "TooSlow")
            raise DeviceSlowError
        self._watched.begin(self._place, name, began)
        try:
            return function(*arguments)
        finally:
            self._watched.end()
            self.records.seconds[self.group] += time.monotonic() - began
            self.records.asked[self.group] += 1

    def _failure(self, device: str, call: Call, error: Any, none: Any) -> Any:
        # The binding's errors can be neither hashed nor compared, but their codes can.
        code, invalid = error.value, error.value == INVALID_ARGUMENT
        missing = invalid and call[0] in PICKING and call not in self.records.answered[device]
        if code in UNSUPPORTED or missing:
            self._remember(device, call)
            return None
        if code in NOTHING_THERE or (invalid and call[0] in {SLOT, FIELDS}):
            return none
        name = error_name(error)
        self.count(device, call[0], name)
        if code in DRIVER_GONE:
            raise DriverGoneError(name)
        if code in LOST:
            raise DeviceLostError
        return None

    def _remember(self, device: str, call: Call) -> None:
        if call[0] not in FINDING:
            self.refused(device, call[0], *call[1])


def _with_retries(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Return the result of a call, repeated if a list grew between the calls for its size and its content."""
    for _ in range(MAX_RETRIES):
        try:
            return function(*arguments)
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                raise
    return function(*arguments)
