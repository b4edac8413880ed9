"""Readings from the files of a board, also from missing, broken and implausible ones."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.amd.card_readings import GENERATIONS
from exporter.amd.cards import Card
from exporter.amd.sysfs_file import LONGEST, Files
from exporter.demo import amd_tree
from exporter.model import GpuReading
from exporter.model.readings import Bar1, Ecc, Memory, PcieLink, Topology
from tests.core.hardware.amd.tree import ADDRESS, BOARD, GIB, UUID, Tree, unreadable

UNCORRECTED = ("uncorrected", "volatile")
# Files with digits that are no readings.
TEXTS = frozenset({"unique_id", "serial_number"})


async def test_every_file_is_read_in_its_unit(tree: Tree) -> None:
    """Bytes, percent, milliwatts from microwatts, degrees from thousandths, megahertz from hertz."""
    tree.card()
    gpu = await tree.gpu()
    assert gpu.memory == Memory(total=64 * GIB, used=20 * GIB, free=44 * GIB)
    assert gpu.bar1 == Bar1(total=64 * GIB, used=19 * GIB)
    assert (gpu.utilization_percent, gpu.memory_copy_percent) == (87, 41)
    assert gpu.power_milliwatts == 243_000
    assert gpu.power_parts_milliwatts == {"average": 243_000}
    assert gpu.power_limits_milliwatts == {"enforced": 280_000, "default": 300_000, "min": 0, "max": 300_000}
    assert (gpu.temperature_celsius, gpu.memory_temperature_celsius) == (51, 58)
    assert gpu.clocks_megahertz == {"sm": 1700, "memory": 1600}
    assert gpu.fan_percent == 25
    assert gpu.pcie_link == PcieLink(generation=4, width=8, max_generation=5, max_width=16)
    assert gpu.pcie_replays == 3
    assert gpu.topology == Topology(numa_node=1, cpus="16-31,48-63")
    assert (gpu.up, gpu.sweep, gpu.boot_seconds) == (True, 1, 77.5)


async def test_ecc_errors_by_part_and_in_all(tree: Tree) -> None:
    tree.card(ras__aca_sdma="ue: 0\nce: 5\nde: 0", ras__event_state="current seqno: 0")
    assert (await tree.gpu()).ecc == Ecc(
        errors={("corrected", "volatile"): 11, ("uncorrected", "volatile"): 1},
        by_location={
            ("corrected", "volatile", "sdma"): 5,
            ("uncorrected", "volatile", "sdma"): 0,
            ("corrected", "volatile", "gfx"): 2,
            ("uncorrected", "volatile", "gfx"): 0,
            ("corrected", "volatile", "umc"): 4,
            ("uncorrected", "volatile", "umc"): 1,
        },
    )


async def test_the_file_that_takes_a_second_is_never_read(tree: Tree) -> None:
    """The driver measures bandwidth for a second before it answers."""
    unreadable(tree.card() / "pcie_bw")
    assert (await tree.read()).errors == {}


FIELDS: dict[str, tuple[str, Callable[[GpuReading], object]]] = {
    "mem_info_vram_used": ("memory", lambda gpu: gpu.memory),
    "mem_info_vram_total": ("memory", lambda gpu: gpu.memory),
    "mem_info_vis_vram_used": ("bar1", lambda gpu: gpu.bar1),
    "gpu_busy_percent": ("utilization", lambda gpu: gpu.utilization_percent),
    "mem_busy_percent": ("memory copies", lambda gpu: gpu.memory_copy_percent),
    "hwmon/hwmon6/power1_average": ("power", lambda gpu: gpu.power_milliwatts),
    "hwmon/hwmon6/power1_cap": ("limit", lambda gpu: gpu.power_limits_milliwatts.get("enforced")),
    "hwmon/hwmon6/temp3_input": ("memory's heat", lambda gpu: gpu.memory_temperature_celsius),
    "hwmon/hwmon6/freq1_input": ("clock", lambda gpu: gpu.clocks_megahertz.get("sm")),
    "pcie_replay_count": ("replays", lambda gpu: gpu.pcie_replays),
    "serial_number": ("serial", lambda gpu: gpu.identity.serial),
}


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("name", FIELDS)
async def test_a_missing_or_unreadable_file_costs_its_reading(tree: Tree, name: str, exists: bool) -> None:
    """An unreadable one is counted, a missing one is no error."""
    path = tree.card() / name
    path.unlink()
    if exists:
        unreadable(path)
    reading = await tree.read()
    counted = {(name, error): count for (_, name, error), count in reading.errors.items()}
    assert counted == ({(f"sysfs {path.name}", "EISDIR"): 1} if exists else {})
    lost = FIELDS[name][0]
    assert {kind for kind, value in FIELDS.values() if value(reading.gpus[0]) is None} == {lost}


@pytest.mark.parametrize("text", ["", "N/A", "-", "12.5", "0x10", "1" * 30, "\xff\xfe", "\u0663"])
async def test_a_reading_that_is_no_integer_is_unknown(tree: Tree, text: str) -> None:
    tree.card(gpu_busy_percent=text, mem_info_vram_used=text, pcie_replay_count=text)
    gpu = await tree.gpu()
    assert (gpu.utilization_percent, gpu.memory, gpu.pcie_replays) == (None, None, None)


HWMON = "hwmon__hwmon6__"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # The second GPU of a board reports 0: the first one is measured for both.
        (
            dict.fromkeys(("power1_average", "power1_cap", "power1_cap_max", "power1_cap_default"), "0"),
            {"power_milliwatts": None, "power_parts_milliwatts": {}, "power_limits_milliwatts": {}},
        ),
        # From MI300 on there is no average, and no sensor at the edge.
        (
            {"power1_average": None, "power1_input": "512000000"},
            {"power_milliwatts": 512_000, "power_parts_milliwatts": {"instant": 512_000}},
        ),
        ({"temp1_label": None, "temp1_input": None}, {"temperature_celsius": 63}),
        # A fan without speed has a pulse width from 0 to 255; a passive board has none.
        ({"fan1_input": None, "pwm1": "102"}, {"fan_percent": 40}),
        ({"fan1_input": None, "fan1_max": None}, {"fan_percent": None}),
        # The sensors are those of another driver.
        ({"name": "jc42"}, {"power_milliwatts": None, "temperature_celsius": None, "clocks_megahertz": {}}),
    ],
    ids=["second GPU", "instant power", "hotspot", "pulse width", "no fan", "other driver"],
)
async def test_sensors(tree: Tree, changes: dict[str, str | None], expected: dict[str, object]) -> None:
    tree.card(**{f"{HWMON}{name}": value for name, value in changes.items()})
    gpu = await tree.gpu()
    assert {name: getattr(gpu, name) for name in expected} == expected


# All ones of 32 and 64 bits in units of the file and of the reading, a torn read, and a negative number.
GARBAGE = (2**32 - 1, 2**64 - 1, (2**32 - 1) * 10**6, 2_112_000_000_000_000, 2**63, -61_000)
NUMBERS = [name for name, content in BOARD.items() if content.isdecimal() and name not in TEXTS]


@pytest.mark.parametrize("name", NUMBERS)
async def test_an_impossible_number_in_a_file_is_counted_and_reads_as_none(tree: Tree, name: str) -> None:
    """As from a torn read, or from registers of a GPU that resets."""
    folder = tree.card()
    (folder / name).unlink()
    expected = await tree.gpu()
    for number in GARBAGE:
        tree.write(folder / name, str(number))
        reading = await tree.read()
        (gpu,) = reading.gpus
        times = {"read_at": gpu.read_at, "read_monotonic": gpu.read_monotonic}
        assert gpu == replace(expected, **times)
        counted = {(call, error) for _, call, error in reading.errors}
        assert counted == {(f"sysfs {name.rpartition('/')[2]}", "ImpossibleValue")}


@pytest.mark.parametrize(
    ("changes", "read"),
    [
        ({"hwmon__hwmon6__temp1_input": "201000"}, lambda gpu: gpu.temperature_celsius == 63),
        ({"hwmon__hwmon6__fan1_input": "65535"}, lambda gpu: gpu.fan_percent is None),
        ({"current_link_width": "0"}, lambda gpu: gpu.pcie_link.width is None),
        ({"max_link_width": "255"}, lambda gpu: gpu.pcie_link.max_width is None),
        ({"current_link_width": "63"}, lambda gpu: gpu.pcie_link.width is None),
        ({"ras__umc_err_count": f"ue: {2**64 - 1}\nce: 4"}, lambda gpu: gpu.ecc.errors[UNCORRECTED] == 0),
    ],
    ids=["heat", "revolutions", "no link", "unknown width", "width of a lost device", "errors"],
)
async def test_a_value_that_cannot_be_is_absent(
    tree: Tree, changes: dict[str, str], read: Callable[[GpuReading], bool]
) -> None:
    tree.card(**changes)
    assert read(await tree.gpu())


UPSTREAM, DOWNSTREAM = "0000:17:00.0", "0000:18:00.0"
SLOT = "devices/pci0000:00/0000:00:01.1"


def behind_bridges(tree: Tree, *bridges: dict[str, str]) -> None:
    """Put the card behind these bridges, nearest to the slot first; each has the files of its own link."""
    folder = SLOT
    tree.write(f"{folder}/vendor", "0x1022")
    tree.write(f"{folder}/current_link_width", "1")
    for address, files in zip((UPSTREAM, DOWNSTREAM), bridges, strict=False):
        folder = f"{folder}/{address}"
        for name, content in files.items():
            tree.write(f"{folder}/{name}", content)
    card = tree.device()
    moved = tree.sys / folder / ADDRESS
    moved.parent.mkdir(parents=True, exist_ok=True)
    card.rename(moved)
    card.symlink_to(moved)


def link(
    generation: int, width: int, most: tuple[int, int] = (5, 16), vendor: str = "0x1002"
) -> dict[str, str]:
    """Return the files of the link of a bridge."""
    speeds = {number: f"{speed} GT/s PCIe" for speed, number in GENERATIONS.items()}
    return {
        "vendor": vendor,
        "current_link_speed": speeds[generation],
        "current_link_width": str(width),
        "max_link_speed": speeds[most[0]],
        "max_link_width": str(most[1]),
    }


@pytest.mark.parametrize(
    ("bridges", "expected"),
    [
        ([link(4, 8), link(5, 16)], (4, 8, 5, 16)),
        ([link(5, 4), link(3, 16)], (3, 4, 5, 16)),
        ([link(4, 16, (4, 16)), link(5, 16)], (4, 16, 4, 16)),
        ([link(5, 16), link(5, 16)], (5, 16, 5, 16)),
        # A bridge of the board is not the card's, nor is what is above it.
        ([link(4, 8), link(1, 1, vendor="0x10b5")], (5, 16, 5, 16)),
        ([link(1, 1, vendor="0x10b5"), link(4, 16)], (4, 16, 5, 16)),
        ([link(4, 8) | {"current_link_width": "63"}, link(5, 16)], (4, None, 5, 16)),
        ([], (5, 16, 5, 16)),
    ],
)
async def test_the_link_is_the_least_of_those_on_the_card(
    tree: Tree, bridges: list[dict[str, str]], expected: tuple[int | None, ...]
) -> None:
    """Cards with a switch connect their GPU at full width, whatever the slot is."""
    tree.card(current_link_speed="32.0 GT/s PCIe", current_link_width="16")
    behind_bridges(tree, *bridges)
    found = (await tree.gpu()).pcie_link
    assert (found.generation, found.width, found.max_generation, found.max_width) == expected


@pytest.mark.parametrize(
    ("changes", "read", "expected"),
    [
        ({"gpu_busy_percent": "101"}, lambda gpu: gpu.utilization_percent, None),
        ({"mem_info_vram_used": str(65 * GIB)}, lambda gpu: gpu.memory, None),
        ({"current_link_speed": "2.5 GT/s PCIe"}, lambda gpu: gpu.pcie_link.generation, 1),
        ({"current_link_speed": "8.0 GT/s PCIe"}, lambda gpu: gpu.pcie_link.generation, 3),
        ({"current_link_speed": "64.0 GT/s PCIe"}, lambda gpu: gpu.pcie_link.generation, 6),
        ({"current_link_speed": "Unknown"}, lambda gpu: gpu.pcie_link.generation, None),
        ({"numa_node": "-1"}, lambda gpu: gpu.topology, Topology(numa_node=None, cpus="16-31,48-63")),
    ],
)
async def test_values_that_need_an_interpretation(
    tree: Tree, changes: dict[str, str], read: Callable[[GpuReading], object], expected: object
) -> None:
    tree.card(**changes)
    assert read(await tree.gpu()) == expected


async def test_sensors_of_a_suspended_gpu_are_not_read(tree: Tree) -> None:
    """Reading one would resume it."""
    device = tree.card(power__runtime_status="suspended")
    for name in ("gpu_busy_percent", "mem_info_vram_used", "hwmon/hwmon6/power1_average"):
        unreadable(device / name)
    reading = await tree.read()
    (gpu,) = reading.gpus
    assert reading.errors == {}
    assert (gpu.up, gpu.identity.uuid, gpu.memory, gpu.power_milliwatts) == (True, UUID, None, None)
    assert "suspended" in gpu.withheld["core"]


async def test_a_card_without_any_reading_is_down(tree: Tree) -> None:
    device = tree.card()
    for name in ("gpu_busy_percent", "mem_busy_percent", "pcie_replay_count"):
        (device / name).unlink()
    for path in (*device.glob("mem_info_*"), *device.glob("hwmon/hwmon6/*"), *device.glob("ras/*")):
        path.unlink()
    gpu = await tree.gpu()
    assert (gpu.up, gpu.identity.uuid, gpu.pcie_link) == (False, UUID, None)


async def test_the_metrics_table_fills_missing_files(tree: Tree) -> None:
    """Files are preferred; energy is in the table only."""
    values = {
        "average_gfx_activity": 33,
        "average_umc_activity": 12,
        "socket_power": 199,
        "temperature_hotspot": 70,
        "temperature_mem": 66,
        "energy_accumulator": 65536 * 25,
        "pcie_replay_count_acc": 8,
    }
    tree.card(gpu_metrics=amd_tree.table("1.6", values))
    gpu = await tree.gpu()
    assert (gpu.energy_millijoules, gpu.utilization_percent, gpu.power_milliwatts) == (25_000, 87, 243_000)
    for path in (*tree.device().glob("hwmon/hwmon6/*"), *tree.device().glob("*_busy_percent")):
        path.unlink()
    (tree.device() / "pcie_replay_count").unlink()
    gpu = await tree.gpu()
    assert (gpu.utilization_percent, gpu.memory_copy_percent, gpu.pcie_replays) == (33, 12, 8)
    assert gpu.power_milliwatts == 199_000
    assert (gpu.temperature_celsius, gpu.memory_temperature_celsius) == (70, 66)


@pytest.mark.parametrize(("version", "joules"), [(90010, 25), (100300, None)])
async def test_energy_in_an_unknown_unit_is_unknown(tree: Tree, version: int, joules: int | None) -> None:
    """Tables before 1.4 do not name the unit; it is known of MI100 and MI200 only."""
    tree.card(gpu_metrics=amd_tree.table("1.3", {"energy_accumulator": 65536 * 25}))
    tree.node(gfx_target_version=version)
    assert (await tree.gpu()).energy_millijoules == (None if joules is None else joules * 1000)


def test_a_file_without_end_is_truncated(tree: Tree) -> None:
    path = tree.write("endless", b"1" * (LONGEST + 1))
    content = Files().content(path)
    assert content is not None
    assert len(content) == LONGEST


def test_the_location_of_a_card_is_that_of_kfd() -> None:
    """Without the function, which differs between partitions."""
    card = Card(index=0, path=Path(), address="0001:c6:1f.3", render_minor=None)
    assert card.location == (1, 0xC6F8)
