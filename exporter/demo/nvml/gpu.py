"""Functions of the fake driver about one device: identity, memory, processes, utilization, modes and engines.

A mode of the whole node, confidential computing, is here too.
"""

import os
from collections.abc import Mapping
from functools import partial
from typing import Protocol

import pynvml

from exporter.demo.cgroup_memory import DriverLimits
from exporter.demo.machine import COPY_RATIO, Sample
from exporter.demo.nvml import call
from exporter.demo.nvml.board import Device, GpuDevice, MigDevice
from exporter.demo.nvml.call import Argument, Code, Function, known, numbers, record, refuse, require, text
from exporter.demo.scenario.derive import HOPPER, TURING, capability, has_hbm
from exporter.demo.scenario.gpus import MIB, Node
from exporter.model.hardware import ProcessKind

COMPUTE_MODES = {"default": 0, "exclusive_thread": 1, "prohibited": 2, "exclusive_process": 3}
MEMORY_V2 = 0x02000028
# The performance state of a small board at rest; large ones stay at the highest, which is 0.
RESTING = 8
SAMPLING_MICROSECONDS = 167_000
FRAMES_PER_SECOND, LATENCY_MICROSECONDS = 60, 2400
# Use of an engine by one stream, per percent of the time that its process keeps the GPU busy.
ENCODING, DECODING = 0.5, 0.3
# In NVML's order: a constant of NVML is the index of its word.
ENVIRONMENTS = ("unavailable", "simulation", "production")
MULTI_GPU_MODES = ("none", "protected_pcie", "nvlink_encryption")
SETTINGS_V1 = 0x01000014
NOT_AVAILABLE = 2**64 - 1
_LISTS: Mapping[str, ProcessKind] = {"Compute": "compute", "Graphics": "graphics", "MPSCompute": "mps"}


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
    return device.state.utilization, round(device.state.utilization * COPY_RATIO)


def _compute_mode(device: Device) -> int:
    if isinstance(device, MigDevice):
        return COMPUTE_MODES["default"]
    return refuse() if device.spec.mig_enabled else COMPUTE_MODES[device.spec.compute_mode]


def _architecture(device: Device) -> int:
    return refuse(Code.INVALID_ARGUMENT) if isinstance(device, MigDevice) else device.spec.architecture


def _performance_state(device: GpuDevice) -> int:
    return 0 if device.state.utilization or has_hbm(device.spec) else RESTING


def _board_info(device: GpuDevice, key: str) -> str:
    return known(device.spec.board_info.get(key))


def _gsp_firmware(device: GpuDevice, buffer: Argument) -> None:
    buffer.put_text(_board_info(device, "gsp_firmware"), pynvml.NVML_GSP_FIRMWARE_VERSION_BUF_SIZE)


def _name(device: Device) -> str:
    model = device.gpu.gpu.model
    return f"{model} MIG {device.spec.profile}" if isinstance(device, MigDevice) else model


def put_pci(reference: Argument, pci_bus_id: str) -> None:
    """Write a PCI address into an nvmlPciInfo_t."""
    answer = reference.target
    domain, bus, rest = pci_bus_id.split(":")
    answer.domain, answer.bus, answer.device = int(domain, 16), int(bus, 16), int(rest[:2], 16)
    answer.busId = pci_bus_id.encode()
    answer.busIdLegacy = f"{int(domain, 16):04X}:{bus}:{rest}".encode()


def _engine(device: GpuDevice, per_stream: float) -> tuple[int, int]:
    processes = device.state.processes
    percent = sum(process.running.process.streams * process.sm * per_stream for process in processes)
    return min(100, round(percent)), SAMPLING_MICROSECONDS


def _idle_engine(device: GpuDevice) -> tuple[int, int]:
    require(device.spec.architecture >= TURING)
    return 0, SAMPLING_MICROSECONDS


