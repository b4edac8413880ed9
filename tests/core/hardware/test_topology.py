"""Where GPUs sit: processors and memory near them, and the ways between them."""

from collections.abc import Mapping
from ctypes import c_void_p
from typing import Any

import pytest

from exporter.model import PeerLink, Topology
from exporter.nvml.driver.calls import Calls
from exporter.nvml.topology import TopologyReader
from tests.core.hardware.tiny import address, answers, installed

LOST, NOT_SUPPORTED, UNKNOWN = 15, 3, 999
GPU_KIND, BRIDGE_KIND, SWITCH_KIND = 0, 1, 2
BUSES = {"GPU-1": "00000000:07:00.0", "GPU-2": "00000000:0A:00.0", "GPU-3": "00000000:B7:00.0"}
SWITCH_BUS = "00000000:C5:00.0"

# Where each link of a GPU leads, by the number of the GPU and of the link: a kind and a bus address.
Wires = Mapping[tuple[int, int], tuple[int, str]]


class Node:
    """A driver of GPUs with the handles 1 to 3: their levels by pair, their links, their masks.

    ``asked`` notes the pairs and links that were asked for; ``broken`` is the code of every pair.
    """

    def __init__(self, levels: Mapping[tuple[int, int], int], wires: Wires | None = None) -> None:
        self.levels = levels
        self.wires = wires or {}
        self.asked: list[tuple[str, int, int]] = []
        self.broken = 0

    def installed(self, **functions: Any) -> Calls:
        """Open it under the binding."""
        return installed(
            **{
                "nvmlDeviceGetTopologyCommonAncestor": self._ancestor,
                "nvmlDeviceGetNvLinkRemoteDeviceType": self._kind,
                "nvmlDeviceGetNvLinkRemotePciInfo_v2": self._remote,
            }
            | functions
        )

    def _ancestor(self, one: Any, other: Any, reference: Any) -> int:
        pair = address(one), address(other)
        self.asked.append(("pair", *pair))
        low, high = sorted(pair)
        reference._obj.value = self.levels.get((low, high), 50)
        return self.broken

    def _kind(self, handle: Any, link: int, reference: Any) -> int:
        self.asked.append(("kind", address(handle), link))
        reference._obj.value = self.wires[address(handle), link][0]
        return 0

    def _remote(self, handle: Any, link: int, reference: Any) -> int:
        reference._obj.busId = self.wires[address(handle), link][1].encode()
        return 0


def read(
    calls: Calls, reader: TopologyReader, number: int, active: frozenset[int] | None = None
) -> Topology | None:
    """Read the GPU with that handle."""
    uuid = f"GPU-{number}"
    return reader.read(calls, uuid, c_void_p(number), BUSES[uuid], active)


def links(count: int) -> frozenset[int]:
    """Return the numbers of that many active links."""
    return frozenset(range(count))


def peers(topology: Topology | None) -> Mapping[str, PeerLink]:
    """Return the peers of a GPU with a known topology."""
    assert topology is not None
    return topology.peers


@pytest.mark.parametrize(
    ("level", "word"), [(0, "PSB"), (10, "PIX"), (20, "PXB"), (30, "PHB"), (40, "NODE"), (50, "SYS")]
)
def test_pcie_paths_are_named_as_by_nvidia_smi(level: int, word: str):
    node = Node({(1, 2): level})
    calls, reader = node.installed(), TopologyReader()
    read(calls, reader, 1)
    assert peers(read(calls, reader, 2)) == {"GPU-1": PeerLink(pcie=word)}
    assert peers(read(calls, reader, 1)) == {"GPU-2": PeerLink(pcie=word)}
    assert node.asked == [("pair", 2, 1)]


def test_an_unknown_level_leaves_out_the_peer():
    calls, reader = Node({(1, 2): 35}).installed(), TopologyReader()
    read(calls, reader, 1)
    assert read(calls, reader, 2) is None


def test_each_pair_is_asked_once():
    node = Node({(1, 2): 10, (1, 3): 40, (2, 3): 50})
    calls, reader = node.installed(), TopologyReader()
    for _ in range(3):
        for number in (1, 2):
            read(calls, reader, number)
    assert len(node.asked) == 1
    for _ in range(3):
        for number in (1, 2, 3):
            read(calls, reader, number)
    assert len(node.asked) == 3
    assert peers(read(calls, reader, 1)) == {"GPU-2": PeerLink(pcie="PIX"), "GPU-3": PeerLink(pcie="NODE")}


