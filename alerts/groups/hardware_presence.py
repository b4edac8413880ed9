"""Alerts on missing GPUs, and on released drivers."""

from alerts.groups.hardware_numbers import HardwareThresholds
from alerts.model import NODE_BOARD, Alert
from alerts.subjects import by_node

_PRESENT = "sum by (cluster, node) (node:gpuslice_total_gpus:count)"
# The driver's count; absent while it does not answer, since it is unknown then.
_COUNTED = by_node("gpuslice_node_gpus")


def presence_alerts(numbers: HardwareThresholds) -> tuple[Alert, ...]:
    """Return the alerts."""
    return (
        _missing(numbers),
        _driver_gone(numbers),
        _unidentified(numbers),
        _released(numbers),
    )


def _missing(numbers: HardwareThresholds) -> Alert:
    before = f"max_over_time(({_PRESENT})[{numbers.remembered}:{numbers.remembered_step}])"
    return Alert(
        name="GpuMissing",
        expr=f"{before}\n- ({_PRESENT} or {_COUNTED} * 0) > 0",
        hold=numbers.missing_for,
        severity="critical",
        summary="{{ $value }} GPU(s) of node {{ $labels.node }} are missing",
        description="Node {{ $labels.node }} had {{ $value }} more GPU(s) within "
        f"{numbers.remembered} than its driver lists now. Missing: {_gone(numbers.remembered)}. "
        "Unless they were removed on purpose, drain the node and look for them on its PCIe bus.",
        dashboard=NODE_BOARD,
    )


def _driver_gone(numbers: HardwareThresholds) -> Alert:
    failing = by_node('gpuslice_collector_success{collector=~"nvml|amd"}', "collector")
    before = f"max_over_time(({_PRESENT})[{numbers.remembered}:{numbers.remembered_step}])"
    return Alert(
        name="DriverGone",
        # While GPUs are still reported, each of them has its own alert.
        expr=f"{failing} == 0\nunless on (cluster, node) gpuslice_driver_released == 1\n"
        f"and on (cluster, node) {before}\nunless on (cluster, node) gpuslice_gpu_up",
        hold=numbers.missing_for,
        severity="critical",
        summary="No GPU of node {{ $labels.node }} can be read",
        description=f"Node {{{{ $labels.node }}}} had GPUs within {numbers.remembered}, and since its "
        "exporter restarted its source {{ $labels.collector }} fails: the driver is not loaded, "
        f"does not answer, or was upgraded while in use. Missing: {_gone(numbers.remembered)}. "
        "Keep new pods off the node, and load the driver or reboot.",
        dashboard=NODE_BOARD,
    )


def _gone(remembered: str) -> str:
    """Return a template of the GPUs of the alert's node that are missing."""
    of_node = "{cluster=%[1]q,node=%[2]q}"
    query = (
        f"max by (uuid, model, pci_bus_id) (last_over_time(gpuslice_gpu_info{of_node}[{remembered}])) "
        f"and on (uuid) (last_over_time(gpuslice_gpu_up{of_node}[{remembered}]) "
        f"unless on (uuid) gpuslice_gpu_up{of_node})"
    )
    return (
        f"{{{{ range $i, $gpu := query (printf `{query}` $labels.cluster $labels.node) "
        "| sortByLabel `uuid` }}"
        "{{ if $i }}, {{ end }}{{ $gpu.Labels.uuid }} "
        "({{ $gpu.Labels.model }} at {{ $gpu.Labels.pci_bus_id }}){{ else }}unknown{{ end }}"
    )


def _unidentified(numbers: HardwareThresholds) -> Alert:
    return Alert(
        name="GpuUnidentified",
        # A GPU that was known before a restart of the exporter has the alert GpuMissing, with its name.
        expr=f"{_COUNTED} - ({_PRESENT} or {_COUNTED} * 0) > 0\n"
        'unless on (cluster, node) ALERTS{alertname="GpuSliceGpuMissing"}',
        hold=numbers.missing_for,
        severity="warning",
        summary="{{ $value }} GPU(s) of node {{ $labels.node }} are not identified",
        description="The driver of node {{ $labels.node }} counts {{ $value }} GPU(s) without a UUID: they "
        "were lost before the exporter started, or it may not open them. These GPUs have no "
        "readings and no known holders. Check nvidia-smi and the kernel log on the node.",
        dashboard=NODE_BOARD,
    )


def _released(numbers: HardwareThresholds) -> Alert:
    return Alert(
        name="DriverReleased",
        expr=f"{by_node('gpuslice_driver_released')} == 1",
        hold=numbers.released_for,
        severity="warning",
        summary="The driver of node {{ $labels.node }} has been released for a long time",
        description="A release window has been open on node {{ $labels.node }} for more than "
        f"{numbers.released_for}. Its GPUs are not monitored meanwhile, and no alert fires if "
        "one is lost. Close the window when the work on the GPUs is done.",
        dashboard=NODE_BOARD,
    )
