"""NVML's structures as a driver filled them: whole sweeps, some rows of the tables, and MIG devices alone."""

from functools import cache
from typing import Any

from exporter.model import GpuIdentity, GpuReading, MigReading
from exporter.nvml.driver.calls import DeviceLostError, DriverGoneError
from exporter.nvml.driver.library import DriverError
from exporter.nvml.mig import MigReader
from exporter.nvml.mig_layout import LayoutReader
from exporter.nvml.readings.answers import ask_row, set_path
from exporter.nvml.readings.device import ENERGY_ROWS, FIXED_ROWS, ROWS, SLOW_ROWS, THROUGHPUT_ROWS
from exporter.nvml.readings.device_reader import with_records
from exporter.nvml.readings.gpu_processes import ProcessLists
from exporter.nvml.sweep import Sweeper
from tests.core.hardware.making import GIB, LARGE, SMALL, Driver, gpu, nvml, process
from tests.together.fuzz.devices import require_believable, require_believable_part, timeless
from tests.together.fuzz.promises import BrokenPromiseError
from tests.together.fuzz.spoiled import Spoiled
from tests.together.fuzz.target import Target

# Events come in a thread of their own, of masks of processors thousands of bits are looked at, and the others
# are asked many times of every GPU: these have targets of their own, and would only make sweeps slower.
ELSEWHERE = (
    "nvmlEventSetCreate",
    "nvmlDeviceGetCpuAffinity",
    "nvmlDeviceGetMemoryAffinity",
    "nvmlDeviceGetMemoryErrorCounter",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetApplicationsClock",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetTemperatureThreshold",
)
# All that a GPU is asked by the tables, and how much of it for one input.
TABLE = (*ROWS, *ENERGY_ROWS, *SLOW_ROWS, *FIXED_ROWS, *THROUGHPUT_ROWS)
MOST_ROWS = 6
# The call under which a sweep counts an error of our own, so that it costs only the GPU that it was about.
BROKEN = "read"
# All bits of an answer, errors, the first eight bytes of an answer, its first 63, another answer.
WORDS = (b"\xff" * 8, b"\xe3", b"\xef", b"\xff", b"\x80\x00\x08" + b"\xff" * 8, b"\x80\x00\x3f", b"\x80\x00")
SPOILT = (b"\x80\x00\x08" + b"\xff" * 8, b"\x81\x00\x01\x07", b"\xe3", b"\xff")


def seeds(calls: int, every: int = 5, head: bytes = b"") -> list[bytes]:
    """Make inputs that leave all well, and that spoil or refuse one of so many calls."""
    return [head, *(head + bytes(place) + spoil for place in range(0, calls, every) for spoil in SPOILT)]


@cache
def _whole() -> Spoiled:
    return Spoiled(Driver(gpu("a"), missing=ELSEWHERE, host_processes=[process(41, "GPU-a")]).library)


@cache
def _cut() -> Spoiled:
    processes = [process(41, "MIG-small")]
    return Spoiled(Driver(gpu("a", SMALL, LARGE), missing=ELSEWHERE, host_processes=processes).library)


def _sweep(content: bytes) -> Any:
    """Read a driver once that answers as the input says; its first byte chooses the board.

    What is told by a clock is left out.
    """
    driver = _cut() if content[:1] == b"c" else _whole()
    sweeper = Sweeper(nvml(driver.library))
    try:
        with driver.by(content[1:]):
            found = [timeless(each) for each in sweeper.sweep()]
    finally:
        sweeper.close()
    broken = [error for _, call, error in sweeper.calls.records.errors if call == BROKEN]
    return found, sweeper.driver, sweeper.gpu_count, broken


def _check(told: tuple[Any, Any, Any, list[str]]) -> None:
    """Require that an answer costs what it is about, and not all that is known of its GPU."""
    require_believable(told[0])
    if told[3]:
        raise BrokenPromiseError(f"a GPU was given up for {sorted(told[3])}")


@cache
def _open() -> Spoiled:
    # With a fabric, which a GPU has from Hopper on.
    return Spoiled(Driver(gpu("a", architecture=9, links={"nvlinks": 18, "switch": True})).library)


def _rows(content: bytes) -> GpuReading | None:
    """Read some rows of the tables of a GPU, of which the first byte tells the first."""
    first = (content[:1] or b"\0")[0] % len(TABLE)
    driver, found = _open(), dict[Any, Any]()
    with driver.opened(content[1:]) as calls:
        try:
            for row in (*TABLE, *TABLE)[first : first + MOST_ROWS]:
                set_path(found, row.into, ask_row(calls, "GPU-a", driver.handles["GPU-a"], row))
        except DeviceLostError:
            return None
    return GpuReading(identity=GpuIdentity(uuid="GPU-a", index=0), **with_records(found))


def _migs(content: bytes) -> Any:
    """Find the MIG devices of a GPU and read them, twice: those that were found are checked then."""
    driver = _cut()
    with driver.opened(content) as calls:
        layouts, handle = LayoutReader(), driver.handles["GPU-a"]
        reader = MigReader(layouts, ProcessLists(), ())
        try:
            found: list[MigReading] = []
            for _ in range(2):
                layout = layouts.read(calls, "GPU-a", handle, reported=True)
                found += reader.read(calls, layout, 16 * GIB if layout.complete else None) or ()
        except DeviceLostError:
            return None
        marks = [mark for mark, _ in layout.devices or ()]
        return layout.enabled, layout.slices, layout.complete, layout.unread, marks, found


def _check_migs(told: Any) -> None:
    for each in (told and told[-1]) or ():
        _check_part(each)


def _check_part(mig: MigReading) -> None:
    require_believable_part(mig)
    if not mig.uuid:
        raise BrokenPromiseError(f"a MIG device without a name: {mig}")


TARGETS = (
    Target(
        name="nvml-sweep",
        covers=(
            "exporter.nvml.readings.device",
            "exporter.nvml.readings.device_reader",
            "exporter.nvml.readings.field_reader",
            "exporter.nvml.gpu",
            "exporter.nvml.facts",
            "exporter.nvml.sweep",
        ),
        seeds=lambda: [*seeds(60, 8, head=b"w"), *seeds(90, 12, head=b"c")],
        decode=_sweep,
        refuses=(DriverError,),
        check=_check,
        words=WORDS,
        cost=10,
    ),
    Target(
        name="nvml-rows",
        covers=(
            "exporter.nvml.readings.answers",
            "exporter.nvml.readings.fabric",
            "exporter.nvml.driver.calls",
        ),
        seeds=lambda: [bytes([place]) + spoil for place in range(len(TABLE)) for spoil in (b"", SPOILT[0])],
        decode=_rows,
        refuses=(DriverGoneError,),
        check=lambda told: require_believable(filter(None, [told])),
        words=WORDS,
        cost=2,
    ),
    Target(
        name="nvml-migs",
        covers=("exporter.nvml.mig", "exporter.nvml.mig_layout"),
        seeds=lambda: seeds(50, 7),
        decode=_migs,
        refuses=(DriverGoneError,),
        check=_check_migs,
        words=WORDS,
        cost=4,
    ),
)
