"""Functions of the fake driver about where a GPU sits: how near others are, and which processors."""

from collections.abc import Iterator, Mapping
from typing import Any

from exporter.demo.nvml_board import GpuDevice
from exporter.demo.nvml_call import Function, number, numbers, put, target
from exporter.demo.nvml_codes import NOT_SUPPORTED, refuse

# What two GPUs have in common, from one package to the machine as a whole.
LEVELS: Mapping[str, int] = {"PSB": 0, "PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50}
WORD_BITS = 64


def cpu_numbers(text: str) -> Iterator[int]:
    """Yield the processors of a list such as ``0-31,64-95``; raises ValueError for anything else."""
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _ancestor(device: GpuDevice, other: GpuDevice, reference: Any) -> None:
    own, others = device.state.gpu.links, other.state.gpu.links
    named = own.relations.get(other.uuid) or others.relations.get(device.uuid)
    put(reference, LEVELS[named or ("NODE" if own.numa_node == others.numa_node else "SYS")])


def _cpus(device: GpuDevice, size: Any, reference: Any) -> int | None:
    return _mark(set(cpu_numbers(device.state.gpu.links.cpus)), number(size), reference)


def _memory_nodes(device: GpuDevice, size: Any, reference: Any, _scope: Any) -> int | None:
    node = device.state.gpu.links.numa_node
    return _mark(set() if node is None else {node}, number(size), reference)


def _mark(bits: set[int], words: int, reference: Any) -> int | None:
    """Set these bits in an array of words; what lies past its end is left out."""
    if not bits:
        return NOT_SUPPORTED
    answer = target(reference)
    for word in range(words):
        answer[word] = sum(1 << bit % WORD_BITS for bit in bits if bit // WORD_BITS == word)
    return None


def _own_node(_device: GpuDevice) -> int:
    """Refuse: only the GPUs of coherent platforms are NUMA nodes themselves."""
    return refuse(NOT_SUPPORTED)


FUNCTIONS: Mapping[str, Function] = {
    "nvmlDeviceGetTopologyCommonAncestor": Function("pair", _ancestor),
    "nvmlDeviceGetCpuAffinity": Function("gpu", _cpus),
    "nvmlDeviceGetMemoryAffinity": Function("gpu", _memory_nodes),
    "nvmlDeviceGetNumaNodeId": numbers("gpu", _own_node),
}
