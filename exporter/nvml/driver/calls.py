"""One question to the driver, and what its answer means.

Every call of the sweep goes through ``Calls.ask``: a value, or None for "the driver does not say". What a
device does not support is remembered, so that it costs nothing and logs nothing at the next poll.
"""

import copy
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pynvml

from exporter.hangs import HANGS, Hangs
from exporter.nvml.driver.binding import CORRECTED, to_python
from exporter.nvml.driver.library import FINDING, PICKING, SLOT, error_name

# The device, the driver or the pair of them has no such reading, and will not have it at the next poll.
UNSUPPORTED = frozenset({3, 13, 25, 26})
# The device has gone; what else is asked of it would fail too.
LOST = frozenset({15, 28})
# The whole driver must be opened anew.
DRIVER_GONE = frozenset({1, 9, 18})
# Success in place of a list is an empty list that the binding takes for an error.
NOTHING_THERE = frozenset({0, 6})
# What some drivers say of an empty MIG slot.
INVALID_ARGUMENT = 2
# Many readings at once. A driver that does not know one of them may refuse the call as a whole.
FIELDS = "nvmlDeviceGetFieldValues"
# The binding's own trouble with an answer: a sentinel in a field that it adds up, a list of more records than
# there was room for.
BINDING_TROUBLE = (TypeError, ValueError, IndexError, OverflowError, MemoryError)
# Of these it matters later that they were answered once.
REMEMBERED = PICKING | {FIELDS}
INSUFFICIENT_SIZE = 7
MAX_RETRIES = 2
CORE = "core"
# What such a call is about.
GIVING_BACK = "giving back"
# The group of a call that is made for several groups, until its cost is shared out.
SHARED = ""
NOT_SUPPORTED = "not supported by this GPU or its driver"

Call = tuple[str, tuple[Any, ...]]


class DeviceLostError(Exception):
    """A GPU fell off the bus while it was being read."""


class DeviceSlowError(Exception):
    """A GPU takes so long to answer that the others would have to wait for it."""


class DeviceHangsError(DeviceSlowError):
    """A call about this device, or about this part of it, has not returned: nothing more is asked of it."""


