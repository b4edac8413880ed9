"""Functions of the fake driver about PCIe, NVLink and topology."""

import uuid
from collections.abc import Mapping, Sequence

from exporter.demo.machine import Flow, GpuState
from exporter.demo.nvml.board import GpuDevice
from exporter.demo.nvml.call import Argument, Code, Function, at, numbers, record, require, returning
from exporter.demo.nvml.gpu import put_pci
from exporter.demo.scenario.derive import BLACKWELL, HOPPER, active_nvlinks, has_hbm, pcie_generation
from exporter.demo.scenario.gpus import Gpu
from exporter.model.readings import FabricProblem

TO_GPU, TO_PROCESSOR, TO_SWITCH = 0, 1, 2
ALL_LINKS = 0xFFFFFFFF
SWITCH = "0000FFFF:00:00.0"
SLOWEST_PCIE = 1
# NVML reports PCIe throughput in KB/s of this size.
KILOBYTE = 1024
# In NVML's order.
PCIE_FLOWS: tuple[Flow, ...] = ("pcie_transmit", "pcie_receive")
NO_FABRIC = 0
FABRIC_COMPLETED = 3
UUID_LENGTH = 16
# State, status, clique, health, and the bytes of the domain's UUID.
FABRIC_NUMBERS = 4 + UUID_LENGTH
# NVML_GPU_FABRIC_HEALTH_MASK: shift of each problem, and its numbers for its absence and its presence.
FABRIC_PROBLEMS: Mapping[FabricProblem, tuple[int, int, int]] = {
    "degraded_bandwidth": (0, 2, 1),
    "route_recovery": (2, 2, 1),
    "route_unhealthy": (4, 2, 1),
    "access_timeout_recovery": (6, 2, 1),
    # These bits say that there is one.
    "no_partition": (12, 1, 2),
    "manager_disconnected": (14, 1, 2),
}
# The shift of the configuration, and its kinds by number: not reported, correct, and the incorrect ones.
CONFIGURATION = 8
MISCONFIGURATIONS = (
    "unknown",
    "",
    "incorrect_system_guid",
    "incorrect_chassis_serial",
    "no_partition",
    "insufficient_nvlinks",
    "incompatible_firmware",
    "invalid_location",
    "invalid_gpu_state",
)
OTHER_MISCONFIGURATION = 0xF
C2C_MEGABYTES_PER_SECOND = 44_712
# nvmlGpuTopologyLevel_t by nvidia-smi's words, from one board to the whole machine.
LEVELS: Mapping[str, int] = {"PSB": 0, "PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50}
WORD_BITS = 64


def require_link(gpu: Gpu, link: int) -> None:
    """Refuse a call about an NVLink that the board does not have."""
    require(gpu.links.nvlinks)
    require(0 <= link < gpu.links.nvlinks, Code.INVALID_ARGUMENT)


def is_active(gpu: Gpu, link: int) -> bool:
    """Return whether an NVLink is up."""
    require_link(gpu, link)
    return link < active_nvlinks(gpu)


def link_bytes(state: GpuState, link: int, flow: Flow) -> int:
    """Return the bytes that passed over one NVLink, or over all of them for ALL_LINKS."""
    if link == ALL_LINKS:
        require_link(state.gpu, 0)
        return state.totals[flow]
    return state.totals[flow] // active_nvlinks(state.gpu) if is_active(state.gpu, link) else 0


def blackwell_bytes(state: GpuState, link: int, flow: Flow) -> int:
    """Return the same by the counter that came with Blackwell."""
    require(state.gpu.architecture >= BLACKWELL)
    return link_bytes(state, link, flow)


def blackwell_errors(state: GpuState, link: int, error: str) -> int:
    """Return a counter of Blackwell of one NVLink, or over all; the scenario's count is that of link 0."""
    require(state.gpu.architecture >= BLACKWELL)
    require_link(state.gpu, 0 if link == ALL_LINKS else link)
    return state.gpu.links.errors.get(error, 0) if link in (0, ALL_LINKS) else 0


def link_errors(state: GpuState, _link: int, error: str) -> int:
    """Return the errors over all NVLinks; Blackwell has other counters."""
    require_link(state.gpu, 0)
    require(state.gpu.architecture < BLACKWELL)
    return state.gpu.links.errors.get(error, 0)


def c2c_active(gpu: Gpu, link: int) -> bool:
    require(gpu.links.c2c_links)
    require(0 <= link < gpu.links.c2c_links, Code.INVALID_ARGUMENT)
    return link < gpu.links.c2c_links - gpu.links.c2c_down


def c2c_errors(state: GpuState, _link: int, error: str) -> int:
    """Return the C2C errors of a GPU."""
    require(state.gpu.links.c2c_links)
    return state.gpu.links.c2c_errors.get(error, 0)


def _peer(gpu: Gpu, link: int) -> str | None:
    """Return the uuid of the GPU at the other end, None for a switch or processor; refuse if it is down."""
    require(is_active(gpu, link))
    ends = [uuid for uuid, count in gpu.links.to.items() for _ in range(count)]
    return ends[link] if link < len(ends) else None


def _remote_type(device: GpuDevice, link: int) -> int:
    if _peer(device.spec, link) is not None:
        return TO_GPU
    return TO_SWITCH if device.spec.links.switch else TO_PROCESSOR


def _remote_pci(device: GpuDevice, link: Argument, reference: Argument) -> None:
    peer = _peer(device.spec, link.number)
    require(peer is not None or device.spec.links.switch)
    put_pci(reference, SWITCH if peer is None else device.state.pci_bus_ids[peer])


def _generation(device: GpuDevice) -> int:
    """Return the current generation; an idle small board lowers it to save power."""
    gpu = device.spec
    return pcie_generation(gpu) if device.state.utilization or has_hbm(gpu) else SLOWEST_PCIE


def _throughput(device: GpuDevice, direction: int) -> int:
    return round(device.state.flows[at(PCIE_FLOWS, direction)] / KILOBYTE)


def _fabric(device: GpuDevice) -> tuple[int, ...]:
    """Return the registration with the NVLink fabric, from Hopper on; without a switch there is none."""
    require(device.spec.architecture >= HOPPER)
    links = device.spec.links
    cluster = uuid.UUID(links.cluster).bytes if links.cluster else bytes(UUID_LENGTH)
    state = FABRIC_COMPLETED if links.switch else NO_FABRIC
    health = health_mask(links.fabric_problems, links.misconfiguration)
    return state, Code.SUCCESS, links.clique, health, *cluster


def health_mask(problems: Mapping[FabricProblem, bool], misconfiguration: str) -> int:
    """Return the mask of a fabric's health, as the driver encodes it; 0 stands for not supported."""
    mask = 0
    for problem, (shift, absent, present) in FABRIC_PROBLEMS.items():
        if problem in problems:
            mask |= (present if problems[problem] else absent) << shift
    if "incorrect_configuration" in problems:
        other = problems["incorrect_configuration"] and not misconfiguration
        kind = OTHER_MISCONFIGURATION if other else MISCONFIGURATIONS.index(misconfiguration)
        mask |= kind << CONFIGURATION
    return mask


def _put_fabric(arguments: Sequence[Argument], values: Sequence[int]) -> None:
    """Fill the record; numbers that are left out at the end are zero."""
    answer, padded = arguments[-1].target, [*values, *[0] * FABRIC_NUMBERS]
    answer.state, answer.status, answer.cliqueId, answer.healthMask = padded[:4]
    answer.clusterUuid[:] = padded[4:FABRIC_NUMBERS]


def _c2c_mode(device: GpuDevice) -> bool:
    require(device.spec.links.c2c_links)
    return True


def _common_ancestor(device: GpuDevice, other: GpuDevice, reference: Argument) -> None:
    links, others = device.spec.links, other.spec.links
    given = links.relations.get(other.spec.uuid) or others.relations.get(device.spec.uuid)
    relation = given or ("NODE" if links.numa_node == others.numa_node else "SYS")
    reference.put(LEVELS[relation])


def _cpu_affinity(device: GpuDevice, size: Argument, reference: Argument) -> None:
    cpus: set[int] = set()
    # Such as ``0-31,64-95``.
    for part in filter(None, device.spec.links.cpus.split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    _set_bits(cpus, size.number, reference)


def _memory_affinity(device: GpuDevice, size: Argument, reference: Argument, _scope: Argument) -> None:
    node = device.spec.links.numa_node
    _set_bits(set() if node is None else {node}, size.number, reference)


def _set_bits(bits: set[int], words: int, reference: Argument) -> None:
    """Set bits in an array of words; bits past its end are dropped."""
    require(bits)
    answer = reference.target
    for word in range(words):
        answer[word] = sum(1 << bit % WORD_BITS for bit in bits if bit // WORD_BITS == word)


_WIDTH = numbers("gpu", lambda device: device.spec.links.pcie_width)
FUNCTIONS: dict[str, Function] = {
    "nvmlDeviceGetPcieReplayCounter": numbers("gpu", lambda device: device.spec.pcie_replays),
    "nvmlDeviceGetCurrPcieLinkGeneration": numbers("gpu", _generation),
    "nvmlDeviceGetMaxPcieLinkGeneration": numbers("gpu", lambda device: pcie_generation(device.spec)),
    "nvmlDeviceGetCurrPcieLinkWidth": _WIDTH,
    "nvmlDeviceGetMaxPcieLinkWidth": _WIDTH,
    "nvmlDeviceGetPcieThroughput": numbers("gpu", _throughput),
    "nvmlDeviceGetNvLinkState": numbers("gpu", lambda device, link: is_active(device.spec, link)),
    "nvmlDeviceGetNvLinkRemoteDeviceType": numbers("gpu", _remote_type),
    "nvmlDeviceGetNvLinkRemotePciInfo_v2": Function("gpu", _remote_pci),
    "nvmlDeviceGetGpuFabricInfoV": returning("gpu", _fabric, _put_fabric),
    "nvmlDeviceGetC2cModeInfoV": record("gpu", "isC2cEnabled", _c2c_mode),
    "nvmlDeviceGetTopologyCommonAncestor": Function("pair", _common_ancestor),
    "nvmlDeviceGetCpuAffinity": Function("gpu", _cpu_affinity),
    "nvmlDeviceGetMemoryAffinity": Function("gpu", _memory_affinity),
}
