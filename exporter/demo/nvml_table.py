"""Every function that the fake driver has, by the name of its symbol."""

from collections.abc import Mapping

from exporter.demo import (
    nvml_events,
    nvml_fields,
    nvml_gpm,
    nvml_gpu,
    nvml_health,
    nvml_links,
    nvml_mig,
    nvml_node,
    nvml_power,
    nvml_process,
    nvml_topology,
    nvml_vgpu,
    nvml_video,
)
from exporter.demo.nvml_call import Function

FUNCTIONS: Mapping[str, Function] = {
    **nvml_node.FUNCTIONS,
    **nvml_gpu.FUNCTIONS,
    **nvml_mig.FUNCTIONS,
    **nvml_process.FUNCTIONS,
    **nvml_vgpu.FUNCTIONS,
    **nvml_fields.FUNCTIONS,
    **nvml_events.FUNCTIONS,
    **nvml_power.FUNCTIONS,
    **nvml_video.FUNCTIONS,
    **nvml_health.FUNCTIONS,
    **nvml_links.FUNCTIONS,
    **nvml_topology.FUNCTIONS,
    **nvml_gpm.FUNCTIONS,
}

# The branch of the driver that a function came with; an older driver's library does not have it.
_SINCE = {
    "nvmlDeviceGetNvLinkRemoteDeviceType": 470,
    "nvmlDeviceGetJpgUtilization": 535,
    "nvmlDeviceGetOfaUtilization": 535,
    "nvmlDeviceGetNumaNodeId": 550,
    "nvmlDeviceGetMarginTemperature": 570,
}


def newer_than(driver: int) -> frozenset[str]:
    """Return the functions that this branch of the driver does not have."""
    return frozenset(name for name, since in _SINCE.items() if driver < since)