class DriverGoneError(Exception):
    """The driver was unloaded, upgraded or shut down; ``name`` is NVML's name of the error."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Calls:
    """Asks the driver and remembers what failed.

    ``errors`` counts failures since start by (GPU uuid, call, error name), those of MIG devices with their
    parent (``parents`` tells it); answers that only say "there is none" or "not supported" are no failures.
    After ``deadline`` (monotonic clock) nothing is asked any more, None is no limit.
    ``group`` names what is being read: a reader sets it before it asks. ``asked`` and ``seconds`` count the
    calls of each group since start and the time spent in them, ``driver_microseconds`` is what the driver
    says that the field values of each group took in the sweep that is under way.
    ``hangs`` is what is left out since a call about it does not return; ``about`` says what is asked about.
    ``learnt`` is another number whenever something else is known not to be supported.
    """

    def __init__(self) -> None:
        self.errors: Counter[tuple[str, str, str]] = Counter()
        self.learnt = 0
        self._failures = 0
        self.parents: dict[str, str] = {}
        self.deadline: float | None = None
        self.group = CORE
        self.asked: Counter[str] = Counter()
        self.seconds: dict[str, float] = defaultdict(float)
        self.driver_microseconds: Counter[str] = Counter()
        self._unsupported: dict[str, dict[Call, str]] = defaultdict(dict)
        self._answered: dict[str, set[Call]] = defaultdict(set)
        self._failed: dict[str, dict[str, str]] = defaultdict(dict)
        self._hangs = Hangs()
        self._watched = self._hangs.watch()
        self._place = ""

    @property
    def hanging(self) -> frozenset[str]:
        """What calls ask about that do not return, in threads that were left behind in the driver."""
        return frozenset(self._hangs.calls)

    def leave(self, patience: float) -> "Calls | None":
        """Leave the thread behind whose call takes longer than so many seconds; None where there is none.

        Returns the calls of the thread that goes on in its place, which know what these have learnt.
        """
        if not self._watched.leave(patience):
            return None
        successor = copy.copy(self)
        successor.deadline, successor.group, successor._place = None, CORE, ""  # noqa: SLF001 - it is one of these
        successor._watched = successor._hangs.watch()  # noqa: SLF001
        return successor

    @contextmanager
    def about(self, place: str, device: str | None = None) -> Iterator[None]:
        """Ask about one part of the node, which is left out alone if a call about it hangs.

        ``device`` is whose failures those are, by default ``place`` itself. Raises DeviceHangsError.
        """
        if place in self._hangs.calls:
            self.count(place if device is None else device, self._hangs.calls.get(place, ""), HANGS)
            raise DeviceHangsError
        before, self._place = self._place, place
        try:
            yield
        finally:
            self._place = before

    def unsupported(self, device: str) -> tuple[str, ...]:
        """Name the calls that this device is known not to support; one that can tell some things is none."""
        names = {name for name, _ in self._unsupported.get(device, ())}
        return tuple(sorted(names - {name for name, _ in self._answered.get(device, ())}))

    def begin(self, gpu: str) -> None:
        """Start a new pass over a GPU: what failed in the last one is no reason any more."""
        self._failed.pop(gpu, None)

    def withheld(self, gpu: str) -> dict[str, str]:
        """Return by group why some readings of a GPU are missing: not supported, or the last error."""
        missing = dict.fromkeys(self._unsupported.get(gpu, {}).values(), NOT_SUPPORTED)
        missing.pop(SHARED, None)
        return missing | self._failed.get(gpu, {})

    def forget_unsupported(self, device: str | None = None, name: str | None = None) -> None:
        """Ask everything again: of one device when its layout changed, of all when the driver did.

        With ``name``, ask that one call again.
        """
        self.learnt += 1
        if device is None:
            self._unsupported.clear()
            self._answered.clear()
        elif name is not None:
            self._unsupported[device].pop((name, ()), None)
        else:
            self._unsupported.pop(device, None)
            self._answered.pop(device, None)

    def supports(self, device: str, name: str, *arguments: Any) -> bool:
        """Return whether a call with these arguments (after the device) is worth asking."""
        return hasattr(pynvml, name) and (name, arguments) not in self._unsupported.get(device, ())

    def refused(self, device: str, name: str, *arguments: Any) -> None:
        """Remember that a device does not have this, as the caller saw in an answer."""
        self.learnt += 1
        self._unsupported[device][name, arguments] = self.group

    @contextmanager
    def shared(self, device: str, groups: Mapping[str, int]) -> Iterator[None]:
        """Ask for several groups at once; ``groups`` counts the readings of each that are asked for.

        The time is shared out by readings, a failure is each group's own, and the call counts once.
        """
        before, self.group = self.group, SHARED
        try:
            yield
        finally:
            self.group = before
            failed = self._failed[self.parents.get(device, device)]
            reason = failed.pop(SHARED, None)
            spent = self.seconds.pop(SHARED, 0.0)
            self.asked[CORE] += self.asked.pop(SHARED, 0)
            readings = sum(groups.values())
            for group, count in groups.items():
                self.seconds[group] += spent * count / readings
                if reason is not None:
                    failed[group] = reason

    def ask(self, device: str, name: str, *arguments: Any, since: Any = None, none: Any = None) -> Any:
        """Return the driver's answer in plain Python types, or None where it has none.

        ``since`` is a last argument that changes from poll to poll; what is not supported is not so because
        of it. ``none`` is returned instead of None when the driver did answer, and the answer was that there
        is nothing.
        Raises DeviceLostError, DeviceSlowError and DriverGoneError, which make further questions pointless.
        """
        call = (name, arguments[1:])
        function = CORRECTED.get(name) or getattr(pynvml, name, None)
        if function is None or call in self._unsupported.get(device, ()):
            return None
        try:
            given = arguments if since is None else (*arguments, since)
            answer = self.timed(name, _called, (function, given), device)
        except pynvml.NVMLLibraryMismatchError:
            self._remember(device, call)
        except pynvml.NVMLError as error:
            return self._failure(device, call, error, none)
        except BINDING_TROUBLE as error:
            self.count(device, name, type(error).__name__)
        else:
            if name in REMEMBERED:
                self._answered[device].add(call)
            return answer if type(answer) is int else to_python(answer)
        return None

    def first(self, device: str, handle: Any, calls: Iterable[Call]) -> Any:
        """Ask the newest call, and an older form of it only where the newer one is not supported.

        The forms mean slightly different things: a call that failed once must not change the meaning.
        """
        for name, arguments in calls:
            answer = self.ask(device, name, handle, *arguments)
            if answer is not None or self.supports(device, name, *arguments):
                return answer
        return None

    def count(self, device: str, call: str, error: str) -> None:
        """Count a failure that the caller saw in an answer."""
        gpu = self.parents.get(device, device)
        self.errors[gpu, call, error] += 1
        self._failures += 1
        self._failed[gpu][self.group] = error

    def give_back(self, name: str, function: Callable[..., Any], lent: Any) -> None:
        """Give back what the driver lent. Whatever it answers, there is nothing to be done about it."""
        with suppress(pynvml.NVMLError, DeviceSlowError), self.about(GIVING_BACK, ""):
            self.timed(name, function, (lent,))

    def failures(self) -> int:
        """Return how many calls have failed since start."""
        return self._failures

    def timed(
        self, name: str, function: Callable[..., Any], arguments: tuple[Any, ...], device: str = ""
    ) -> Any:
        """Call a function of the binding, and count the call and the time that it took."""
        began = time.monotonic()
        if self.deadline is not None and began > self.deadline:
            self.count(device, name, "TooSlow")
            raise DeviceSlowError
        self._watched.begin(self._place, name, began)
        try:
            return function(*arguments)
        finally:
            self._watched.end()
            self.seconds[self.group] += time.monotonic() - began
            self.asked[self.group] += 1

    def _failure(self, device: str, call: Call, error: Any, none: Any) -> Any:
        # The code is read from the error; the binding's errors can be neither hashed nor compared.
        code, invalid = error.value, error.value == INVALID_ARGUMENT
        lacking = invalid and call[0] in PICKING and call not in self._answered[device]
        if code in UNSUPPORTED or lacking:
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


def _called(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Ask, and again where a list grew between the questions for its size and for its content."""
    for _ in range(MAX_RETRIES):
        try:
            return function(*arguments)
        except pynvml.NVMLError as error:
            if error.value != INSUFFICIENT_SIZE:
                raise
    return function(*arguments)
