"""Alerts on errors of NVLinks, the fabric of NVSwitches and PCIe."""

from alerts.groups.hardware_numbers import HardwareThresholds
from alerts.model import GPU_BOARD, Alert
from alerts.promql import on_gpu
from alerts.wording import GPU, PODS, ROUNDED, SHORT_GPU

_ERRORS = "gpuslice_gpu_nvlink_errors_total"


def link_alerts(numbers: HardwareThresholds) -> tuple[Alert, ...]:
    """Return the alerts."""
    return (
        _nvlink_errors(numbers),
        _fabric(numbers.fabric_for),
        _pcie_replays(numbers.pcie_replays_per_minute),
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
