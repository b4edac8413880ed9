"""Rows of a GPU's power, temperature and clocks, and of the reasons that limit its clocks."""

from collections.abc import Iterator, Mapping

from exporter.metrics.family import GPU_ROWS, READING, AnyFamily, Labelled, core_values, keyed, scaled
from exporter.model import GpuReading
from exporter.model.readings import CLOCK_EVENT_BITS, Clock

_MEGAHERTZ = 1_000_000
_NANOSECONDS = 1_000_000_000

_POWER = READING.grouped("power")
_THERMAL = READING.grouped("thermal")
_CLOCKS = READING.grouped("clocks")
_THROTTLING = READING.grouped("throttling")


# The reasons that an operator acts on. The others, such as an idle GPU, are no fault.
_ACTED_ON = ("hardware_slowdown", "hardware_thermal", "software_thermal", "power_brake", "power_cap")


def _limit_settings(gpu: GpuReading) -> list[Labelled]:
    limits = gpu.power_limits_milliwatts
    return keyed({limit: milliwatts for limit, milliwatts in limits.items() if limit != "enforced"}, 1000)


def _hertz(megahertz: Mapping[Clock, int]) -> list[Labelled]:
    """Return a sample for each clock; whole numbers stay whole."""
    return [((clock,), speed * _MEGAHERTZ) for clock, speed in megahertz.items()]


def _clock_events(gpu: GpuReading) -> Iterator[Labelled]:
    """Yield a sample for every reason, so that one that ends returns to 0."""
    if gpu.clock_events is not None:
        for bit, reason in CLOCK_EVENT_BITS.items():
            yield (reason,), int(bool(gpu.clock_events & bit))


# Power, temperature, clocks and their limits.
GPU_POWER: tuple[AnyFamily, ...] = (
    _POWER.gauge("power_watts", "Power draw of the GPU.", lambda gpu: scaled(gpu.power_milliwatts, 1000)),
    _POWER.standard.gauge_by(
        "power_part_watts{part}",
        "Power draw by measurement: average, instant, module, memory.",
        lambda gpu: keyed(gpu.power_parts_milliwatts, 1000),
    ),
    _POWER.gauge(
        "power_limit_watts",
        "Enforced power limit of the GPU.",
        lambda gpu: scaled(gpu.power_limits_milliwatts.get("enforced"), 1000),
    ),
    _POWER.standard.reading("power_limits_milliwatts.configured").gauge_by(
        "power_limit_setting_watts{limit}",
        "Power limit settings: configured, default, and the minimum and maximum that can be configured.",
        _limit_settings,
    ),
    _POWER.counter(
        "energy_joules_total",
        "Energy consumption of the GPU since the driver was loaded; NVIDIA: read every 15 s.",
        lambda gpu: scaled(gpu.energy_millijoules, 1000),
    ),
    _THERMAL.gauge("temperature_celsius", "GPU core temperature."),
    _THERMAL.gauge("memory_temperature_celsius", "GPU memory temperature."),
    _THERMAL.standard.reading("temperature_margin_celsius").gauge(
        "temperature_limit_margin_celsius",
        "Temperature margin to the nearest slowdown threshold.",
        lambda gpu: gpu.temperature_margin_celsius,
    ),
    _THERMAL.full.gauge_by(
        "temperature_margin_threshold_celsius{threshold}",
        "Temperature margins of the thresholds: shutdown, slowdown, and the maximum for GPU core and memory.",
        lambda gpu: keyed(gpu.temperature_limits_celsius),
    ),
    _THERMAL.standard.gauge_by(
        "temperature_threshold_celsius{threshold}",
        "Temperature thresholds: shutdown, slowdown, and the maximum for GPU core and memory.",
        lambda gpu: keyed(gpu.temperature_thresholds_celsius),
    ),
    _THERMAL.standard.reading("fan_percent").gauge(
        "fan_ratio",
        "Fan speed as a share of the maximum; absent on boards without a fan.",
        lambda gpu: scaled(gpu.fan_percent, 100),
    ),
    core_values(
        _CLOCKS.reading("clocks_megahertz.graphics", "clocks_megahertz.video").gauge_by(
            "clock_hertz{clock}",
            "Current clock frequency, by clock: sm, memory, graphics, video.",
            lambda gpu: _hertz(gpu.clocks_megahertz),
        ),
        ("sm",),
        ("memory",),
    ),
    _CLOCKS.standard.gauge_by(
        "clock_max_hertz{clock}",
        "Maximum clock frequency, by clock.",
        lambda gpu: _hertz(gpu.clocks_max_megahertz),
    ),
    _CLOCKS.full.reading("clocks_application_megahertz").gauge_by(
        "clock_application_hertz{clock}",
        "Applications clock frequency set by an administrator, by clock.",
        lambda gpu: _hertz(gpu.clocks_application_megahertz),
    ),
    core_values(
        _THROTTLING.states(
            "clock_event_active{reason}",
            "1 if this reason currently limits the clocks, else 0.",
            _clock_events,
        ),
        *((reason,) for reason in _ACTED_ON),
    ),
    GPU_ROWS.grouped("throttling").full.counter_by(
        "clock_events_total{reason}",
        "Times that a reason started to limit the clocks, as observed from poll to poll, by reason.",
        lambda row: keyed(row.clock_events),
    ),
    _THROTTLING.standard.counter_by(
        "violation_seconds_total{reason}",
        "Time for which the clocks were limited since the driver was loaded, by reason.",
        lambda gpu: keyed(gpu.violations_nanoseconds, _NANOSECONDS),
    ),
)
