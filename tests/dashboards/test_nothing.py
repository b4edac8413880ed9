"""Panels distinguish events that did not happen from events that are unknown."""

from pathlib import Path

from tests.dashboards.promtool import Asked, answered, node, query, said, series

A, B = "GPU-a", "GPU-b"
GPU_A, GPU_B = 'node="n1", gpu="0", uuid="GPU-a"', 'node="n1", gpu="1", uuid="GPU-b"'


def test_clocks_that_nothing_held_down_are_drawn_at_zero(tmp_path: Path) -> None:
    """A GPU has a band and a line for each reason that held its clocks in the time shown, else for none."""
    told = node(60, A, B)
    for reason, active, seconds in (
        ("power_cap", "0x20 1x40", "0x20 0+30x40"),
        ("sync_boost", "0x60", "0x60"),
    ):
        for uuid in (A, B):
            labels = f'uuid="{uuid}", reason="{reason}"'
            told[series("gpu_clock_event_active", labels)] = active if uuid == B else "0x60"
            told[series("gpu_violation_seconds_total", labels)] = seconds if uuid == B else "0x60"
    none, capped = f'{GPU_A}, reason="none"', f'{GPU_B}, reason="power_cap"'
    bands, lines = (
        query("hardware", title, hours=1) for title in ("Clock limit reasons", "Time with limited clocks")
    )

    answered(
        tmp_path,
        told,
        Asked(bands, 50, {none: 0, capped: 1}),
        Asked(lines, 10, {none: 0, f'{GPU_B}, reason="none"': 0}),
        Asked(lines, 50, {none: 0, capped: 0.5}),
    )


def test_degrees_until_slowdown_are_those_of_the_threshold_on_older_gpus(tmp_path: Path) -> None:
    """The table of GPUs and the timeline agree, whether a driver reports the margin or the threshold."""
    told = node(60, A, B) | {
        series("gpu_temperature_celsius", f'uuid="{A}"'): "53x60",
        series("gpu_temperature_threshold_celsius", f'uuid="{A}", threshold="slowdown"'): "90x60",
        series("gpu_temperature_limit_margin_celsius", f'uuid="{B}"'): "21x60",
    }
    expected = {GPU_A: 37, GPU_B: 21}

    answered(
        tmp_path,
        told,
        Asked(query("hardware", "Degrees until slowdown"), 30, expected),
        Asked(query("hardware", "GPUs now", number=8), 30, expected),
    )


def test_a_table_without_rows_says_none_only_if_that_is_known(tmp_path: Path) -> None:
    """Without a subscription to events it is unknown whether there were errors; with one there were none."""
    told = node(60, A) | {series("gpu_events_watched", f'uuid="{A}"'): "0x20 1x20 1x20"}
    last = series("gpu_xid_last_timestamp_seconds", f'uuid="{A}", xid="31"')
    told |= {last: "_x40 2460x20", last.replace("last_timestamp_seconds", "code_errors_total"): "_x40 1x20"}
    time, count = (said("hardware", "XID errors", "xid", number=number) for number in (0, 1))

    answered(
        tmp_path,
        told,
        Asked(time, 10, {'xid="unknown"': 1}),
        Asked(count, 10, {}),
        Asked(time, 30, {'xid="none"': 1}),
        Asked(count, 30, {'xid="none"': 1}),
        Asked(time, 50, {'xid="31"': 1}),
        Asked(count, 50, {'xid="31"': 1}),
    )
