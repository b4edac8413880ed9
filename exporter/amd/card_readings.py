"""Reads the board of one card: memory, activity, power, clocks, PCIe and errors.

``pcie_bw`` is not read: the driver measures for a second before it answers.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from exporter.amd.cards import PCI_ADDRESS, VENDOR, Card, Identified
from exporter.amd.gpu_metrics import Metrics
from exporter.amd.sysfs_file import Files, properties, to_number
from exporter.model import Memory
from exporter.model.bounds import (
    BYTES,
    CELSIUS,
    COUNT,
    FAN_PERCENT,
    MEGAHERTZ,
    MEMORY_ERRORS,
    MILLIWATTS,
    PCIE_LANES,
    PERCENT,
    Bound,
)
from exporter.model.readings import (
    Bar1,
    Clock,
    Ecc,
    EccScope,
    EccSeverity,
    PcieLink,
    PowerLimit,
    PowerPart,
    Topology,
)

MOST_PERCENT = 100
MICROWATTS_PER_MILLIWATT = 1000
MICROWATTS = MILLIWATTS.times(MICROWATTS_PER_MILLIWATT)
# Sensors by the beginning of their names: the unit of a file in that of the reading, and its bound.
SENSORS: Mapping[str, tuple[int, Bound]] = {
    "temp": (1000, CELSIUS.times(1000)),
    "freq": (1_000_000, MEGAHERTZ.times(1_000_000)),
}
FULL_PWM = 255
PULSE_WIDTH, REVOLUTIONS = Bound(0, FULL_PWM), Bound(0, 100_000)
# -1 is none.
NUMA_NODES = Bound(-1, 4096)
POWER_LIMITS: Mapping[PowerLimit, str] = {
    "enforced": "power1_cap",
    "default": "power1_cap_default",
    "min": "power1_cap_min",
    "max": "power1_cap_max",
}
POWER_PARTS: Mapping[PowerPart, str] = {"average": "power1_average", "instant": "power1_input"}
CLOCKS: Mapping[str, Clock] = {"sclk": "sm", "mclk": "memory"}
SEVERITIES: Mapping[str, EccSeverity] = {"ce": "corrected", "ue": "uncorrected"}
# Architectures with the unit of energy that later versions of the table define.
COUNTS_ENERGY = frozenset({"gfx908", "gfx90a"})
# PCIe generation by gigatransfers per second of a lane, as the kernel prints them.
GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
# The kernel's width of an unknown link.
NO_WIDTH = 0xFF


def read_board(files: Files, card: Card, metrics: Metrics, identified: Identified) -> dict[str, Any]:
    """Return the fields of GpuReading of the board. Raises CardSlowError."""
    folder = card.path / "hwmon"
    paths = (folder / name for name in files.names(folder))
    hwmon = next((path for path in paths if files.text(path / "name") == "amdgpu"), None)
    # Used memory includes what the driver reserves.
    vram = _total_and_used(files, card.path, "mem_info_vram")
    bar1 = _total_and_used(files, card.path, "mem_info_vis_vram")
    energy_unit_known = metrics.energy_unit_known or identified.identity.architecture in COUNTS_ENERGY
    return {
        "memory": None if vram is None else Memory(total=vram[0], used=vram[1], free=vram[0] - vram[1]),
        "bar1": None if bar1 is None else Bar1(total=bar1[0], used=bar1[1]),
        "utilization_percent": _percent(files, card.path / "gpu_busy_percent", metrics.activity),
        "memory_copy_percent": _percent(files, card.path / "mem_busy_percent", metrics.memory_activity),
        "energy_millijoules": metrics.energy_millijoules if energy_unit_known else None,
        **_sensors(files, hwmon, metrics),
        "pcie_link": read_link(files, (card.path, *identified.bridges)),
        "pcie_replays": _first(files.number(card.path / "pcie_replay_count", COUNT), metrics.pcie_replays),
        "ecc": _ecc(files, card.path / "ras"),
        "topology": _topology(files, card.path),
    }


def _first(*readings: int | None) -> int | None:
    return next((reading for reading in readings if reading is not None), None)


def _total_and_used(files: Files, device: Path, prefix: str) -> tuple[int, int] | None:
    total, path = files.number(device / f"{prefix}_total", BYTES), device / f"{prefix}_used"
    used = files.number(path, BYTES if total is None else Bound(0, total))
    return None if not total or used is None else (total, used)


def _percent(files: Files, path: Path, otherwise: int | None) -> int | None:
    return _first(files.number(path, PERCENT), otherwise)


def _sensors(files: Files, hwmon: Path | None, metrics: Metrics) -> dict[str, Any]:
    """Return the fields of the sensors; without their folder only what the table of metrics has."""
    powers = _watts(files, hwmon, POWER_PARTS) if hwmon is not None else {}
    temperatures = _labelled(files, hwmon, "temp") if hwmon is not None else {}
    clocks = _labelled(files, hwmon, "freq") if hwmon is not None else {}
    milliwatts = metrics.watts * 1000 if metrics.watts else None
    return {
        "power_milliwatts": _first(powers.get("average"), powers.get("instant"), milliwatts),
        "power_parts_milliwatts": powers,
        "power_limits_milliwatts": _watts(files, hwmon, POWER_LIMITS) if hwmon is not None else {},
        "temperature_celsius": _first(
            temperatures.get("edge"), temperatures.get("junction"), metrics.edge, metrics.hotspot
        ),
        "memory_temperature_celsius": _first(temperatures.get("mem"), metrics.memory),
        "clocks_megahertz": {CLOCKS[name]: rate for name, rate in clocks.items() if name in CLOCKS},
        "fan_percent": _fan(files, hwmon) if hwmon is not None else None,
    }


def _watts(files: Files, hwmon: Path, names: Mapping[Any, str]) -> dict[Any, int]:
    """Return powers in milliwatts.

    The second GPU of a board reports 0 for all of them, as the first one is metered for both; but the minimum
    limit alone may be 0.
    """
    powers = {part: files.number(hwmon / name, MICROWATTS) for part, name in names.items()}
    return {
        part: power // MICROWATTS_PER_MILLIWATT
        for part, power in powers.items()
        if power is not None and (power > 0 or (power == 0 and part == "min" and any(powers.values())))
    }


def _labelled(files: Files, hwmon: Path, kind: str) -> dict[str, int]:
    """Return the values of the sensors of one kind by label, rounded to whole units."""
    unit, bound = SENSORS[kind]
    names = files.names(hwmon)
    channels = [name.removesuffix("_label") for name in names if name.startswith(kind)]
    values: dict[str, int] = {}
    for channel in dict.fromkeys(channel for channel in channels if f"{channel}_label" in names):
        label, value = files.text(hwmon / f"{channel}_label"), files.number(hwmon / f"{channel}_input", bound)
        if label is not None and value is not None:
            values[label] = round(value / unit)
    return values


def _fan(files: Files, hwmon: Path) -> int | None:
    path = hwmon / "fan1_input"
    speed, most = files.number(path, REVOLUTIONS), files.number(hwmon / "fan1_max", REVOLUTIONS)
    if speed is None or not most:
        path, most = hwmon / "pwm1", FULL_PWM
        speed = files.number(path, PULSE_WIDTH)
    percent = None if speed is None else files.believed(path, round(speed * MOST_PERCENT / most), FAN_PERCENT)
    return None if percent is None else min(percent, MOST_PERCENT)


def _ecc(files: Files, folder: Path) -> Ecc | None:
    """Return errors since the driver was loaded, by block of the GPU (``umc`` is memory), and their sums."""
    by_location: dict[tuple[EccSeverity, EccScope, str], int] = {}
    for name in files.names(folder):
        part = name.removesuffix("_err_count") if name.endswith("_err_count") else name.removeprefix("aca_")
        if part != name:
            counts = properties(files.text(folder / name), ":")
            for mark, severity in SEVERITIES.items():
                count = files.believed(folder / name, to_number(counts.get(mark)), MEMORY_ERRORS)
                if count is not None:
                    by_location[severity, "volatile", part] = count
    if not by_location:
        return None
    errors: dict[tuple[EccSeverity, EccScope], int] = {}
    for (severity, scope, _), count in by_location.items():
        errors[severity, scope] = errors.get((severity, scope), 0) + count
    return Ecc(errors=errors, by_location=by_location)


def _topology(files: Files, device: Path) -> Topology | None:
    node, cpus = files.number(device / "numa_node", NUMA_NODES), files.text(device / "local_cpulist")
    if node is None and cpus is None:
        return None
    return Topology(numa_node=node if node is not None and node >= 0 else None, cpus=cpus or "")


def own_bridges(files: Files, card: Card) -> tuple[Path, ...]:
    """Return the folders of the bridges between a GPU and its slot, as they are on cards with a switch.

    Their vendor is that of AMD's graphics; the bridges of a processor or board have other vendors.
    """
    bridges: list[Path] = []
    for folder in card.path.resolve().parents:
        if not PCI_ADDRESS.fullmatch(folder.name) or files.text(folder / "vendor") != VENDOR:
            break
        bridges.append(folder)
    return tuple(bridges)


def read_link(files: Files, devices: Sequence[Path]) -> PcieLink | None:
    """Return the narrowest and slowest of the links of a card: between the GPU, its bridges and the slot.

    A GPU below a bridge on its card has its own link at full width whatever the slot is.
    """
    link = PcieLink(
        generation=_least(_generation(files, device / "current_link_speed") for device in devices),
        width=_least(_width(files, device / "current_link_width") for device in devices),
        max_generation=_least(_generation(files, device / "max_link_speed") for device in devices),
        max_width=_least(_width(files, device / "max_link_width") for device in devices),
    )
    return None if link == PcieLink() else link


def _least(values: Iterable[int | None]) -> int | None:
    """Return the least of some numbers; None if one of them is unknown."""
    known = list(values)
    numbers = [value for value in known if value is not None]
    return min(numbers) if len(numbers) == len(known) else None


def _generation(files: Files, path: Path) -> int | None:
    return GENERATIONS.get((files.text(path) or "").partition(" ")[0])


def _width(files: Files, path: Path) -> int | None:
    lanes = files.number(path)
    return None if lanes in {0, NO_WIDTH} else files.believed(path, lanes, PCIE_LANES)
