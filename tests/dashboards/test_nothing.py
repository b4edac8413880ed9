"""Panels distinguish what did not happen from what is unknown."""

from pathlib import Path

from tests.dashboards.promtool import Asked, answered, node, query, said, series

A = "GPU-a"


def test_a_table_without_rows_says_none_only_if_that_is_known(tmp_path: Path) -> None:
    """Without a subscription to events it is unknown whether there were errors; with one there were none."""
    told = node(60, A) | {series("gpu_events_watched", f'uuid="{A}"'): "0x20 1x20 1x20"}
    told |= {
        series("gpu_xid_last_timestamp_seconds", f'uuid="{A}", xid="31", class="application"'): "_x40 2460x20"
    }
    codes = said("hardware", "XID errors", "xid", kind="table")

    answered(
        tmp_path,
        told,
        Asked(codes, 10, {}),
        Asked(codes, 30, {'xid="none"': 1}),
        Asked(codes, 50, {'xid="31"': 1}),
    )


def test_no_alert_is_known_with_the_rules_alone(tmp_path: Path) -> None:
    """Without the rules the table of alerts does not say none; a number says that they are missing."""
    firing = said("fleet", "Firing alerts", "alertname")
    loaded = query("fleet", "Recording rules")
    alert = 'ALERTS{alertname="GpuSliceGpuLost", alertstate="firing", severity="critical", node="n1"}'

    answered(
        tmp_path,
        node(60, A) | {"node:gpuslice_total_gpus:count": "_x20 1x40", alert: "_x40 1x20"},
        Asked(firing, 10, {}),
        Asked(firing, 30, {'alertname="none"': 1}),
        Asked(firing, 50, {'alertname="GpuSliceGpuLost"': 1}),
        Asked(loaded, 10, {"": 0}),
        Asked(loaded, 30, {"": 1}),
    )


def test_healthy_gpus_are_none(tmp_path: Path) -> None:
    """GPUs without a condition are none that are unhealthy; without GPUs nothing is known."""
    told = node(20, A) | {series("gpu_condition", f'uuid="{A}", condition="lost"'): "0x10 1x10 stale"}
    rows = said("fleet", "Unhealthy GPUs", "condition", kind="table")

    answered(
        tmp_path,
        told,
        Asked(rows, 5, {'condition="none"': 1}),
        Asked(rows, 15, {'condition="lost"': 1}),
        Asked(rows, 40, {}),
    )
