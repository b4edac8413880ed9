"""Reads facts of GPUs and of the driver that rarely change: the identity of a GPU, confidential computing."""

from typing import Any

from exporter.model import ConfidentialComputing, GpuIdentity
from exporter.model.bounds import NUMBER
from exporter.nvml.driver.binding import text_field
from exporter.nvml.driver.calls import Calls
from exporter.nvml.driver.records import CORE
from exporter.nvml.readings.answers import believed, flag, known

MINOR = "nvmlDeviceGetMinorNumber"
# ``nvmlDeviceArchitecture_t`` of nvml.h.
ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}
# Modes of confidential computing, in the order of their numbers in nvml.h:
# https://docs.nvidia.com/deploy/nvml-api/group__nvmlConfidentialComputingDefs.html
ENVIRONMENTS = ("unavailable", "simulation", "production")
MULTI_GPU_MODES = ("none", "protected_pcie", "nvlink_encryption")


def read_identity(calls: Calls, handle: Any, uuid: str, index: int) -> GpuIdentity:
    """Return the identity of a GPU. Raises as ``Calls.ask`` does."""
    calls.group = CORE
    pci = calls.ask(uuid, "nvmlDeviceGetPciInfo", handle)
    minor = calls.ask(uuid, MINOR, handle)
    capability = calls.ask(uuid, "nvmlDeviceGetCudaComputeCapability", handle)
    return GpuIdentity(
        uuid=uuid,
        index=index,
        minor=believed(calls, uuid, MINOR, None if minor is None else known(minor), NUMBER),
        model=calls.ask(uuid, "nvmlDeviceGetName", handle) or "",
        pci_bus_id="" if pci is None else text_field(pci, "busId"),
        serial=calls.ask(uuid, "nvmlDeviceGetSerial", handle),
        architecture=ARCHITECTURES.get(calls.ask(uuid, "nvmlDeviceGetArchitecture", handle)),
        vbios=calls.ask(uuid, "nvmlDeviceGetVbiosVersion", handle),
        part_number=calls.ask(uuid, "nvmlDeviceGetBoardPartNumber", handle),
        inforom=calls.ask(uuid, "nvmlDeviceGetInforomImageVersion", handle),
        gsp_firmware=calls.ask(uuid, "nvmlDeviceGetGspFirmwareVersion", handle),
        compute_capability=None if capability is None else ".".join(map(str, capability)),
    )


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
