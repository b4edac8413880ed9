"""The rows of a GPU's power, heat and clocks, and of what holds it back."""

from collections.abc import Iterator

from exporter.metrics.family import (
    AnyFamily,
    Family,
    Labelled,
    LabelledFamily,
    answering,
    each,
    reading,
    scaled,
)
from exporter.model import GpuRow
from exporter.model.readings import CLOCK_EVENT_BITS

_MEGAHERTZ = 1_000_000
_NANOSECONDS = 1_000_000_000


def _clock_events(row: GpuRow) -> Iterator[Labelled]:
    """Give one sample for each reason there is, so that one that ends goes back to 0."""
    found = answering(row)
    if found is not None and found.clock_events is not None:
        for bit, reason in CLOCK_EVENT_BITS.items():
            yield (reason,), int(bool(found.clock_events & bit))


def _clock_event_counts(row: GpuRow) -> Iterator[Labelled]:
    for reason, count in row.clock_events.items():
        yield (reason,), count


GPU_POWER: tuple[AnyFamily, ...] = (
    Family(
        "gpuslice_gpu_power_watts",
        "gauge",
        "gpu",
        "Power that the GPU draws.",
        reading(lambda gpu: scaled(gpu.power_milliwatts, 1000)),
        group="power",
    ),
    LabelledFamily(
        "gpuslice_gpu_power_part_watts",
        "gauge",
        "gpu",
        "Power as the driver meters it further: average, instant, of the whole module, of its memory.",
        ("part",),
        each(lambda gpu: gpu.power_parts_milliwatts, 1000),
        group="power",
    ),
    Family(
        "gpuslice_gpu_power_limit_watts",
        "gauge",
        "gpu",
        "Power limit in force.",
        reading(lambda gpu: scaled(gpu.power_limits_milliwatts.get("enforced"), 1000)),
        group="power",
    ),
    LabelledFamily(
        "gpuslice_gpu_power_limit_setting_watts",
        "gauge",
        "gpu",
        "Power limits: configured by an administrator, default, and the least and most that can be set.",
        ("limit",),
        each(
            lambda gpu: {kind: mw for kind, mw in gpu.power_limits_milliwatts.items() if kind != "enforced"},
            1000,
        ),
        group="power",
    ),
    Family(
        "gpuslice_gpu_energy_joules_total",
        "counter",
        "gpu",
        "Energy that the GPU has drawn since the driver was loaded.",
        reading(lambda gpu: scaled(gpu.energy_millijoules, 1000)),
        group="power",
    ),
    Family(
        "gpuslice_gpu_temperature_celsius",
        "gauge",
        "gpu",
        "Temperature of the GPU's core.",
        reading(lambda gpu: gpu.temperature_celsius),
        group="thermal",
    ),
    Family(
        "gpuslice_gpu_memory_temperature_celsius",
        "gauge",
        "gpu",
        "Temperature of the GPU's memory.",
        reading(lambda gpu: gpu.memory_temperature_celsius),
        group="thermal",
    ),
    Family(
        "gpuslice_gpu_temperature_limit_margin_celsius",
        "gauge",
        "gpu",
        "Degrees left until the GPU slows itself down.",
        reading(lambda gpu: gpu.temperature_margin_celsius),
        group="thermal",
    ),
    LabelledFamily(
        "gpuslice_gpu_temperature_margin_threshold_celsius",
        "gauge",
        "gpu",
        "Margin at which something happens: shutdown, slowdown, or the core (gpu) or memory is at its most.",
        ("threshold",),
        each(lambda gpu: gpu.temperature_limits_celsius),
        group="thermal",
    ),
    LabelledFamily(
        "gpuslice_gpu_temperature_threshold_celsius",
        "gauge",
        "gpu",
        "Temperature at which something happens: shutdown, slowdown, or core (gpu) or memory is at its most.",
        ("threshold",),
        each(lambda gpu: gpu.temperature_thresholds_celsius),
        group="thermal",
    ),
    Family(
        "gpuslice_gpu_fan_ratio",
        "gauge",
        "gpu",
        "Speed of the fan as a share of its greatest speed; absent on boards without one.",
        reading(lambda gpu: scaled(gpu.fan_percent, 100)),
        group="thermal",
    ),
    LabelledFamily(
        "gpuslice_gpu_clock_hertz",
        "gauge",
        "gpu",
        "Clock at which a part of the GPU runs now: sm, memory, graphics or video.",
        ("clock",),
        each(lambda gpu: gpu.clocks_megahertz, times=_MEGAHERTZ),
        group="clocks",
    ),
    LabelledFamily(
        "gpuslice_gpu_clock_max_hertz",
        "gauge",
        "gpu",
        "Highest clock at which a part of the GPU can run.",
        ("clock",),
        each(lambda gpu: gpu.clocks_max_megahertz, times=_MEGAHERTZ),
        group="clocks",
    ),
    LabelledFamily(
        "gpuslice_gpu_clock_application_hertz",
        "gauge",
        "gpu",
        "Clock that an administrator has set for applications.",
        ("clock",),
        each(lambda gpu: gpu.clocks_application_megahertz, times=_MEGAHERTZ),
        group="clocks",
    ),
    LabelledFamily(
        "gpuslice_gpu_clock_event_active",
        "gauge",
        "gpu",
        "1 for each reason that holds the clocks where they are now, 0 for the others.",
        ("reason",),
        _clock_events,
        group="throttling",
    ),
    LabelledFamily(
        "gpuslice_gpu_clock_events_total",
        "counter",
        "gpu",
        "How often each reason began to hold the clocks, as seen from poll to poll.",
        ("reason",),
        _clock_event_counts,
        group="throttling",
    ),
    LabelledFamily(
        "gpuslice_gpu_violation_seconds_total",
        "counter",
        "gpu",
        "Time for which each reason has held the clocks down since the driver was loaded.",
        ("reason",),
        each(lambda gpu: gpu.violations_nanoseconds, _NANOSECONDS),
        group="throttling",
    ),
)
"""Power, heat, clocks and what holds them back."""
