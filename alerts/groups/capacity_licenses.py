"""Alerts on the licenses of virtual GPUs."""

from alerts.groups.capacity_numbers import CapacityThresholds
from alerts.model import GPU_BOARD, Alert
from alerts.subjects import by_gpu
from alerts.windows import seconds
from alerts.wording import GPU, PODS, SHORT_GPU

_EXPIRY = "gpuslice_gpu_vgpu_license_expiry_timestamp_seconds"


def license_alerts(numbers: CapacityThresholds) -> tuple[Alert, ...]:
    """Return the alerts."""
    return (_unlicensed(numbers), _expires(numbers))


def _unlicensed(numbers: CapacityThresholds) -> Alert:
    query = "gpuslice_vgpu_info{vgpu_uuid=%q}"
    return Alert(
        name="VgpuUnlicensed",
        expr=by_gpu("gpuslice_gpu_vgpu_licensed == 0 or gpuslice_vgpu_licensed == 0", "vgpu_uuid"),
        hold=numbers.unlicensed_for,
        severity="warning",
        summary=f"A vGPU has no license: {SHORT_GPU}",
        description="{{ with $labels.vgpu_uuid }}The vGPU "
        f"{{{{ . }}}}{{{{ with query (printf `{query}` .) }}}} "
        "({{ . | first | label `type` }}, virtual machine "
        "{{ . | first | label `vm_id` }}){{ end }} on {{ else }}The vGPU that this node uses as "
        f"{{{{ end }}}}{GPU} has no license: its driver slows it down, and later blocks all "
        f"compute on it. Pods on it: {PODS}. Check in the guest whether nvidia-gridd runs and "
        "reaches the license server.",
        dashboard=GPU_BOARD,
    )


def _expires(numbers: CapacityThresholds) -> Alert:
    within, unchanged = numbers.license_expires_within, numbers.license_unchanged_for
    return Alert(
        name="VgpuLicenseExpires",
        # A borrowed license is renewed long before it expires.
        expr=f"{by_gpu(_EXPIRY)} - time() < {seconds(within):g} > 0\n"
        f"and ({by_gpu(_EXPIRY)} == {by_gpu(f'{_EXPIRY} offset {unchanged}')})",
        severity="warning",
        summary=f"A vGPU license expires soon: {SHORT_GPU}",
        description=f"The vGPU license of {GPU} expires in {{{{ $value | humanizeDuration }}}}, and has not "
        f"been renewed for {unchanged}. Without a license the driver slows the vGPU down. Pods "
        f"on it: {PODS}. Renew the license, or check in the guest why nvidia-gridd does not "
        "renew it.",
        dashboard=GPU_BOARD,
    )
