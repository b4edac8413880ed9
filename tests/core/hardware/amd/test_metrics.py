"""The binary table of metrics: the layouts that are known, and what is not believed."""

import struct

import pytest

from exporter.amd.gpu_metrics import BOUNDS, LAYOUTS, Metrics, parse
from exporter.demo import amd_tree
from tests.core.hardware.amd.tree import UUID, Tree

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
def test_tables_before_mi300(version: tuple[int, int], size: int) -> None:
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
def test_tables_of_mi300_and_later(version: tuple[int, int], size: int, energy: int, replays: int) -> None:
    """They have no sensor at the edge, a known unit of energy, and count replays."""
    table = by_hand(
        version, size, (4, "H", 60), (6, "H", 57), (10, "H", 500), (12, "H", 71), (14, "H", 22),
        (energy, "Q", 65536), (replays, "Q", 9),
    )  # fmt: skip
    metrics = parse(table)
    assert (metrics.hotspot, metrics.memory, metrics.watts, metrics.activity) == (60, 57, 500, 71)
    assert (metrics.memory_activity, metrics.energy_millijoules, metrics.pcie_replays) == (22, 1000, 9)
    assert (metrics.energy_unit_known, metrics.edge, metrics.partitions) == (True, None, ())


@pytest.mark.parametrize(
    ("version", "size", "count", "first", "step"),
    [((1, 6), 1664, 306, 312, 168), ((1, 7), 2208, 338, 344, 232), ((1, 8), 3872, 338, 344, 440)],
)
def test_the_activity_of_a_partition_is_the_mean_of_its_dies(
    version: tuple[int, int], size: int, count: int, first: int, step: int
) -> None:
    dies = (first, "I", 40), (first + 4, "I", 61), (first + 2 * step, "I", 7)
    table = by_hand(version, size, (count, "H", 3), *dies)
    assert parse(table).partitions == (50, None, 7)


def test_fields_of_all_ones_are_unknown() -> None:
    assert parse(by_hand((1, 3), 120)) == Metrics()
    assert parse(by_hand((1, 6), 1664)) == Metrics(energy_unit_known=True)


def test_activity_above_100_percent_is_unknown() -> None:
    assert parse(by_hand((1, 3), 120, (16, "H", 8700))).activity is None


def test_zero_energy_is_unknown() -> None:
    """The second GPU of a board counts none."""
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
def test_an_unknown_or_truncated_table_is_empty(table: bytes | None) -> None:
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


def test_a_self_describing_table_is_decoded() -> None:
    """From version 1.9 on; it has dies instead of partitions."""
    metrics = parse(described(*MI300X))
    assert (metrics.hotspot, metrics.memory, metrics.watts, metrics.energy) == (66, 61, 321, 1 << 33)
    assert (metrics.activity, metrics.memory_activity, metrics.pcie_replays) == (88, 44, 5)
    assert metrics.energy_millijoules == (1 << 33) * 1000 >> 16
    assert metrics.partition_activity(4) == (20, 0, 100, 8)
    assert metrics.partition_activity(8) == (10, 30, 0, 0, 100, 99, 7, 8)
    assert metrics.partition_activity(3) == metrics.partition_activity(None) == ()


@pytest.mark.parametrize(
    ("dies", "busy"),
    [
        ((5, 7, 0, 1, 2, 3, ONES, ONES), (6, 0, 2)),
        ((5, ONES, 0, 1, 2, 3, ONES, ONES), ()),
        ((ONES,) * 8, ()),
    ],
)
def test_a_gap_among_dies_makes_partitions_unknown(dies: tuple[int, ...], busy: tuple[int, ...]) -> None:
    assert parse(described(entry(40, "I", *dies))).partition_activity(3) == busy


def test_negative_values_are_unknown() -> None:
    below = [
        entry(number, kind, -23_553) for number, kind in ((0, "h"), (3, "i"), (4, "h"), (7, "q"), (25, "q"))
    ]
    metrics = parse(described(*below, entry(40, "h", 10, -3, 20)))
    assert (metrics.hotspot, metrics.watts, metrics.activity, metrics.energy, metrics.pcie_replays) == (
        None,
    ) * 5
    assert metrics.partition_activity(3) == ()


@pytest.mark.parametrize(
    "behind",
    [
        described(*MI300X)[: 8 + 4 * 10 + 3],
        described(*MI300X[:4], struct.pack("<Q", 9 << 20 | 4 << 10 | 1), entry(4, "H", 88)),
        described(*MI300X[:4], count=1000),
    ],
)
def test_a_damaged_self_describing_table_is_read_up_to_the_damage(behind: bytes) -> None:
    metrics = parse(behind)
    assert (metrics.hotspot, metrics.watts, metrics.activity, metrics.energy) == (66, 321, None, None)


@pytest.mark.parametrize(
    "table", [b"\x08\x00\x01\x09", described(), described(entry(0, "H")), described(count=-1)]
)
def test_an_empty_self_describing_table_is_empty(table: bytes) -> None:
    assert parse(table) == Metrics(energy_unit_known=True)


def test_an_implausible_number_of_partitions_is_unknown() -> None:
    assert parse(by_hand((1, 6), 1664, (306, "H", 9))).partitions == ()


@pytest.mark.parametrize("version", ["1.3", "1.6", "1.8"])
def test_tables_of_the_fake_boards_have_the_same_layout(version: str) -> None:
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
    metrics = parse(table)
    assert (metrics.hotspot, metrics.memory, metrics.watts, metrics.energy) == (66, 61, 321, 1 << 33)
    assert (metrics.activity, metrics.memory_activity) == (88, 44)
    if minor >= 6:
        assert (metrics.pcie_replays, metrics.partitions) == (5, (15, 35))


@pytest.mark.parametrize("version", LAYOUTS)
def test_each_field_of_a_table_keeps_to_its_bound(version: tuple[int, int]) -> None:
    """All ones are no value, and not counted; what is outside of a bound is."""
    layout = LAYOUTS[version]
    assert BOUNDS.keys() >= layout.fields.keys()
    for name, (offset, kind) in layout.fields.items():
        ones = 2 ** (8 * struct.calcsize(kind)) - 1
        assert parse(by_hand(version, layout.size, (offset, kind, ones))).impossible is False
        for value in {ones - 1, 2**32 - 1, int(BOUNDS[name].highest) + 1} - {ones}:
            if value < ones:
                metrics = parse(by_hand(version, layout.size, (offset, kind, value)))
                assert (getattr(metrics, name), metrics.impossible) == (None, True)


async def test_an_impossible_value_in_the_table_is_counted(tree: Tree) -> None:
    table = amd_tree.table("1.3", {"temperature_mem": 2112, "average_gfx_activity": 50})
    tree.card(gpu_metrics=table, hwmon__hwmon6__temp3_input=None, gpu_busy_percent=None)
    reading = await tree.read()
    assert (reading.gpus[0].memory_temperature_celsius, reading.gpus[0].utilization_percent) == (None, 50)
    assert reading.errors == {(UUID, "sysfs gpu_metrics", "ImpossibleValue"): 1}


def test_a_partition_with_an_impossible_die_is_unknown() -> None:
    dies = [[50, 60], [70, 65_000]]
    metrics = parse(amd_tree.table("1.6", {}, dies))
    assert (metrics.partitions, metrics.impossible) == ((55, None), True)
