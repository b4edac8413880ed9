"""Functions of the fake driver about one device: identity, memory, processes, utilization, modes and engines.

A mode of the whole node, confidential computing, is here too.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pynvml

from exporter.demo.machine import COPY_RATIO, ProcessState, Sample
from exporter.demo.nvml.board import Device, GpuDevice, MigDevice
from exporter.demo.nvml.call import (
    NO_INSTANCE,
    Code,
    Function,
    known,
    number,
    numbers,
    put_length,
    put_records,
    record,
    refuse,
    require,
    target,
    text,
)
from exporter.demo.scenario.derive import HOPPER, TURING, capability, has_hbm
from exporter.demo.scenario.gpus import MIB, Node
from exporter.model.hardware import ProcessKind

if TYPE_CHECKING:
    from exporter.demo.nvml import FakeNvml

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


def hides_processes(node: Node) -> bool:
    """Return whether the driver lists no processes."""
    mode = node.confidential
    return mode is not None and mode.enabled and not mode.developer_tools


def _state(driver: "FakeNvml") -> tuple[int, int, int]:
    mode = known(driver.node.confidential)
    return ENVIRONMENTS.index(mode.environment), int(mode.enabled), int(mode.developer_tools)


def _settings(driver: "FakeNvml") -> tuple[int, ...]:
    return *_state(driver), MULTI_GPU_MODES.index(known(driver.node.confidential).multi_gpu)


def _is_ready(driver: "FakeNvml") -> int:
    return int(known(driver.node.confidential).ready)


def _protected_memory(device: GpuDevice) -> tuple[int, int, int]:
    total = known(device.spec.protected_memory)
    used = min(total, device.state.used)
    return total, used, total - used


def _processes(kind: ProcessKind, device: Device, driver: "FakeNvml", count: Any, infos: Any) -> None:
    processes = _listed(kind, device, driver)
    put_length(count, infos, len(processes))
    _fill_processes(infos, processes)


def _process_details(device: Device, driver: "FakeNvml", reference: Any) -> None:
    require(device.gpu.gpu.architecture >= HOPPER)
    answer = target(reference)
    require(answer.version == pynvml.nvmlProcessDetailList_v1, Code.VERSION_MISMATCH)
    require(0 <= answer.mode < len(_LISTS), Code.INVALID_ARGUMENT)
    processes = _listed(tuple(_LISTS.values())[answer.mode], device, driver)
    put_records(answer, "numProcArrayEntries", "procArray", len(processes))
    _fill_processes(answer.procArray, processes)


def _listed(kind: ProcessKind, device: Device, driver: "FakeNvml") -> list[ProcessState]:
    visible = device.state.processes if driver.lists_pids else ()
    return [state for state in visible if state.running.process.kind == kind]


def _fill_processes(infos: Any, processes: list[ProcessState]) -> None:
    for place, state in enumerate(processes):
        info, instance = infos[place], state.instance
        info.pid = state.pid
        info.usedGpuMemory = state.memory if state.memory_known else NOT_AVAILABLE
        if hasattr(info, "gpuInstanceId"):
            info.gpuInstanceId = instance.gi if instance else NO_INSTANCE
            info.computeInstanceId = instance.ci if instance else NO_INSTANCE


def _process_utilization(device: GpuDevice, answers: Any, count: Any, last_seen: Any) -> None:
    records = _sampled(device, number(last_seen))
    put_length(count, answers, len(records))
    _fill_samples(answers, records)


def _processes_utilization(device: GpuDevice, reference: Any) -> None:
    answer = target(reference)
    require(answer.version == pynvml.ProcessesUtilizationInfo_v1, Code.VERSION_MISMATCH)
    records = _sampled(device, answer.lastSeenTimeStamp)
    put_records(answer, "processSamplesCount", "procUtilArray", len(records))
    _fill_samples(answer.procUtilArray, records)


def _sampled(device: GpuDevice, last_seen: int) -> dict[int, tuple[int, int]]:
    require(not device.spec.mig_enabled)
    records = newer(device.state.samples, last_seen)
    require(records, Code.NOT_FOUND)
    return records


def _fill_samples(answers: Any, records: Mapping[int, tuple[int, int]]) -> None:
    for place, (pid, (timestamp, sm)) in enumerate(records.items()):
        answer = answers[place]
        answer.pid, answer.timeStamp, answer.smUtil, answer.memUtil = pid, timestamp, sm, sm // 2
        answer.encUtil = answer.decUtil = 0


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


FUNCTIONS: Mapping[str, Function] = {
    "nvmlDeviceGetUUID": text("any", lambda device: device.spec.uuid),
    "nvmlDeviceGetName": text("any", _name),
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
    "nvmlSystemGetConfComputeState": record("node", "environment ccFeature devToolsMode", _state),
    "nvmlSystemGetConfComputeSettings": record(
        "node", "environment ccFeature devToolsMode multiGpuMode", _settings, SETTINGS_V1
    ),
    "nvmlSystemGetConfComputeGpusReadyState": numbers("node", _is_ready),
    "nvmlDeviceGetConfComputeProtectedMemoryUsage": record("gpu", "total used free", _protected_memory),
    **{
        f"nvmlDeviceGet{name}RunningProcesses{version}": Function(
            "any", partial(_processes, kind), with_driver=True
        )
        for name, kind in _LISTS.items()
        for version in ("", "_v2", "_v3")
    },
    "nvmlDeviceGetRunningProcessDetailList": Function("any", _process_details, with_driver=True),
    "nvmlDeviceGetProcessUtilization": Function("gpu", _process_utilization),
    "nvmlDeviceGetProcessesUtilizationInfo": Function("gpu", _processes_utilization),
}
