"""Lists whose size the driver returns: an implausible one allocates nothing, others are as the binding's."""

import tracemalloc
from collections.abc import Callable, Iterator
from ctypes import Union
from typing import Any

import pynvml
import pytest

from exporter.nvml.driver.binding import CORRECTED, MOST_RECORDS
from exporter.nvml.driver.library import Library
from tests.core.hardware.tiny import HANDLE, NOT_AVAILABLE, Function, answers, context, installed, library

GPU = "GPU-a"
PLAIN = tuple(f"nvmlDeviceGet{kind}RunningProcesses" for kind in ("Compute", "Graphics", "MPSCompute"))
PROCESSES = tuple(name + version for name in PLAIN for version in ("", "_v2"))
SAMPLES, VGPU_SAMPLES = "nvmlDeviceGetProcessUtilization", "nvmlDeviceGetVgpuUtilization"
VGPUS = "nvmlDeviceGetActiveVgpus"
LISTS = (*PROCESSES, SAMPLES, VGPU_SAMPLES, VGPUS)
RECORDS: dict[str, tuple[dict[str, int], ...]] = {
    SAMPLES: ({"pid": 41, "timeStamp": 7, "smUtil": 60}, {"pid": 42, "timeStamp": 9, "smUtil": 3}),
    VGPU_SAMPLES: ({"vgpuInstance": 11, "timeStamp": 7}, {"vgpuInstance": 12, "timeStamp": 8}),
    VGPUS: ({"value": 11}, {"value": 12}),
}
OF_PROCESSES = (context(41, 100), context(42, NOT_AVAILABLE, gi=3, ci=0), context(0, 0))
# Where the count and the array stand among what the driver is given.
PLACES = {SAMPLES: (2, 1), VGPU_SAMPLES: (3, 4)}
EMPTY, ORDINARY, GROWN = 0, 3, 9
NOT_SUPPORTED, INSUFFICIENT_SIZE, UNKNOWN = 3, 7, 999


class Listing:
    """A function of the driver that lists records; ``rooms`` has the length of the array of each call.

    ``counts`` are the sizes that it returns, the last one from then on; ``code`` is its answer to a call
    with an array.
    """

    def __init__(self, name: str, *counts: int, code: int = 0) -> None:
        self.rooms: list[int | None] = []
        self.stamps: list[int] = []
        self._records = RECORDS.get(name, OF_PROCESSES)
        self._counts = counts or (len(self._records),)
        self._count, self._array = PLACES.get(name, (1, 2))
        self._code = code

    def __call__(self, *arguments: Any) -> int:
        """Return the size, or fill the array."""
        count, array = arguments[self._count]._obj, arguments[self._array]
        self.rooms.append(None if array is None else len(array))
        self.stamps += [one.value for one in arguments[1:] if hasattr(one, "value")]
        assert count.value == (self.rooms[-1] or 0)
        count.value = self._counts[min(len(self.rooms), len(self._counts)) - 1]
        if array is None:
            return INSUFFICIENT_SIZE if count.value else 0
        for place, record in zip(range(min(count.value, len(array))), self._records, strict=False):
            _write(array, place, record)
        return self._code


def _write(array: Any, place: int, record: dict[str, int]) -> None:
    if "value" in record:
        array[place] = record["value"]
        return
    for name, value in record.items():
        setattr(array[place], name, value)


def function_of(name: str) -> str:
    """Return the name in the driver's library: the binding calls the newest version by the plain name."""
    return f"{name}_v3" if name in PLAIN else name


def arguments_of(name: str) -> tuple[Any, ...]:
    """Return the arguments of a call."""
    return (HANDLE, 5) if name in PLACES else (HANDLE,)


def outcome(call: Callable[..., Any], name: str, function: Function | None) -> Any:
    """Return the values of a call to a library with this function, or without it, or what it raises."""
    opened = Library(library=library(**({} if function is None else {function_of(name): function})))
    opened.open()
    try:
        answer = call(*arguments_of(name))
    except IndexError:
        return IndexError
    except pynvml.NVMLLibraryMismatchError:
        # How the binding reports a missing function whose name has no version.
        missing = pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return type(missing), str(missing)
    except pynvml.NVMLError as error:
        return type(error), str(error)
    finally:
        opened.close()
    assert type(answer) is list
    return [_fields(record) for record in answer]


def _fields(record: Any) -> Any:
    if isinstance(record, int):
        return record
    if isinstance(record, pynvml.nvmlFriendlyObject):
        return vars(record)
    if isinstance(record, tuple):
        return record._asdict()
    values = {name: getattr(record, name) for name, *_ in record._fields_}
    return {name: bytes(value) if isinstance(value, Union) else value for name, value in values.items()}


