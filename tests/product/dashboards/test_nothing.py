"""Panels distinguish what did not happen from what is unknown."""

from pathlib import Path

from tests.product.dashboards.promtool import Asked, answered, node, query, said, series

A = "GPU-a"


def test_xid_errors_are_none_only_with_a_subscription_to_events(tmp_path: Path) -> None:
    all_series = node(60, A) | {series("gpu_events_watched", f'uuid="{A}"'): "0x20 1x20 1x20"}
    all_series |= {
        series("gpu_xid_last_timestamp_seconds", f'uuid="{A}", xid="31", class="application"'): "_x40 2460x20"
    }
    codes = said("hardware", "XID errors", "xid", kind="table")

    answered(
        tmp_path,
        all_series,
        Asked(codes, 10, {}),
        Asked(codes, 30, {'xid="none"': 1}),
        Asked(codes, 50, {'xid="31"': 1}),
    )


def test_firing_alerts_are_none_only_if_the_rules_are_loaded(tmp_path: Path) -> None:
    """A number shows that rules are missing."""
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


def test_unhealthy_gpus_are_none_only_if_gpus_are_known(tmp_path: Path) -> None:
    all_series = node(20, A) | {series("gpu_condition", f'uuid="{A}", condition="lost"'): "0x10 1x10 stale"}
    rows = said("fleet", "Unhealthy GPUs", "condition", kind="table")

    answered(
        tmp_path,
        all_series,
        Asked(rows, 5, {'condition="none"': 1}),
        Asked(rows, 15, {'condition="lost"': 1}),
        Asked(rows, 40, {}),
    )
