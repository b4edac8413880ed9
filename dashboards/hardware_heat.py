"""Clocks, power and heat: how fast GPUs run, and what holds them back."""

from dashboards.board import Panel
from dashboards.hardware_series import UNTIL_SLOWDOWN, growth, of_gpu, rate
from dashboards.panels import GOOD, WARNING, Query, Words, row, states, timeline
from dashboards.promql import DEVICE, GPU, ON_GPUS, by_gpu

_HOLDS: Words = {1: ("holds the clocks", WARNING), 0: ("does not", GOOD)}


def clocks() -> tuple[Panel, ...]:
    """Make the row of clocks."""
    events = f'gpuslice_gpu_clock_event_active{{{ON_GPUS}, reason!="idle"}}'
    ever = f"{events} and max_over_time({events}[$__range] @ end()) == 1"
    never = f"0 * max by ({DEVICE}) ({events})"
    held = f"{growth('gpu_violation_seconds_total')} > 0"
    none = f"0 * max by ({DEVICE}) ({growth('gpu_violation_seconds_total')})"
    return (
        _clock("SM clock", "sm", "Clock of the multiprocessors"),
        _clock("Memory clock", "memory", "Clock of the memory"),
        states(
            "What holds the clocks down",
            "The reasons that held the clocks at some time of those shown, or none; idleness is no reason. A "
            "power cap is normal under load; heat and brakes are not. Not told of AMD GPUs.",
            _HOLDS,
            Query(
                by_gpu(f"{ever} or on ({DEVICE}) {row(never, 'reason', 'none')}", "reason"),
                f"{GPU} · {{{{reason}}}}",
            ),
            series=events,
        ),
        timeline(
            "Time with clocks held down",
            "percentunit",
            "Share of time for which each reason held the clocks down, by the driver's own count. Reasons "
            "that did not are left out; none: no reason did. Not told of AMD GPUs.",
            Query(
                by_gpu(f"{held} or on ({DEVICE}) {row(none, 'reason', 'none')}", "reason"),
                f"{GPU} · {{{{reason}}}}",
            ),
            top=1,
        ),
    )


def power() -> tuple[Panel, ...]:
    """Make the row of power and energy."""
    watts, limit = (f"gpuslice_gpu_{name}_watts{{{ON_GPUS}}}" for name in ("power", "power_limit"))
    return (
        timeline(
            "Power",
            "watt",
            "Power that each GPU draws, and the limit in force (dashed). In a vGPU guest nothing is told.",
            of_gpu("gpu_power_watts"),
            of_gpu("gpu_power_limit_watts", what="limit", limit=True),
        ),
        timeline(
            "Power of each GPU, of its limit",
            "percentunit",
            "At 100 % the limit holds the clocks down.",
            Query(by_gpu(f"{watts} / {limit}"), GPU),
            top=1,
        ),
        timeline(
            "Energy in a second",
            "watt",
            "Mean power, by the GPU's counter of energy: it misses no peak. From Volta on.",
            rate("gpu_energy_joules_total"),
        ),
        timeline(
            "Power as metered further",
            "watt",
            "Average, instantaneous, of the whole module or of the memory: as far as the GPU meters it.",
            of_gpu("gpu_power_part_watts", "part"),
        ),
    )


def heat() -> tuple[Panel, ...]:
    """Make the row of temperatures."""
    return (
        timeline(
            "Temperature",
            "celsius",
            "Temperature of the core. The thresholds stand in the table of settings.",
            of_gpu("gpu_temperature_celsius"),
        ),
        timeline(
            "Degrees until slowdown",
            "celsius",
            "How much hotter the core may get until the GPU slows itself down: at 0 it does. From Ada on; "
            "else by the threshold of slowdown, where it is told.",
            Query(UNTIL_SLOWDOWN, GPU),
        ),
        timeline(
            "Temperature of the memory",
            "celsius",
            "Only of boards with HBM.",
            of_gpu("gpu_memory_temperature_celsius"),
        ),
        timeline(
            "Fan",
            "percentunit",
            "Speed of the fan, of its greatest. Not told of boards without one, as most in servers.",
            of_gpu("gpu_fan_ratio"),
            top=1,
        ),
    )


def _clock(title: str, clock: str, what: str) -> Panel:
    called = f'clock="{clock}"'
    return timeline(
        title,
        "hertz",
        f"{what}, and the highest it can have (dashed). Low on an idle GPU.",
        Query(by_gpu(f"gpuslice_gpu_clock_hertz{{{ON_GPUS}, {called}}}"), GPU),
        Query(by_gpu(f"gpuslice_gpu_clock_max_hertz{{{ON_GPUS}, {called}}}"), f"{GPU} · most", limit=True),
    )