def _encoder_stats(device: GpuDevice) -> tuple[int, int, int]:
    sessions = sum(process.running.process.streams for process in device.state.processes if process.sm)
    return (sessions, FRAMES_PER_SECOND, LATENCY_MICROSECONDS) if sessions else (0, 0, 0)


class _Driver(Protocol):
    node: Node
    lists_pids: bool
    limits: DriverLimits


def _confidential(driver: _Driver) -> tuple[int, int, int, int]:
    mode = known(driver.node.confidential)
    environment, multi_gpu = ENVIRONMENTS.index(mode.environment), MULTI_GPU_MODES.index(mode.multi_gpu)
    return environment, mode.enabled, mode.developer_tools, multi_gpu


def _protected_memory(device: GpuDevice) -> tuple[int, int, int]:
    total = known(device.spec.protected_memory)
    used = min(total, device.state.used)
    return total, used, total - used


def _processes(kind: ProcessKind, device: Device, driver: _Driver, count: Argument, infos: Argument) -> None:
    count.put_list(_listed(kind, device, driver), infos)


def _process_details(device: Device, driver: _Driver, reference: Argument) -> None:
    require(device.gpu.gpu.architecture >= HOPPER)
    answer = reference.record(pynvml.nvmlProcessDetailList_v1)
    kind = call.at(tuple(_LISTS.values()), answer.mode)
    call.put_list(answer, "numProcArrayEntries", "procArray", _listed(kind, device, driver))


def _listed(kind: ProcessKind, device: Device, driver: _Driver) -> list[dict[str, int]]:
    visible = device.state.processes if driver.lists_pids else ()
    return [
        {
            "pid": state.pid,
            "usedGpuMemory": NOT_AVAILABLE if state.running.process.memory is None else state.memory,
            "gpuInstanceId": state.instance.gi if state.instance else call.NO_INSTANCE,
            "computeInstanceId": state.instance.ci if state.instance else call.NO_INSTANCE,
        }
        for state in visible
        if state.running.process.kind == kind
    ]


def _process_utilization(device: GpuDevice, answers: Argument, count: Argument, last_seen: Argument) -> None:
    count.put_list(_sampled(device, last_seen.number), answers)


def _processes_utilization(device: GpuDevice, reference: Argument) -> None:
    answer = reference.record(pynvml.ProcessesUtilizationInfo_v1)
    samples = _sampled(device, answer.lastSeenTimeStamp)
    call.put_list(answer, "processSamplesCount", "procUtilArray", samples)


