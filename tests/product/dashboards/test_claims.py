"""Single panels, when exporters are replaced and a part is unknown."""

from pathlib import Path

from tests.product.dashboards.promtool import Asked, answered, during, node, query, series

A, B = "GPU-a", "GPU-b"
TRAINER = 'namespace="ml", pod="ddp", container="trainer"'


def held(name: str, uuid: str, instance: str = "i1") -> str:
    """Return the name of a series of a container on a device."""
    return series(f"container_{name}", f'uuid="{uuid}", {TRAINER}', instance)


def test_use_is_a_share_of_the_devices_of_which_use_and_holding_are_known(tmp_path: Path) -> None:
    all_series = node(360, A, B) | {
        held("entitled_gpu_seconds_total", A): "0+30x360",
        held("used_gpu_seconds_total", A): "0+15x360",
        held("entitled_gpu_seconds_total", B): "0+60x360",
    }

    answered(
        tmp_path,
        all_series,
        Asked(query("tenant", "Used, of held", hours=2), 300, {"": 0.5}),
        Asked(query("tenant", "GPU-hours held", hours=2), 300, {"": 3}),
        Asked(query("tenant", "GPU-hours used", hours=2), 300, {"": 0.5}),
        Asked(query("tenant", "GPU-hours unknown", hours=2), 300, {"": 2}),
        Asked(query("tenant", "Cost of GPU-hours", hours=2, price="2.5"), 300, {"": 7.5}),
    )


def test_unknown_gpu_hours_are_zero_if_all_are_measured(tmp_path: Path) -> None:
    counted = {held("entitled_gpu_seconds_total", A): "0+30x360"}
    unmeasured = query("tenant", "GPU-hours unknown", hours=2)
    used = {held("used_gpu_seconds_total", A): "0+15x360"}

    answered(tmp_path, node(360, A) | counted | used, Asked(unmeasured, 300, {"": 0}))
    answered(tmp_path, node(360, A) | counted, Asked(unmeasured, 300, {"": 1}))


def test_energy_includes_the_count_of_a_replaced_exporter_pod(tmp_path: Path) -> None:
    all_series = node(120, A) | node(360, A, instance="i2", since=121)
    for instance, since, until in (("i1", 0, 120), ("i2", 121, 360)):
        all_series[held("energy_joules_total", A, instance)] = during("0+6000", since, until)
    energy = query("tenant", "Energy", hours=5)

    # 300 minutes, less half of the minute between the two pods, in watt-hours.
    answered(tmp_path, all_series, Asked(f"round({energy} * 3600, 1000)", 300, {"": 1_797_000}))


def test_errors_of_a_gpu_outlive_a_restart_of_the_exporter(tmp_path: Path) -> None:
    all_series = node(400, A) | {series("gpu_xid_errors_total", f'uuid="{A}"'): "0x60 1x30 0x300"}
    errors = query("hardware", "XID errors", hours=3, kind="stat")

    answered(tmp_path, all_series, Asked(f"ceil({errors})", 150, {"": 1}), Asked(errors, 350, {"": 0}))


def test_a_gpu_with_several_conditions_counts_once(tmp_path: Path) -> None:
    """A released driver is not a condition of the hardware."""
    all_series = node(60, A, B) | {
        series("gpu_condition", f'uuid="{A}", condition="{condition}"'): "1x60"
        for condition in ("lost", "needs_reset", "driver_released")
    }
    all_series[series("gpu_condition", f'uuid="{B}", condition="driver_released"')] = "1x60"
    all_series[series("gpu_condition", f'uuid="{B}", condition="lost"')] = "0x60"

    for board in ("node", "hardware"):
        answered(tmp_path, all_series, Asked(query(board, "Unhealthy GPUs", kind="stat"), 30, {"": 1}))
