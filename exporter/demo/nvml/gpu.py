"""Functions of the fake driver about one device: identity, memory, utilization, modes and video engines."""

from collections.abc import Mapping
from typing import Any

from exporter.demo.machine import COPY_RATIO
from exporter.demo.nvml.board import Device, GpuDevice, MigDevice
from exporter.demo.nvml.call import Code, Function, known, numbers, record, refuse, require, target, text
from exporter.demo.scenario.derive import TURING, capability, has_hbm
from exporter.demo.scenario.gpus import MIB

COMPUTE_MODES = {"default": 0, "exclusive_thread": 1, "prohibited": 2, "exclusive_process": 3}
MEMORY_V2 = 0x02000028
# The performance state of a small board at rest; large ones stay at the highest, which is 0.
RESTING = 8
SAMPLING_MICROSECONDS = 167_000
FRAMES_PER_SECOND, LATENCY_MICROSECONDS = 60, 2400
# Use of an engine by one stream, per percent of the time that its process keeps the GPU busy.
ENCODING, DECODING = 0.5, 0.3


def _memory(device: Device) -> tuple[int, int, int]:
    """Return (total, reserved, used) of a GPU or of a MIG device's GPU instance, in bytes."""
    if isinstance(device, MigDevice):
        return device.spec.memory_bytes, device.spec.reserved, device.state.used
    return device.spec.memory_total, device.state.reserved, device.state.used


def _memory_v1(device: Device) -> tuple[int, int, int]:
    total, reserved, used = _memory(device)
    # The old call counts reserved memory as used.
    return total, used + reserved, total - used - reserved


def _memory_v2(device: Device) -> tuple[int, int, int, int]:
    total, reserved, used = _memory(device)
    return total, reserved, used, total - used - reserved


def _bar1(device: Device) -> tuple[int, int, int]:
    total = known(device.gpu.gpu.bar1_total)
    used = min(total, (1 + 2 * len(device.state.processes)) * MIB)
    return total, used, total - used


def _utilization(device: GpuDevice) -> tuple[int, int]:
    require(not device.spec.mig_enabled)
    return device.state.utilization, round(device.state.utilization * COPY_RATIO)


def _compute_mode(device: Device) -> int:
    if isinstance(device, MigDevice):
        return COMPUTE_MODES["default"]
    return refuse() if device.spec.mig_enabled else COMPUTE_MODES[device.spec.compute_mode]


def _architecture(device: Device) -> int:
    return refuse(Code.INVALID_ARGUMENT) if isinstance(device, MigDevice) else device.spec.architecture


def _performance_state(device: GpuDevice) -> int:
    return 0 if device.state.utilization or has_hbm(device.spec) else RESTING


def _accounting(device: GpuDevice) -> int:
    return int(device.spec.accounting and not device.spec.mig_enabled)


def _board_info(device: GpuDevice, key: str) -> str:
    return known(device.spec.board_info.get(key) or None)


def _gsp_firmware(device: GpuDevice, buffer: Any) -> None:
    # NVML passes no length: the buffer is large enough by definition.
    buffer.value = _board_info(device, "gsp_firmware").encode()


def _capability(device: GpuDevice) -> tuple[int, int]:
    given = device.spec.board_info.get("compute_capability")
    if given:
        major, minor = map(int, given.split("."))
        return major, minor
    return capability(device.spec) or refuse()


def _name(device: Device) -> str:
    model = device.gpu.gpu.model
    return f"{model} MIG {device.spec.profile}" if isinstance(device, MigDevice) else model


def _pci(device: GpuDevice, reference: Any) -> None:
    fill_pci(target(reference), device.spec.pci_bus_id)


