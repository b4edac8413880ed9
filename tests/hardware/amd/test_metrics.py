"""The binary table of metrics: the layouts that are known, and what is not believed."""

import struct

import pytest

from exporter.amd.gpu_metrics import LAYOUTS, Metrics, parse
from exporter.demo import amd_tree

ALL_ONES = b"\xff"
ONES = 0xFFFFFFFF


def by_hand(version: tuple[int, int], size: int, *fields: tuple[int, str, int]) -> bytes:
    """Write a table from offsets, as they are counted in the kernel's header by hand."""
    table = bytearray(ALL_ONES * size)
    struct.pack_into("<HBB", table, 0, size, *version)
    for offset, kind, value in fields:
        struct.pack_into(f"<{kind}", table, offset, value)
    return bytes(table)


@pytest.mark.parametrize(("version", "size"), [((1, 1), 96), ((1, 2), 104), ((1, 3), 120)])
def test_the_boards_before_mi300(version: tuple[int, int], size: int) -> None:
    """Three versions that only grow at their end."""
    table = by_hand(
        version, size, (4, "H", 45), (6, "H", 60), (8, "H", 57), (16, "H", 71), (18, "H", 22), (22, "H", 190),
        (24, "Q", 1 << 40),
    )  # fmt: skip
    assert parse(table) == Metrics(
        edge=45, hotspot=60, memory=57, activity=71, memory_activity=22, watts=190, energy=1 << 40
    )


@pytest.mark.parametrize(
    ("version", "size", "energy", "replays"),
    [
        ((1, 4), 288, 24, 88),
        ((1, 5), 328, 56, 120),
        ((1, 6), 1664, 16, 104),
        ((1, 7), 2208, 24, 112),
        ((1, 8), 3872, 24, 112),
    ],
)
def test_mi300_and_later(version: tuple[int, int], size: int, energy: int, replays: int) -> None:
    """They have no sensor at the edge, say what energy is counted in, and count replays."""
    table = by_hand(
        version, size, (4, "H", 60), (6, "H", 57), (10, "H", 500), (12, "H", 71), (14, "H", 22),
        (energy, "Q", 65536), (replays, "Q", 9),
    )  # fmt: skip
    found = parse(table)
    assert (found.hotspot, found.memory, found.watts, found.activity) == (60, 57, 500, 71)
    assert (found.memory_activity, found.energy_millijoules, found.pcie_replays) == (22, 1000, 9)
    assert (found.energy_unit_known, found.edge, found.partitions) == (True, None, ())


@pytest.mark.parametrize(
    ("version", "size", "count", "first", "step"),
    [((1, 6), 1664, 306, 312, 168), ((1, 7), 2208, 338, 344, 232), ((1, 8), 3872, 338, 344, 440)],
)
def test_how_busy_partitions_are(
    version: tuple[int, int], size: int, count: int, first: int, step: int
) -> None:
    """The mean over the dies of each; a partition whose dies say nothing is not metered."""
    dies = (first, "I", 40), (first + 4, "I", 61), (first + 2 * step, "I", 7)
    table = by_hand(version, size, (count, "H", 3), *dies)
    assert parse(table).partitions == (50, None, 7)


def test_what_a_table_does_not_know_is_all_ones() -> None:
    """The kernel fills a table with ones before it writes."""
    assert parse(by_hand((1, 3), 120)) == Metrics()
    assert parse(by_hand((1, 6), 1664)) == Metrics(energy_unit_known=True)


def test_senseless_shares_are_not_told() -> None:
    """More than all of the time; some firmware counts in hundredths."""
    assert parse(by_hand((1, 3), 120, (16, "H", 8700))).activity is None


def test_no_energy_at_all_is_not_known() -> None:
    """The second GPU of a board counts none of its own."""
    assert parse(by_hand((1, 3), 120, (24, "Q", 0))).energy_millijoules is None


@pytest.mark.parametrize(
    "table",
    [
        None,
        b"",
        b"\x78\x00",
        by_hand((1, 0), 120),
        by_hand((1, 10), 120),
        by_hand((2, 3), 120),
        by_hand((1, 3), 104),
        by_hand((1, 6), 328),
        by_hand((1, 3), 120)[:-1],
    ],
)
def test_an_unknown_table_says_nothing(table: bytes | None) -> None:
    """Another version, another size than its version has, or cut short."""
    assert parse(table) == Metrics()


def entry(number: int, kind: str, *values: int) -> bytes:
    """Lay an attribute of version 1.9 out: its description in 64 bits, then its values."""
    described = "BbHhIiQq".index(kind) << 20 | number << 10 | len(values)
    return struct.pack(f"<Q{len(values)}{kind}", described, *values)


