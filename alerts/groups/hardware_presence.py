"""Alerts on missing GPUs, and on released drivers."""

from alerts.groups.hardware_numbers import HardwareThresholds
from alerts.model import NODE_BOARD, Alert
from alerts.promql import GPU_NAMES, NODE_NAMES, TARGET, on_node

# A GPU is counted once, whichever targets report it: a replaced exporter is two for a moment.
_PRESENT = f"count by (cluster, node) (group by (cluster, node, uuid) ({GPU_NAMES}))"
# The driver's count; absent while it does not answer, since it is unknown then.
_COUNTED = f"max by (cluster, node) (gpuslice_node_gpus * on ({TARGET}) group_left (node) {NODE_NAMES})"


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
        expr=f"{before}\n-\n(\n  {_PRESENT}\n  or\n  {_COUNTED} * 0\n)\n> 0",
        hold=numbers.missing_for,
        severity="critical",
        summary="{{ $value }} GPU(s) of node {{ $labels.node }} are missing",
        description="Node {{ $labels.node }} had {{ $value }} more GPU(s) within "
        f"{numbers.remembered} than its driver lists now. Missing: {_gone(numbers.remembered)}. "
        "Unless they were removed on purpose, drain the node and look for them on its PCIe bus.",
        dashboard=NODE_BOARD,
    )


def _driver_gone(numbers: HardwareThresholds) -> Alert:
    failing = (
        f'gpuslice_collector_success{{collector=~"nvml|amd"}} == 0\n'
        f"unless on ({TARGET}) gpuslice_driver_released == 1"
    )
    before = f"max_over_time(({_PRESENT})[{numbers.remembered}:{numbers.remembered_step}])"
    return Alert(
        name="DriverGone",
        # While GPUs are still reported, each of them has its own alert.
        expr=f"({on_node(failing)})\nand on (cluster, node) {before}\nunless on (cluster, node) {_PRESENT}",
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
    names = f"{GPU_NAMES}{{cluster=%[1]q,node=%[2]q}}"
    query = (
        f"max by (uuid, model, pci_bus_id) (last_over_time(gpuslice_gpu_info[{remembered}])) "
        f"and on (uuid) (last_over_time({names}[{remembered}]) unless on (uuid) {names})"
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
        expr=f"{_COUNTED}\n-\n(\n  {_PRESENT}\n  or\n  {_COUNTED} * 0\n)\n> 0\n"
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
        expr=on_node("gpuslice_driver_released == 1"),
        hold=numbers.released_for,
        severity="warning",
        summary="The driver of node {{ $labels.node }} has been released for a long time",
        description="A release window has been open on node {{ $labels.node }} for more than "
        f"{numbers.released_for}. Its GPUs are not monitored meanwhile, and no alert fires if "
        "one is lost. Close the window when the work on the GPUs is done.",
        dashboard=NODE_BOARD,
    )