def _sampled(device: GpuDevice, last_seen: int) -> list[dict[str, int]]:
    records = newer(device.state.samples, last_seen)
    require(records, Code.NOT_FOUND)
    names = ("pid", "timeStamp", "smUtil", "memUtil", "encUtil", "decUtil")
    rows = ((pid, timestamp, sm, sm // 2, 0, 0) for pid, (timestamp, sm) in records.items())
    return [dict(zip(names, row, strict=True)) for row in rows]


def newer(samples: tuple[Sample, ...], last_seen: int) -> dict[int, tuple[int, int]]:
    """Return pid → (time of its last activity in microseconds, mean percent) over the newer samples.

    A process that was idle in all of them has no record.
    """
    window = [sample for sample in samples if sample.timestamp > last_seen]
    records: dict[int, tuple[int, int]] = {}
    for pid in sorted({pid for sample in window for pid, sm in sample.sm.items() if sm}):
        total = sum(sample.sm.get(pid, 0) for sample in window)
        latest = max(sample.timestamp for sample in window if sample.sm.get(pid))
        records[pid] = latest, max(1, round(total / len(window)))
    return records


def _memory_limits(device: GpuDevice, driver: _Driver, reference: Argument) -> None:
    """Answer about a cgroup; the driver refuses one without a limit, as R615 does without ``dmem``."""
    answer = reference.target
    limits = known(driver.limits.of(os.fsdecode(answer.nameSpace), device.spec.uuid))
    answer.softLimit, answer.currentUsed = limits.soft, limits.used
    answer.hardLimit = limits.hard or NOT_AVAILABLE


FUNCTIONS: dict[str, Function] = {
    "nvmlDeviceGetUUID": text("any", lambda device: device.spec.uuid),
    "nvmlDeviceGetName": text("any", _name),
    "nvmlDeviceGetMinorNumber": numbers("gpu", lambda device: device.spec.minor),
    "nvmlDeviceGetSerial": text("gpu", lambda device: known(device.spec.serial)),
    "nvmlDeviceGetVbiosVersion": text("gpu", lambda device: known(device.spec.vbios)),
    "nvmlDeviceGetBoardPartNumber": text("gpu", lambda device: _board_info(device, "part_number")),
    "nvmlDeviceGetInforomImageVersion": text("gpu", lambda device: _board_info(device, "inforom")),
    "nvmlDeviceGetGspFirmwareVersion": Function("gpu", _gsp_firmware),
    "nvmlDeviceGetCudaComputeCapability": numbers("gpu", lambda device: known(capability(device.spec))),
    "nvmlDeviceGetPciInfo_v3": Function(
        "gpu", lambda device, reference: put_pci(reference, device.spec.pci_bus_id)
    ),
    "nvmlDeviceGetArchitecture": numbers("any", _architecture),
    "nvmlDeviceGetComputeMode": numbers("any", _compute_mode),
    "nvmlDeviceGetMemoryInfo": record("any", "total used free", _memory_v1),
    "nvmlDeviceGetMemoryInfo_v2": record("any", "total reserved used free", _memory_v2, MEMORY_V2),
    "nvmlDeviceGetBAR1MemoryInfo": record("any", "bar1Total bar1Used bar1Free", _bar1),
    "nvmlDeviceGetUtilizationRates": record("whole gpu", "gpu memory", _utilization),
    "nvmlDeviceGetPerformanceState": numbers("gpu", _performance_state),
    "nvmlDeviceGetPersistenceMode": numbers("gpu", lambda device: device.spec.persistence),
    "nvmlDeviceGetDisplayActive": numbers("gpu", lambda device: device.spec.display_active),
    "nvmlDeviceGetEncoderUtilization": numbers("whole gpu", lambda device: _engine(device, ENCODING)),
    "nvmlDeviceGetDecoderUtilization": numbers("whole gpu", lambda device: _engine(device, DECODING)),
    "nvmlDeviceGetJpgUtilization": numbers("whole gpu", _idle_engine),
    "nvmlDeviceGetOfaUtilization": numbers("whole gpu", _idle_engine),
    "nvmlDeviceGetEncoderStats": numbers("whole gpu", _encoder_stats),
    "nvmlSystemGetConfComputeState": record(
        "node", "environment ccFeature devToolsMode", lambda driver: _confidential(driver)[:3]
    ),
    "nvmlSystemGetConfComputeSettings": record(
        "node", "environment ccFeature devToolsMode multiGpuMode", _confidential, SETTINGS_V1
    ),
    "nvmlSystemGetConfComputeGpusReadyState": numbers(
        "node", lambda driver: known(driver.node.confidential).ready
    ),
    "nvmlDeviceGetConfComputeProtectedMemoryUsage": record("gpu", "total used free", _protected_memory),
    **{
        f"nvmlDeviceGet{name}RunningProcesses{version}": Function(
            "any", partial(_processes, kind), with_driver=True
        )
        for name, kind in _LISTS.items()
        for version in ("", "_v2", "_v3")
    },
    "nvmlDeviceGetRunningProcessDetailList": Function("any", _process_details, with_driver=True),
    "nvmlDeviceGetMemoryLimits_v1": Function("whole gpu", _memory_limits, with_driver=True),
    "nvmlDeviceGetProcessUtilization": Function("whole gpu", _process_utilization),
    "nvmlDeviceGetProcessesUtilizationInfo": Function("whole gpu", _processes_utilization),
}