def test_active_links_to_a_gpu_are_counted_by_bus_address():
    one, two = BUSES["GPU-1"], BUSES["GPU-2"]
    wires = {(1, link): (GPU_KIND, two.lower() if link < 2 else BUSES["GPU-3"]) for link in range(3)}
    wires |= {(2, link): (GPU_KIND, one) for link in range(2)}
    node = Node({}, wires)
    calls, reader = node.installed(), TopologyReader()
    for _ in range(2):
        first = read(calls, reader, 1, links(3))
        read(calls, reader, 2, links(2))
        read(calls, reader, 3, links(0))
    assert {name: link.nvlinks for name, link in peers(first).items()} == {"GPU-2": 2, "GPU-3": 1}
    down = read(calls, reader, 1, frozenset({1}))
    assert {name: link.nvlinks for name, link in peers(down).items()} == {"GPU-2": 1, "GPU-3": 0}
    assert len([call for call in node.asked if call[0] == "kind"]) == 5


def test_through_switches_the_gpu_with_fewer_links_counts():
    wires = {(gpu, link): (SWITCH_KIND, SWITCH_BUS) for gpu in (1, 2, 3) for link in range(18)}
    calls, reader = Node({}, wires).installed(), TopologyReader()
    for _ in range(2):
        first = read(calls, reader, 1, links(18))
        read(calls, reader, 2, links(17))
        read(calls, reader, 3, links(0))
    assert {name: link.nvlinks for name, link in peers(first).items()} == {"GPU-2": 17, "GPU-3": 0}


def test_links_to_other_devices_do_not_count_and_are_asked_once():
    wires = {(gpu, 0): (BRIDGE_KIND, "") for gpu in (1, 2)}
    node = Node({}, wires)
    calls, reader = node.installed(), TopologyReader()
    for _ in range(2):
        for number in (1, 2):
            topology = read(calls, reader, number, links(1))
    assert peers(topology) == {"GPU-1": PeerLink(pcie="SYS", nvlinks=0)}
    nameless = reader.read(calls, "GPU-1", c_void_p(1), "", links(1))
    assert peers(nameless)["GPU-2"].nvlinks == peers(read(calls, reader, 2, links(1)))["GPU-1"].nvlinks == 0
    assert len([call for call in node.asked if call[0] == "kind"]) == 2


def test_unreported_links_are_unknown():
    calls, reader = Node({}).installed(), TopologyReader()
    read(calls, reader, 1, None)
    assert peers(read(calls, reader, 2, links(0))) == {"GPU-1": PeerLink(pcie="SYS", nvlinks=None)}


def test_links_that_become_unknown_make_the_peer_unknown():
    """From both sides: the path does not look like PCIe meanwhile."""
    wires = {(gpu, 0): (SWITCH_KIND, SWITCH_BUS) for gpu in (1, 2)}
    calls, reader = Node({}, wires).installed(), TopologyReader()
    read(calls, reader, 1, links(1))
    assert peers(read(calls, reader, 2, links(1)))["GPU-1"].nvlinks == 1
    assert read(calls, reader, 1, None) is None
    assert read(calls, reader, 2, links(1)) is None
    assert peers(read(calls, reader, 1, links(1)))["GPU-2"] == PeerLink(pcie="SYS", nvlinks=1)


def test_without_the_kind_of_a_link_its_address_is_enough():
    wires = {(1, 0): (GPU_KIND, BUSES["GPU-2"]), (2, 0): (GPU_KIND, BUSES["GPU-1"])}
    calls = Node({}, wires).installed(nvmlDeviceGetNvLinkRemoteDeviceType=answers(NOT_SUPPORTED))
    reader = TopologyReader()
    read(calls, reader, 1, links(1))
    assert peers(read(calls, reader, 2, links(1)))["GPU-1"].nvlinks == 1
    assert not calls.records.errors


@pytest.mark.parametrize("kind", [{}, {"nvmlDeviceGetNvLinkRemoteDeviceType": NOT_SUPPORTED}], ids=str)
def test_links_without_an_address_are_unknown(kind: dict[str, int]):
    wires = {(1, 0): (GPU_KIND, BUSES["GPU-2"]), (2, 0): (GPU_KIND, BUSES["GPU-1"])}
    codes = {"nvmlDeviceGetNvLinkRemotePciInfo_v2": NOT_SUPPORTED} | kind
    calls = Node({}, wires).installed(**{name: answers(code) for name, code in codes.items()})
    reader = TopologyReader()
    for _ in range(2):
        read(calls, reader, 1, links(1))
        assert read(calls, reader, 2, links(1)) is None


