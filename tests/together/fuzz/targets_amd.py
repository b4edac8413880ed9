"""What AMD's devices answer: the table of metrics, sysfs, and the process table of KFD."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from exporter.amd.amd_source import CardReader
from exporter.amd.cards import find_cards
from exporter.amd.gpu_metrics import is_of_processor, parse
from exporter.amd.kfd import KfdReader
from exporter.amd.sysfs_file import Files, properties, to_number
from exporter.demo.amd_tree import TABLES, table
from exporter.workloads.pid_namespace import counts_machine_pids
from tests.core.hardware.amd.tree import Tree
from tests.together.fuzz.devices import require_believable, timeless
from tests.together.fuzz.seeds import MARK, Scratch
from tests.together.fuzz.target import Target

FILES_OF_CARD = 24


def _metrics(content: bytes) -> Any:
    told = parse(content)
    return (
        told,
        told.energy_millijoules,
        [told.partition_activity(count) for count in (None, 0, 1, 4, 8)],
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


class Kept(Files):
    """Files of a tree that stands still, each of which is read from disk once for all inputs.

    Those of ``changed``, by their paths, say what an input has in their place.
    """

    contents: ClassVar[dict[str, bytes | None]] = {}
    folders: ClassVar[dict[str, tuple[str, ...]]] = {}

    def __init__(self, changed: Mapping[str, bytes]) -> None:
        super().__init__()
        self._changed = changed

    def content(self, path: Path) -> bytes | None:
        """Return the bytes of a file."""
        name = str(path)
        if name in self._changed:
            return self._changed[name]
        if name not in self.contents:
            self.contents[name] = super().content(path)
        return self.contents[name]

    def names(self, folder: Path) -> tuple[str, ...]:
        """List a folder."""
        name = str(folder)
        if name not in self.folders:
            self.folders[name] = super().names(folder)
        return self.folders[name]


def _amd(content: bytes) -> Any:
    """Read a card of which some files say what the input has: a number, and the text of the file, each."""
    tree, files = _card()
    parts = filter(None, content.split(MARK, FILES_OF_CARD))
    told = Kept({str(files[part[0] % len(files)][0]): part[1:] for part in parts})
    cards = find_cards(told, tree.sys, {}).values()
    kfd = KfdReader(told, tree.sys, lambda: counts_machine_pids(tree.proc)).read()
    reader = CardReader(told, lambda: 77.5, lambda: 0.0)
    return [timeless(reader.read(card, kfd, 1)) for card in cards], dict(told.errors), kfd.nodes


def _sysfs(content: bytes) -> Any:
    text = content.decode("utf-8", "replace")
    return to_number(text), {name: to_number(value) for name, value in properties(text, " ").items()}


def _amd_seeds() -> list[bytes]:
    _, files = _card()
    return [bytes([place]) + text for place, (_, text) in enumerate(files)]


TARGETS = (
    Target(
        name="amd-metrics",
        covers=("exporter.amd.gpu_metrics",),
        seeds=_tables,
        decode=_metrics,
        words=(b"\xff\xff", b"\x00\x00\x00\x80"),
    ),
    Target(
        name="amd-sysfs",
        covers=("exporter.amd.sysfs_file",),
        seeds=lambda: [b"simd_count 416\nlocation_id 6400\n", b"12345\n", b"-1"],
        decode=_sysfs,
        words=(b"18446744073709551616", "٣".encode(), b"-0"),
    ),
    Target(
        name="amd-card",
        covers=(
            "exporter.amd.cards",
            "exporter.amd.amd_source",
            "exporter.amd.kfd",
            "exporter.amd.card_parts",
            "exporter.amd.card_readings",
        ),
        seeds=_amd_seeds,
        decode=_amd,
        check=lambda told: require_believable(told[0]),
        words=(b"-1", b"18446744073709551615", b"\xff\xff\xff\xff", b"0"),
        cost=5,
    ),
)
