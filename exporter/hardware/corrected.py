"""Calls that the binding makes with arguments of a wrong type, or leaves half to its caller."""

from collections.abc import Callable, Mapping
from ctypes import byref, c_ulonglong
from typing import Any

import pynvml

# Bindings of driver 570 have version 2 of the record only, under the name of the newest.
_FABRIC_INFO = getattr(pynvml, "c_nvmlGpuFabricInfo_v2_t", None) or pynvml.c_nvmlGpuFabricInfoV_t


def _frame_buffer_usage(vgpu: int) -> int:
    """Return the bytes that the guest of a vGPU uses; the binding's own way keeps the lower 32 bits only."""
    used = c_ulonglong(0)
    call = pynvml._nvmlGetFunctionPointer("nvmlVgpuInstanceGetFbUsage")  # noqa: SLF001 - there is no public way
    code = call(vgpu, byref(used))
    if code != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(code)
    return used.value


def _fabric_info(device: Any) -> Any:
    """Return the record that the binding wants from its caller."""
    info = _FABRIC_INFO()
    pynvml.nvmlDeviceGetGpuFabricInfoV(device, byref(info))
    return info


CORRECTED: Mapping[str, Callable[..., Any]] = {
    "nvmlVgpuInstanceGetFbUsage": _frame_buffer_usage,
    "nvmlDeviceGetGpuFabricInfoV": _fabric_info,
}
"""By the name of the call; they raise as the binding's own do."""
