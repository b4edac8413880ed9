"""Alerts on NVLinks, the fabric of NVSwitches and PCIe."""

from alerts.groups.hardware_numbers import HardwareThresholds
from alerts.model import GPU_BOARD, Alert
from alerts.promql import DEVICE, on_gpu
from alerts.wording import GPU, PODS, ROUNDED, SHORT_GPU

_ERRORS = "gpuslice_gpu_nvlink_errors_total"


def link_alerts(numbers: HardwareThresholds) -> tuple[Alert, ...]:
    """Return the alerts."""
    return (
        _nvlink_down(numbers),
        _nvlink_errors(numbers),
        _fabric(numbers.fabric_for),
        _pcie_degraded(numbers),
        _pcie_replays(numbers.pcie_replays_per_minute),
    )


def _nvlink_down(numbers: HardwareThresholds) -> Alert:
    # Without a bridge some links are never up, so compare with the number that was up before, on any target.
    active = "gpuslice_gpu_nvlinks_active"
    before = f"max_over_time({active}[{numbers.remembered}:{numbers.remembered_step}])"
    return Alert(
        name="NvlinkDown",
        expr=on_gpu(f"{active}\n< on (cluster, uuid) group_left ()\nmax by (cluster, uuid) ({before})"),
        hold=numbers.nvlink_down_for,
        severity="warning",
        summary=f"NVLinks of {SHORT_GPU} went down",
        description=f"{GPU} has {{{{ $value }}}} active NVLink(s), and had more within "
        f"{numbers.remembered}. Pods on it: {PODS}. Traffic to other GPUs is slower or fails. "
        "Drain the GPUs at both ends and reset them.",
        dashboard=GPU_BOARD,
    )


def _nvlink_errors(numbers: HardwareThresholds) -> Alert:
    retries = f'increase({_ERRORS}{{error=~"replay|recovery"}}[1h]) >= {numbers.nvlink_retries_per_hour:g}'
    checksums = f'rate({_ERRORS}{{error=~"crc_.*"}}[10m]) >= {numbers.nvlink_crc_per_second:g}'
    return Alert(
        name="NvlinkErrors",
        expr=on_gpu(f"{retries}\nor\n{checksums}"),
        severity="warning",
        summary=f"NVLinks of {SHORT_GPU} have errors",
        description=f"The NVLinks of {GPU} have errors of the kind {{{{ $labels.error }}}}: "
        "{{ $value | printf `%.0f` }} {{ if match `^crc_` $labels.error }}a "
        f"second{{{{ else }}}}within an hour{{{{ end }}}}. Pods on it: {PODS}. The data is sent "
        "again, and the link may fail: check the links with nvidia-smi nvlink -e, and both ends "
        "of the affected link.",
        dashboard=GPU_BOARD,
    )


def _fabric(hold: str) -> Alert:
    return Alert(
        name="FabricFailed",
        expr=on_gpu('gpuslice_gpu_fabric_info{fabric=~"failed|in_progress"}'),
        hold=hold,
        severity="critical",
        summary=f"{SHORT_GPU} has not joined its NVSwitch fabric",
        description=f"{GPU} has not joined the NVSwitch fabric for {hold}: {{{{ $labels.fabric }}}}. CUDA "
        f"does not start on it. Pods on it: {PODS}. Check the fabric manager of the node: it "
        "must run and match the driver version.",
        dashboard=GPU_BOARD,
    )


def _pcie_degraded(numbers: HardwareThresholds) -> Alert:
    window = numbers.pcie_window
    # The link generation drops on an idle GPU, the width does not.
    idle = f'avg_over_time(gpuslice_gpu_clock_event_active{{reason="idle"}}[{window}])'
    busy = f"and on ({DEVICE})\n{idle} < {numbers.pcie_idle_share:g}"
    return Alert(
        name="PcieDegraded",
        expr=on_gpu(f"{_below_most('width', window)}\nor\n{_below_most('generation', window, busy)}"),
        severity="warning",
        summary=f"The PCIe link of {SHORT_GPU} is slower than it could be",
        description=f"The PCIe link of {GPU} reached at most {{{{ $labels.link }}}} {{{{ $value }}}} in the "
        f"last {window}, less than GPU and slot support. Pods on it: {PODS}. Their transfers "
        "are slower. Check the seat of the board, its riser and the settings of the slot.",
        dashboard=GPU_BOARD,
    )


def _below_most(part: str, window: str, where: str = "") -> str:
    """Return links that have not reached their maximum in a window, if the series is as old as the window."""
    series = f"gpuslice_gpu_pcie_link_{part}"
    below = f"max_over_time({series}[{window}]) < {series}_max\nand\n{series} offset {window}"
    rows = "\n".join(filter(None, (below, where)))
    return f'label_replace(\n{rows},\n"link", "{part}", "", "")'


def _pcie_replays(per_minute: float) -> Alert:
    return Alert(
        name="PcieReplays",
        expr=on_gpu(f"rate(gpuslice_gpu_pcie_replays_total[10m]) * 60 > {per_minute:g}"),
        severity="warning",
        summary=f"The PCIe link of {SHORT_GPU} has many replays",
        description=f"The PCIe link of {GPU} resent {ROUNDED} packets per minute over the last 10 minutes. "
        f"Pods on it: {PODS}. The link is bad and may fail. Check the seat of the board, its "
        "riser, and the kernel log for PCIe errors.",
        dashboard=GPU_BOARD,
    )
