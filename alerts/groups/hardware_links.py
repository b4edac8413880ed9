"""Alerts on the fabric of NVSwitches and on PCIe."""

from alerts.groups.hardware_numbers import HardwareThresholds
from alerts.model import GPU_BOARD, Alert
from alerts.subjects import by_gpu
from alerts.wording import GPU, PODS, ROUNDED, SHORT_GPU


def link_alerts(numbers: HardwareThresholds) -> tuple[Alert, ...]:
    """Return the alerts."""
    return (
        _fabric(numbers.fabric_for),
        _pcie_replays(numbers.pcie_replays_per_minute),
    )


def _fabric(hold: str) -> Alert:
    return Alert(
        name="FabricFailed",
        expr=by_gpu('gpuslice_gpu_fabric_info{fabric=~"failed|in_progress"}', "fabric"),
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
        expr=f"{by_gpu('rate(gpuslice_gpu_pcie_replays_total[10m])')} * 60 > {per_minute:g}",
        severity="warning",
        summary=f"The PCIe link of {SHORT_GPU} has many replays",
        description=f"The PCIe link of {GPU} resent {ROUNDED} packets per minute over the last 10 minutes. "
        f"Pods on it: {PODS}. The link is bad and may fail. Check the seat of the board, its "
        "riser, and the kernel log for PCIe errors.",
        dashboard=GPU_BOARD,
    )