def described(*entries: bytes, count: int | None = None) -> bytes:
    """Lay a whole table of version 1.9 out."""
    body = b"".join(entries)
    return struct.pack("<HBBi", 8 + len(body), 1, 9, len(entries) if count is None else count) + body


MI300X = (
    entry(0, "H", 66),
    entry(1, "H", 61),
    entry(2, "H", 0xFFFF),
    entry(3, "H", 321),
    entry(4, "H", 88),
    entry(5, "H", 44),
    entry(7, "Q", 1 << 33),
    entry(33, "H", *[2100] * 8),
    entry(25, "Q", 5),
    entry(40, "I", 10, 30, 0, 0, 100, 99, 7, 8),
)


def test_a_table_that_describes_itself() -> None:
    """From version 1.9 on each value says what it is; dies are told instead of partitions."""
    found = parse(described(*MI300X))
    assert (found.hotspot, found.memory, found.watts, found.energy) == (66, 61, 321, 1 << 33)
    assert (found.activity, found.memory_activity, found.pcie_replays) == (88, 44, 5)
    assert found.energy_millijoules == (1 << 33) * 1000 >> 16
    assert found.partition_activity(4) == (20, 0, 100, 8)
    assert found.partition_activity(8) == (10, 30, 0, 0, 100, 99, 7, 8)
    assert found.partition_activity(3) == found.partition_activity(None) == ()


@pytest.mark.parametrize(
    ("told", "busy"),
    [
        ((5, 7, 0, 1, 2, 3, ONES, ONES), (6, 0, 2)),
        ((5, ONES, 0, 1, 2, 3, ONES, ONES), ()),
        ((ONES,) * 8, ()),
    ],
)
def test_dies_that_a_gpu_does_not_have(told: tuple[int, ...], busy: tuple[int, ...]) -> None:
    """There is room for eight dies; a gap among them would shift the others."""
    assert parse(described(entry(40, "I", *told))).partition_activity(3) == busy


def test_there_is_nothing_of_less_than_nothing() -> None:
    """An attribute may be of a signed type: what is below 0 in it says nothing."""
    below = [
        entry(number, kind, -23_553) for number, kind in ((0, "h"), (3, "i"), (4, "h"), (7, "q"), (25, "q"))
    ]
    found = parse(described(*below, entry(40, "h", 10, -3, 20)))
    assert (found.hotspot, found.watts, found.activity, found.energy, found.pcie_replays) == (None,) * 5
    assert found.partition_activity(3) == ()


@pytest.mark.parametrize(
    "behind",
    [
        described(*MI300X)[: 8 + 4 * 10 + 3],
        described(*MI300X[:4], struct.pack("<Q", 9 << 20 | 4 << 10 | 1), entry(4, "H", 88)),
        described(*MI300X[:4], count=1000),
    ],
)
def test_a_list_is_read_as_far_as_it_can_be(behind: bytes) -> None:
    """Cut short, of an unknown type, or with fewer entries than it says: what was before stands."""
    found = parse(behind)
    assert (found.hotspot, found.watts, found.activity, found.energy) == (66, 321, None, None)


@pytest.mark.parametrize(
    "table", [b"\x08\x00\x01\x09", described(), described(entry(0, "H")), described(count=-1)]
)
def test_an_empty_list_says_nothing(table: bytes) -> None:
    """There is nothing to read in it, and nothing fails."""
    assert parse(table) == Metrics(energy_unit_known=True)


def test_too_many_partitions_are_not_believed() -> None:
    """There is room for eight in a table."""
    assert parse(by_hand((1, 6), 1664, (306, "H", 9))).partitions == ()


@pytest.mark.parametrize("version", ["1.3", "1.6", "1.8"])
def test_the_fake_boards_table_is_laid_out_as_the_kernels(version: str) -> None:
    """The fake lays its table out field by field, and comes to the same offsets."""
    values = {
        "temperature_hotspot": 66,
        "temperature_mem": 61,
        "socket_power": 321,
        "average_gfx_activity": 88,
        "average_umc_activity": 44,
        "energy_accumulator": 1 << 33,
        "pcie_replay_count_acc": 5,
    }
    table = amd_tree.table(version, values, [[10, 20], [30, 40]])
    major, minor = map(int, version.split("."))
    assert len(table) == LAYOUTS[major, minor].size
    found = parse(table)
    assert (found.hotspot, found.memory, found.watts, found.energy) == (66, 61, 321, 1 << 33)
    assert (found.activity, found.memory_activity) == (88, 44)
    if minor >= 6:
        assert (found.pcie_replays, found.partitions) == (5, (15, 35))