def test_a_failed_far_end_is_asked_again():
    wires = {(gpu, 0): (SWITCH_KIND, SWITCH_BUS) for gpu in (1, 2)}
    node = Node({}, wires)
    failing = node.installed(nvmlDeviceGetNvLinkRemoteDeviceType=answers(UNKNOWN))
    reader = TopologyReader()
    read(failing, reader, 1, links(1))
    assert read(failing, reader, 2, links(1)) is None
    working = node.installed()
    read(working, reader, 1, links(1))
    assert peers(read(working, reader, 2, links(1)))["GPU-1"].nvlinks == 1


@pytest.mark.parametrize("code", [LOST, UNKNOWN])
def test_a_failing_pair_is_asked_again_and_takes_no_gpu_down(code: int):
    node = Node({(1, 2): 10})
    calls, reader = node.installed(), TopologyReader()
    read(calls, reader, 1)
    node.broken = code
    assert read(calls, reader, 2) is None
    assert sum(calls.records.errors.values()) == 1
    node.broken = 0
    assert peers(read(calls, reader, 2)) == {"GPU-1": PeerLink(pcie="PIX")}


def test_unsupported_pairs_are_asked_once_per_gpu():
    node = Node({})
    node.broken = NOT_SUPPORTED
    calls, reader = node.installed(), TopologyReader()
    for _ in range(3):
        for number in (1, 2, 3):
            assert read(calls, reader, number) is None
    assert len(node.asked) == 3
    assert calls.records.withheld("GPU-3")["topology"].startswith("not supported")


def test_a_removed_gpu_is_no_peer_until_it_is_back():
    calls, reader = Node({(1, 2): 10}).installed(), TopologyReader()
    read(calls, reader, 1)
    read(calls, reader, 2)
    reader.remove("GPU-1")
    assert read(calls, reader, 2) is None
    read(calls, reader, 1)
    assert list(peers(read(calls, reader, 2))) == ["GPU-1"]


def test_a_reopened_driver_is_asked_for_pairs_again():
    node = Node({(1, 2): 10})
    calls, reader = node.installed(), TopologyReader()
    for _ in range(2):
        read(calls, reader, 1)
        read(calls, reader, 2)
        reader.forget()
    assert node.asked == [("pair", 2, 1)] * 2


def mask(*bits: int, asked: list[int] | None = None) -> Any:
    """Return a function that sets these bits in an array of words."""

    def function(_handle: Any, size: int, reference: Any, *_scope: Any) -> int:
        if asked is not None:
            asked.append(size)
        for bit in bits:
            reference._obj[bit // 64] |= 1 << bit % 64
        return 0

    return function


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        ((0,), "0"),
        ((0, 1, 2, 3, 8), "0-3,8"),
        (tuple(range(32)) + tuple(range(64, 96)), "0-31,64-95"),
        (tuple(range(60, 70)), "60-69"),
        ((8191,), "8191"),
        ((), ""),
    ],
)
def test_cpus_are_written_as_linux_lists(bits: tuple[int, ...], text: str):
    calls = installed(nvmlDeviceGetCpuAffinity=mask(*bits), nvmlDeviceGetMemoryAffinity=mask(0))
    assert read(calls, TopologyReader(), 1) == Topology(numa_node=0, cpus=text)


@pytest.mark.parametrize(("nodes", "expected"), [((1,), 1), ((200,), 200), ((0, 1), None), ((), None)])
def test_the_numa_node_is_that_of_the_only_nearest_memory(nodes: tuple[int, ...], expected: int | None):
    calls = installed(nvmlDeviceGetCpuAffinity=mask(3), nvmlDeviceGetMemoryAffinity=mask(*nodes))
    assert read(calls, TopologyReader(), 1) == Topology(numa_node=expected, cpus="3")


def test_cpus_and_memory_are_asked_for_until_they_are_known():
    asked: list[int] = []
    near = {"nvmlDeviceGetCpuAffinity": mask(3, asked=asked)}
    failing = installed(nvmlDeviceGetMemoryAffinity=answers(UNKNOWN), **near)
    reader = TopologyReader()
    assert read(failing, reader, 1) is None
    working = installed(nvmlDeviceGetMemoryAffinity=mask(0), **near)
    for _ in range(3):
        assert read(working, reader, 1) == Topology(numa_node=0, cpus="3")
    assert asked == [128, 128]
