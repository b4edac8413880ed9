"""Confidential computing: the driver's mode, and what it hides of processes.

Layouts and numbers are those of nvml.h:
https://docs.nvidia.com/deploy/nvml-api/group__nvmlConfidentialComputingDefs.html
"""

from dataclasses import replace

from exporter.model import ConfidentialComputing, DriverInfo, GpuReading, MigReading
from exporter.model.poll_result import CONFIDENTIAL_LISTS
from exporter.nvml.driver.calls import Calls
from exporter.nvml.readings.answers import flag

ENVIRONMENTS = ("unavailable", "simulation", "production")
MULTI_GPU_MODES = ("none", "protected_pcie", "nvlink_encryption")
MODE_UNKNOWN = "the driver did not report whether confidential computing hides processes"


def read_mode(calls: Calls) -> ConfidentialComputing | None:
    """Return the mode of the driver; None if it does not report one. Raises as ``Calls.ask`` does."""
    settings = calls.ask("", "nvmlSystemGetConfComputeSettings")
    state = settings if settings is not None else calls.ask("", "nvmlSystemGetConfComputeState")
    if state is None:
        return None
    multi_gpu = dict(enumerate(MULTI_GPU_MODES)).get(settings.multiGpuMode) if settings is not None else None
    return ConfidentialComputing(
        enabled=flag(state.ccFeature),
        environment=dict(enumerate(ENVIRONMENTS)).get(state.environment, ""),
        developer_tools=flag(state.devToolsMode),
        multi_gpu=multi_gpu or "",
    )


def with_readiness(calls: Calls, driver: DriverInfo) -> DriverInfo:
    """Return the driver's facts with the current readiness of its GPUs. Raises as ``Calls.ask`` does."""
    if driver.confidential is None:
        return driver
    answer = calls.ask("", "nvmlSystemGetConfComputeGpusReadyState")
    ready = None if answer is None else flag(answer)
    return replace(driver, confidential=replace(driver.confidential, ready=ready))


def is_on(driver: DriverInfo) -> bool:
    """Return whether confidential computing is on."""
    return driver.confidential is not None and bool(driver.confidential.enabled)


def why_hidden(driver: DriverInfo, *, failed: bool) -> str:
    """Return why the driver may hide processes, "" if it does not; ``failed``: its mode could not be read.

    It does unless developer tools are allowed.
    """
    if failed:
        return MODE_UNKNOWN
    hides = is_on(driver) and driver.confidential is not None and not driver.confidential.developer_tools
    return CONFIDENTIAL_LISTS if hides else ""


def without_empty_lists(reading: GpuReading, why: str) -> GpuReading:
    """Return the reading of a GPU whose driver may hide processes: an empty list is then unknown, and why."""
    mig = reading.mig and tuple(map(_without_empty_list, reading.mig))
    if reading.processes != () and mig == reading.mig:
        return reading
    withheld = {**reading.withheld, "processes": why}
    reading = replace(reading, mig=mig, withheld=withheld)
    return reading if reading.processes else replace(reading, processes=None, process_utilization=None)


def _without_empty_list(device: MigReading) -> MigReading:
    return replace(device, processes=None) if device.processes == () else device
