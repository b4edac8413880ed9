"""Both sides of each threshold: a test of a unit file at two minutes, or with two values of a series.

promtool evaluates a unit file as seldom as its tests allow. Here rules are evaluated each minute, so that the
minute is known in which an alert begins or ends.
"""

import re
from typing import Any, NamedTuple

from tests.product.alerts.committed import Unit

_VALUES = re.compile(r"(?P<first>-?[0-9.]+|_|stale)(?P<step>[+-][0-9.]+)?(?:x(?P<times>[0-9]+))?")
_MINUTES = {"m": 1, "h": 60, "d": 1440}


class Edge(NamedTuple):
    """The alert is silent on one side, and fires on the other."""

    alert: str
    silent: float
    """Minutes after the start, or what ``values`` has in place of ``{}``."""
    fires: float
    series: str = ""
    """A pattern of the series that get other ``values``, one each minute."""
    values: str = ""
    at: int = 0  # minutes after the start, if values differ
    test: int = 0  # place in the unit file


EDGES = (
    Edge("ExporterAbsent", 9, 10),
    # A day after the first series, the alert starts again with the label of the cluster.
    Edge("ExporterAbsent", 1449, 1450, test=2),
    Edge("ExporterDown", 15, 16),
    Edge("ExporterDown", 1449, 1450, r"^up\{.*7\.5:9836", "1x20 0x1700", test=2),
    Edge("NodeWithoutExporter", 14, 15),
    Edge("NodeScrapedTwice", 14, 15),
    Edge("LabelsOverwritten", 14, 15),
    Edge("CollectorFailing", 8, 9),
    Edge("CollectorStale", 1767225310, 1767225290, "last_success.*nvml", "{}+60x20", 20),
    Edge("CollectorSlow", 13, 14),
    Edge("CollectorSlow", 2.49, 2.51, "duration.*nvml", "{}x20", 20),
    Edge("SnapshotStale", 10, 11),
    Edge("PodResourcesDown", 8, 9),
    Edge("AttributionDegraded", 18, 19),
    Edge("AttributionDegraded", 1.71e9, 1.73e9, "gpu_unattributed", "{}x30", 30),
    Edge("AttributionDegraded", 1.07e9, 1.08e9, "gpu_memory_used", "{}x30", 30),
    Edge("ProcessAttributionMissing", 9, 10),
    Edge("PodAnnotationsUnreadable", 9, 10),
    Edge("AttributionInconsistent", 0.33, 0.34, "inconsistent_total", "0+{}x40", 40),
    # Two calls fail.
    Edge("NvmlErrors", 0.33, 0.34, "nvml_errors_total", "0+{}x40", 40),
    Edge("GpuLost", 5, 6),
    Edge("GpuNeedsReset", 6, 7),
    Edge("GpuNeedsReboot", 2, 3),
    Edge("GpuThrottled", 6, 7),
    Edge("GpuLinkDegraded", 11, 12),
    Edge("HealthDisagrees", 11, 12),
    Edge("GpuMissing", 39, 40),
    Edge("GpuMissing", 381, 380, test=5),
    Edge("DriverReleased", 69, 70),
    Edge("XidHardware", 71, 70),
    Edge("XidApplicationBurst", 0.33, 0.336, "xid_code_errors", "0+{}x130", 130),
    Edge("EccCorrectedRate", 1.65, 1.68, "ecc_errors", "0+{}x100", 100),
    Edge("FabricFailed", 14, 15),
    Edge("PcieReplays", 7.9, 8.1, "pcie_replays", "0+{}x60", 60),
    Edge("HolderIdle", 59, 60),
    Edge("HolderIdleHoldingMemory", 1.07e9, 1.08e9, "container_memory_used", "{}x70", 70),
    Edge("OverFairShare", 14, 15),
    Edge("OverFairShare", 6.03e9, 6.05e9, "container_memory_used.*embed-0", "{}x25", 25),
    Edge("OverLimit", 9, 10),
    Edge("OverLimit", 13.8e9, 13.9e9, "container_memory_used.*reindex", "{}x20", 20),
    Edge("UseWithoutHolding", 9, 10),
    Edge("UseWithoutHolding", 2.68e8, 2.69e8, "container_memory_used.*debug", "{}x20", 20),
    Edge("NoisyNeighbour", 14, 15),
    Edge("NoisyNeighbour", 0.23, 0.22, "compute_used.*rank-0", "{}x25", 25),
    Edge("NoisyNeighbour", 0.835, 0.845, "compute_used.*embed-0", "{}x25", 25),
    Edge("NoisyNeighbour", 0.0099, 0.0101, "compute_used.*rank-0", "{}x25", 25),
    Edge("SharedMemoryPressure", 4, 5),
    Edge("SharedMemoryPressure", 14.3e9, 14.5e9, "gpu_memory_used", "{}x20", 20),
    Edge("SharedMemoryWillExhaust", 29, 30, "gpu_memory_used", "8.6e9+128849018x40"),
    Edge("SharedMemoryWillExhaust", 7.0e9, 7.2e9, "gpu_memory_used", "{}+128849018x40", 30),
    Edge("SharedMemoryWillExhaust", 62e6, 63.2e6, "gpu_memory_used", "10e9+{}x40", 30),
    Edge("NamespaceWaste", 1440, 1441),
    Edge("NamespaceWaste", 6.1, 5.9, "used_gpu_seconds", "0+{}x1500", 1500),
    Edge("NamespaceWaste", 59.5, 60, "entitled_gpu_seconds", "0+{}x1500", 1500),
    Edge("SliceUnderused", 1439, 1440),
    Edge("SliceUnderused", 21.5e9, 21.3e9, "container_memory_used", "{}x1450", 1450),
    Edge("SliceUnderused", 4.29e9, 4.3e9, "container_memory_entitled", "{}x1450", 1450, test=3),
    Edge("MigFragmented", 59, 60),
    Edge("MigFragmented", 2.97, 3.03, 'mig_memory_slices.*"free"', "{}x70", 70),
    Edge("MigFragmented", 4.02, 3.97, "adjacent_free", "{}x70", 70),
    Edge("MigInstanceUnallocated", 1439, 1440),
    Edge("CapacityExhausted", 29, 30),
    Edge("PodsWaitForIdle", 19, 20),
    Edge("MemoryOvercommitted", 14, 15),
    Edge("MemoryOvercommitted", 42.9e9, 43.2e9, "memory_entitled", "{}x30", 30),
    Edge("ReplicaMismatch", 14, 15),
    Edge("SlicesUnhealthy", 14, 15),
    Edge("AllocatedDeviceMissing", 4, 5),
    Edge("VgpuUnlicensed", 14, 15),
    Edge("VgpuLicenseExpires", 2879, 2880, "license_expiry", "7e5x2900"),
    Edge("VgpuLicenseExpires", 779e3, 777e3, "license_expiry", "{}x2900", 2890),
)


