"""What devices answer: NVML's structures as the driver filled them, AMD's table of metrics and sysfs."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pynvml

from exporter.demo.amd_metrics import TABLES, table
from exporter.hardware.amd.cards import find_cards
from exporter.hardware.amd.files import Files, properties, to_number
from exporter.hardware.amd.gpu import CardReader
from exporter.hardware.amd.kfd import KfdReader
from exporter.hardware.amd.metrics import is_of_processor, parse
from exporter.hardware.library import DriverError
from exporter.hardware.sweep import Sweeper
from exporter.model import GpuReading, MigReading
from tests.fuzz.noisy import Noisy, Tape
from tests.fuzz.promises import BrokenPromiseError
from tests.fuzz.seeds import MARK, Scratch
from tests.fuzz.target import Target
from tests.hardware.amd.tree import Tree
from tests.hardware.making import LARGE, SMALL, Driver, gpu, nvml, process

FILES_OF_CARD = 24


@cache
def _driver(kind: str) -> tuple[Driver, Noisy]:
    """Make a driver of one GPU, without events: they come from a thread of their own."""
    boards = {
        "whole": gpu("a"),
        "cut": gpu("a", SMALL, LARGE),
    }
    driver = Driver(
        boards[kind], missing=("nvmlEventSetCreate",), host_processes=[process(41, _device(kind))]
    )
    return driver, Noisy(driver.library)


def _device(kind: str) -> str:
    return "GPU-a" if kind == "whole" else "MIG-small"


def _sweep(kind: str, content: bytes) -> Any:
    """Read a driver once that answers as the input says; what is told by a clock is left out."""
    driver, library = _driver(kind)
    driver.library.closes()
    driver.library.opened = 0
    library.tape = Tape(content)
    sweeper = Sweeper(nvml(library))
    try:
        found = [_timeless(each) for each in sweeper.sweep()]
    finally:
        library.tape = Tape()
        sweeper.close()
        pynvml.nvmlLib = None
    return found, sweeper.driver, sweeper.gpu_count


def _timeless(reading: GpuReading) -> GpuReading:
    return replace(reading, read_at=0.0, read_monotonic=0.0, boot_seconds=None)


def _check_readings(told: tuple[Sequence[GpuReading], Any, Any]) -> None:
    """Nothing that is used is more than there is, and no share is more than all."""
    for reading in told[0]:
        _check_reading(reading)
        for mig in reading.mig or ():
            _check_reading(mig)


def _check_reading(reading: GpuReading | MigReading) -> None:
    memory = reading.memory
    if memory is not None and max(memory.used, memory.free) > memory.total:
        raise BrokenPromiseError(f"{memory} is more than the device has")
    percents = [reading.utilization_percent]
    if isinstance(reading, GpuReading):
        percents.append(reading.memory_copy_percent)
    used: Iterable[float | None] = (reading.process_utilization or {}).values()
    for percent in (*percents, *used):
        if percent is not None and not 0 <= percent <= 100:
            raise BrokenPromiseError(f"{percent} percent of a device")
    for each in reading.processes or ():
        if each.pid < 1:
            raise BrokenPromiseError(f"a process of pid {each.pid}")
        if each.memory is not None and memory is not None and not 0 <= each.memory <= memory.total:
            raise BrokenPromiseError(f"a process has {each.memory} of {memory.total} bytes")


def _metrics(content: bytes) -> Any:
    told = parse(content)
    return (
        told,
        told.energy_millijoules,
        [told.busy(count) for count in (None, 0, 1, 4, 8)],
        is_of_processor(content),
    )


def _tables() -> list[bytes]:
    values = {"average_gfx_activity": 37, "temperature_hotspot": 61, "energy_accumulator": 1 << 30}
    described = (
        b"\x30\x00\x01\x09\x02\x00\x00\x00" + ((4 << 10) | (2 << 20) | 1).to_bytes(8, "little") + b"\x25\x00"
    )
    return [described, *(table(version, values, [[10] * 8] * 2) for version in TABLES)]


@cache
def _card() -> tuple[Tree, tuple[tuple[Path, bytes], ...]]:
    """Write a card with a process and its node of KFD; return its files."""
    tree = Tree(Scratch().path)
    tree.card(gpu_metrics=_tables()[3], current_compute_partition="SPX", current_memory_partition="NPS1")
    tree.node()
    tree.process(41, 1 << 30, 12)
    tree.write(tree.kfd / "topology/generation_id", "2")
    files = sorted(path for path in tree.sys.rglob("*") if path.is_file())
    return tree, tuple((path, path.read_bytes()) for path in files)


def _amd(content: bytes) -> Any:
    """Read a card of which some files say what the input has: a number, and the text of the file, each."""
    tree, files = _card()
    changed = [(files[part[0] % len(files)], part[1:]) for part in content.split(MARK, FILES_OF_CARD) if part]
    for (path, _), text in changed:
        path.write_bytes(text)
    try:
        return _read_cards(tree)
    finally:
        for (path, before), _ in changed:
            path.write_bytes(before)


def _read_cards(tree: Tree) -> Any:
    told = Files()
    cards = find_cards(told, tree.sys)
    kfd = KfdReader(told, tree.sys, tree.proc).read()
    reader = CardReader(told, lambda: 77.5, lambda: 0.0)
    return [_timeless(reader.read(card, kfd, 1)) for card in cards], dict(told.errors), kfd.nodes


def _sysfs(content: bytes) -> Any:
    text = content.decode("utf-8", "replace")
    return to_number(text), {name: to_number(value) for name, value in properties(text, " ").items()}


def _amd_seeds() -> list[bytes]:
    _, files = _card()
    return [bytes([place]) + text for place, (_, text) in enumerate(files)]


TARGETS = (
    Target(
        name="nvml-whole",
        covers=(
            "exporter.hardware.answers",
            "exporter.hardware.calls",
            "exporter.hardware.device",
            "exporter.hardware.field_reader",
            "exporter.hardware.gpu",
            "exporter.hardware.identity",
            "exporter.hardware.memory",
            "exporter.hardware.processes",
            "exporter.hardware.samples",
            "exporter.hardware.sweep",
            "exporter.hardware.vgpu",
        ),
        seeds=lambda: [bytes(4), bytes(20) + b"\x80\x00\x08" + b"\xff" * 8, bytes(30) + b"\xe3" + bytes(20)],
        decode=lambda content: _sweep("whole", content),
        refuses=(DriverError,),
        check=_check_readings,
        words=(b"\xff" * 8, b"\xe3", b"\xef", b"\x80\x00\x08", b"\x80\x00\x3f"),
        cost=50,
    ),
    Target(
        name="nvml-cut",
        covers=("exporter.hardware.mig", "exporter.hardware.placement"),
        seeds=lambda: [bytes(4), bytes(40) + b"\x80\x00\x08" + b"\xff" * 8],
        decode=lambda content: _sweep("cut", content),
        refuses=(DriverError,),
        check=_check_readings,
        words=(b"\xff" * 8, b"\xe3", b"\xef", b"\x80\x00\x08", b"\x80\x00\x3f"),
        cost=50,
    ),
    Target(
        name="amd-metrics",
        covers=("exporter.hardware.amd.metrics", "exporter.hardware.amd.attributes"),
        seeds=_tables,
        decode=_metrics,
        words=(b"\xff\xff", b"\x00\x00\x00\x80"),
    ),
    Target(
        name="amd-sysfs",
        covers=("exporter.hardware.amd.files",),
        seeds=lambda: [b"simd_count 416\nlocation_id 6400\n", b"12345\n", b"-1"],
        decode=_sysfs,
        words=(b"18446744073709551616", "٣".encode(), b"-0"),
    ),
    Target(
        name="amd-card",
        covers=(
            "exporter.hardware.amd.cards",
            "exporter.hardware.amd.gpu",
            "exporter.hardware.amd.kfd",
            "exporter.hardware.amd.partitions",
            "exporter.hardware.amd.processes",
            "exporter.hardware.amd.sensors",
            "exporter.hardware.amd.topology",
        ),
        seeds=_amd_seeds,
        decode=_amd,
        check=lambda told: _check_readings((told[0], None, None)),
        words=(b"-1", b"18446744073709551615", b"\xff\xff\xff\xff", b"0"),
        cost=20,
    ),
)