def function_pairs(name: str) -> Iterator[tuple[Function | None, Function | None]]:
    """Yield each function twice, for the call of the binding and for its replacement."""
    yield None, None
    for code in (0, NOT_SUPPORTED, UNKNOWN):
        yield answers(code), answers(code)
    for counts in ((), (EMPTY,), (1, 1), (ORDINARY, GROWN), (ORDINARY, MOST_RECORDS)):
        for code in (0, INSUFFICIENT_SIZE, UNKNOWN):
            yield Listing(name, *counts, code=code), Listing(name, *counts, code=code)


@pytest.mark.parametrize("name", LISTS)
def test_answers_are_those_of_the_binding(name: str):
    """Values, errors, the size of the array, and the number of calls."""
    for theirs, ours in function_pairs(name):
        assert outcome(CORRECTED[name], name, ours) == outcome(getattr(pynvml, name), name, theirs)
        if isinstance(ours, Listing) and isinstance(theirs, Listing):
            assert ours.rooms == theirs.rooms
            assert ours.stamps == theirs.stamps


def test_a_list_is_sized_and_then_read_with_room_to_grow():
    listing = Listing(PROCESSES[0])
    answer = outcome(CORRECTED[PROCESSES[0]], PROCESSES[0], listing)
    assert [record["usedGpuMemory"] for record in answer] == [100, None, 0]
    assert listing.rooms == [None, 11]
    listing = Listing(SAMPLES)
    assert len(outcome(CORRECTED[SAMPLES], SAMPLES, listing)) == 2
    assert (listing.rooms, listing.stamps) == ([None, 2], [5, 5])


@pytest.mark.parametrize("name", LISTS)
def test_a_size_returned_with_success_is_no_empty_list(name: str):
    """The binding takes it for one, and every process on the device for idle."""
    listing = Listing(name)

    def function(*arguments: Any) -> int:
        code = listing(*arguments)
        return 0 if listing.rooms == [None] else code

    calls = installed(**{function_of(name): function})
    assert len(calls.ask(GPU, name, *arguments_of(name))) == len(RECORDS.get(name, OF_PROCESSES))
    assert len(listing.rooms) == 2
    assert calls.records.errors == {}


@pytest.mark.parametrize("count", [MOST_RECORDS + 1, 2**32 - 1])
@pytest.mark.parametrize("name", LISTS)
def test_an_implausible_count_is_an_error_and_allocates_nothing(name: str, count: int):
    listing = Listing(name, count)
    calls = installed(**{function_of(name): listing})
    tracemalloc.start()
    try:
        assert calls.ask(GPU, name, *arguments_of(name)) is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert calls.records.errors == {(GPU, name, "MemoryError"): 1}
    assert listing.rooms == [None]
    assert peak < 1 << 20
    assert calls.supports(GPU, name)


@pytest.mark.parametrize("name", LISTS)
def test_the_longest_plausible_list_is_read(name: str):
    listing = Listing(name, MOST_RECORDS, 1)
    calls = installed(**{function_of(name): listing})
    assert len(calls.ask(GPU, name, *arguments_of(name))) == 1
    assert listing.rooms == [None, MOST_RECORDS * 2 + 5 if name in PROCESSES else MOST_RECORDS]
    assert calls.records.errors == {}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_that_grew_is_read_again(name: str):
    listing = Listing(name, code=INSUFFICIENT_SIZE)

    def function(*arguments: Any) -> int:
        listing._code = INSUFFICIENT_SIZE if len(listing.rooms) < 2 else 0
        return listing(*arguments)

    calls = installed(**{function_of(name): function})
    assert len(calls.ask(GPU, name, *arguments_of(name))) == len(RECORDS.get(name, OF_PROCESSES))
    assert len(listing.rooms) == 4
    assert calls.records.errors == {}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_that_grows_without_end_is_an_error(name: str):
    listing = Listing(name, code=INSUFFICIENT_SIZE)
    calls = installed(**{function_of(name): listing})
    assert calls.ask(GPU, name, *arguments_of(name)) is None
    assert len(listing.rooms) == 6
    assert calls.records.errors == {(GPU, name, "InsufficientSize"): 1}


@pytest.mark.parametrize("name", PLAIN)
def test_a_driver_without_the_newest_form_is_asked_for_the_older(name: str):
    calls = installed(**{f"{name}_v2": Listing(name)})
    records = calls.first(GPU, HANDLE, [(name, ()), (f"{name}_v2", ())])
    assert [record.pid for record in records] == [41, 42, 0]
    assert calls.records.unsupported(GPU) == (name,)
    assert calls.records.errors == {}