def is_long(edge: Edge) -> bool:
    """Return whether promtool evaluates the rules for the minutes of half a day or more."""
    return (edge.at or max(edge.silent, edge.fires)) > 700


def unit_of(edge: Edge, unit: Unit) -> Unit:
    """Return the unit file of an alert with a test of each side of an edge only."""
    test = unit["tests"][edge.test]
    return {
        "evaluation_interval": "1m",
        "group_eval_order": unit.get("group_eval_order", []),
        "tests": [_side(edge, test, edge.silent, 0), _side(edge, test, edge.fires, 1)],
    }


def _side(edge: Edge, test: dict[str, Any], chosen: float, firing: int) -> dict[str, Any]:
    every = sum(
        int(number) * _MINUTES[unit] for number, unit in re.findall("([0-9]+)([mhd])", test["interval"])
    )
    series = [
        {
            "series": each["series"],
            "values": edge.values.format(f"{chosen:.12g}")
            if edge.series and re.search(edge.series, each["series"])
            else _VALUES.sub(lambda match: _each_minute(match, every), str(each["values"])),
        }
        for each in test["input_series"]
    ]
    check = {
        "expr": f'group(ALERTS{{alertname="GpuSlice{edge.alert}", alertstate="firing"}}) or vector(0)',
        "eval_time": f"{edge.at or int(chosen)}m",
        "exp_samples": [{"labels": "{}", "value": firing}],
    }
    return {"interval": "1m", "input_series": series, "promql_expr_test": [check]}


def _each_minute(values: re.Match[str], every: int) -> str:
    """Return a part of a series with a sample each minute instead of one in ``every``."""
    times = int(values["times"] or 0)
    if values["first"] == "_":
        return f"_x{max(times, 1) * every}"
    if values["first"] == "stale":
        return f"stale _x{every}"
    return f"{values['first']}{float(values['step'] or 0) / every:+.12g}x{(times + 1) * every - 1}"