def fill_pci(answer: Any, pci_bus_id: str) -> None:
    """Write a PCI address into an nvmlPciInfo_t of any version."""
    domain, bus, rest = pci_bus_id.split(":")
    answer.domain, answer.bus = int(domain, 16), int(bus, 16)
    answer.device = int(rest.split(".")[0], 16)
    short = f"{int(domain, 16):04X}:{bus}:{rest}".encode()
    if hasattr(answer, "busIdLegacy"):
        answer.busIdLegacy, answer.busId = short, pci_bus_id.encode()
    else:
        answer.busId = short


def _engine(device: GpuDevice, per_stream: float) -> tuple[int, int]:
    require(not device.spec.mig_enabled)
    processes = device.state.processes
    percent = sum(process.running.process.streams * process.sm * per_stream for process in processes)
    return min(100, round(percent)), SAMPLING_MICROSECONDS


def _idle_engine(device: GpuDevice) -> tuple[int, int]:
    require(device.spec.architecture >= TURING and not device.spec.mig_enabled)
    return 0, SAMPLING_MICROSECONDS


def _encoder_stats(device: GpuDevice) -> tuple[int, int, int]:
    require(not device.spec.mig_enabled)
    sessions = sum(process.running.process.streams for process in device.state.processes if process.sm)
    return (sessions, FRAMES_PER_SECOND, LATENCY_MICROSECONDS) if sessions else (0, 0, 0)


FUNCTIONS: Mapping[str, Function] = {
    "nvmlDeviceGetUUID": text("any", lambda device: device.spec.uuid),
    "nvmlDeviceGetName": text("any", _name),
    "nvmlDeviceGetIndex": numbers("any", lambda device: device.index),
    "nvmlDeviceGetMinorNumber": numbers("gpu", lambda device: device.spec.minor),
    "nvmlDeviceGetSerial": text("gpu", lambda device: known(device.spec.serial)),
    "nvmlDeviceGetVbiosVersion": text("gpu", lambda device: known(device.spec.vbios)),
    "nvmlDeviceGetBoardPartNumber": text("gpu", lambda device: _board_info(device, "part_number")),
    "nvmlDeviceGetInforomImageVersion": text("gpu", lambda device: _board_info(device, "inforom")),
    "nvmlDeviceGetGspFirmwareVersion": Function("gpu", _gsp_firmware),
    "nvmlDeviceGetCudaComputeCapability": numbers("gpu", _capability),
    "nvmlDeviceGetPciInfo_v3": Function("gpu", _pci),
    "nvmlDeviceGetPciInfo_v2": Function("gpu", _pci),
    "nvmlDeviceGetArchitecture": numbers("any", _architecture),
    "nvmlDeviceGetComputeMode": numbers("any", _compute_mode),
    "nvmlDeviceGetMemoryInfo": record("any", "total used free", _memory_v1),
    "nvmlDeviceGetMemoryInfo_v2": record("any", "total reserved used free", _memory_v2, MEMORY_V2),
    "nvmlDeviceGetBAR1MemoryInfo": record("any", "bar1Total bar1Used bar1Free", _bar1),
    "nvmlDeviceGetUtilizationRates": record("gpu", "gpu memory", _utilization),
    "nvmlDeviceGetPerformanceState": numbers("gpu", _performance_state),
    "nvmlDeviceGetPersistenceMode": numbers("gpu", lambda device: int(device.spec.persistence)),
    "nvmlDeviceGetAccountingMode": numbers("gpu", _accounting),
    "nvmlDeviceGetDisplayActive": numbers("gpu", lambda device: int(device.spec.display_active)),
    "nvmlDeviceGetEncoderUtilization": numbers("gpu", lambda device: _engine(device, ENCODING)),
    "nvmlDeviceGetDecoderUtilization": numbers("gpu", lambda device: _engine(device, DECODING)),
    "nvmlDeviceGetJpgUtilization": numbers("gpu", _idle_engine),
    "nvmlDeviceGetOfaUtilization": numbers("gpu", _idle_engine),
    "nvmlDeviceGetEncoderStats": numbers("gpu", _encoder_stats),
}
