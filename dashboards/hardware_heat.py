"""Clocks, power and temperature."""

from dashboards.board import Panel
from dashboards.hardware_series import UNTIL_SLOWDOWN, growth, of_gpu, rate
from dashboards.panels import GOOD, WARNING, Query, Words, row, states, timeline
from dashboards.promql import DEVICE, GPU, ON_GPUS, by_gpu

_HOLDS: Words = {1: ("limits the clocks", WARNING), 0: ("does not", GOOD)}


def clocks() -> tuple[Panel, ...]:
    """Return the row of clocks."""
    events = f'gpuslice_gpu_clock_event_active{{{ON_GPUS}, reason!="idle"}}'
    ever = f"{events} and max_over_time({events}[$__range] @ end()) == 1"
    never = f"0 * max by ({DEVICE}) ({events})"
    held = f"{growth('gpu_violation_seconds_total')} > 0"
    none = f"0 * max by ({DEVICE}) ({growth('gpu_violation_seconds_total')})"
    return (
        _clock("SM clock", "sm", "Clock of the multiprocessors"),
        _clock("Memory clock", "memory", "Clock of the memory"),
        states(
            "Clock limit reasons",
            "Reasons that limited the clocks in the time shown, or none; idleness does not count. A power "
            "cap is normal under load; heat and power brakes are not. Not for AMD GPUs.",
            _HOLDS,
            Query(
                by_gpu(f"{ever} or on ({DEVICE}) {row(never, 'reason', 'none')}", "reason"),
                f"{GPU} · {{{{reason}}}}",
            ),
            series=events,
        ),
        timeline(
            "Time with limited clocks",
            "percentunit",
            "Share of time in which each reason limited the clocks, from the driver's counters. Reasons "
            "that did not are left out; none: no reason did. Not for AMD GPUs.",
            Query(
                by_gpu(f"{held} or on ({DEVICE}) {row(none, 'reason', 'none')}", "reason"),
                f"{GPU} · {{{{reason}}}}",
            ),
            top=1,
        ),
    )


def power() -> tuple[Panel, ...]:
    """Return the row of power and energy."""
    watts, limit = (f"gpuslice_gpu_{name}_watts{{{ON_GPUS}}}" for name in ("power", "power_limit"))
    return (
        timeline(
            "Power",
            "watt",
            "Power of each GPU, and the enforced limit (dashed). Not in a vGPU guest.",
            of_gpu("gpu_power_watts"),
            of_gpu("gpu_power_limit_watts", what="limit", limit=True),
        ),
        timeline(
            "Power by limit",
            "percentunit",
            "At 100 % the power limit lowers the clocks.",
            Query(by_gpu(f"{watts} / {limit}"), GPU),
            top=1,
        ),
        timeline(
            "Mean power from energy",
            "watt",
            "Mean power from the GPU's energy counter, which includes all peaks. From Volta on.",
            rate("gpu_energy_joules_total"),
        ),
        timeline(
            "Power by measurement",
            "watt",
            "Average, instantaneous, of the whole module or of the memory, if the GPU measures it.",
            of_gpu("gpu_power_part_watts", "part"),
        ),
    )


def heat() -> tuple[Panel, ...]:
    """Return the row of temperatures."""
    return (
        timeline(
            "Temperature",
            "celsius",
            "Temperature of the core. The thresholds are in the table Settings and limits.",
            of_gpu("gpu_temperature_celsius"),
        ),
        timeline(
            "Degrees until slowdown",
            "celsius",
            "Margin of the core temperature until the GPU slows down. From Ada on; before, from the "
            "slowdown threshold if the driver reports it.",
            Query(UNTIL_SLOWDOWN, GPU),
        ),
        timeline(
            "Temperature of the memory",
            "celsius",
            "Only boards with HBM.",
            of_gpu("gpu_memory_temperature_celsius"),
        ),
        timeline(
            "Fan",
            "percentunit",
            "Fan speed, of its maximum. Most server boards have no fan.",
            of_gpu("gpu_fan_ratio"),
            top=1,
        ),
    )


def _clock(title: str, clock: str, what: str) -> Panel:
    called = f'clock="{clock}"'
    return timeline(
        title,
        "hertz",
        f"{what}, and its maximum (dashed). Low on an idle GPU.",
        Query(by_gpu(f"gpuslice_gpu_clock_hertz{{{ON_GPUS}, {called}}}"), GPU),
        Query(by_gpu(f"gpuslice_gpu_clock_max_hertz{{{ON_GPUS}, {called}}}"), f"{GPU} · most", limit=True),
    )
