"""Where GPUs sit: processors and memory near them, and the ways between them."""

from collections.abc import Mapping
from ctypes import c_void_p
from typing import Any

import pytest

from exporter.model import PeerLink, Topology
from exporter.nvml.driver.calls import Calls
from exporter.nvml.topology import TopologyReader
from tests.hardware.tiny import address, answers, installed

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
    """Return the peers of a GPU that tells where it sits."""
    assert topology is not None
    return topology.peers


@pytest.mark.parametrize(
    ("level", "word"), [(0, "PSB"), (10, "PIX"), (20, "PXB"), (30, "PHB"), (40, "NODE"), (50, "SYS")]
)
def test_the_way_over_pcie_has_the_word_of_nvidia_smi(level: int, word: str):
    """What two GPUs have in common at the nearest is told of each of them."""
    node = Node({(1, 2): level})
    calls, reader = node.installed(), TopologyReader()
    read(calls, reader, 1)
    assert peers(read(calls, reader, 2)) == {"GPU-1": PeerLink(pcie=word)}
    assert peers(read(calls, reader, 1)) == {"GPU-2": PeerLink(pcie=word)}
    assert node.asked == [("pair", 2, 1)]


def test_a_level_that_is_newer_than_the_words_is_unknown():
    """A pair of which nothing can be said is not among the peers."""
    calls, reader = Node({(1, 2): 35}).installed(), TopologyReader()
    read(calls, reader, 1)
    assert read(calls, reader, 2) is None


def test_each_pair_is_asked_once():
    """Three GPUs are three pairs, however often they are read; a fourth would be asked for alone."""
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


def test_links_that_lead_to_the_other_gpu_are_counted():
    """Active links by the bus address at their far end, in whatever case that is written."""
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
    assert len([each for each in node.asked if each[0] == "kind"]) == 5


def test_through_switches_every_gpu_is_reached_by_all_links():
    """As many as the one with fewer active links has; a GPU without links is not reached so."""
    wires = {(gpu, link): (SWITCH_KIND, SWITCH_BUS) for gpu in (1, 2, 3) for link in range(18)}
    calls, reader = Node({}, wires).installed(), TopologyReader()
    for _ in range(2):
        first = read(calls, reader, 1, links(18))
        read(calls, reader, 2, links(17))
        read(calls, reader, 3, links(0))
    assert {name: link.nvlinks for name, link in peers(first).items()} == {"GPU-2": 17, "GPU-3": 0}


def test_links_to_no_gpu_are_none():
    """A bridge to a processor is no way to another GPU, and is asked for once."""
    wires = {(gpu, 0): (BRIDGE_KIND, "") for gpu in (1, 2)}
    node = Node({}, wires)
    calls, reader = node.installed(), TopologyReader()
    for _ in range(2):
        for number in (1, 2):
            found = read(calls, reader, number, links(1))
    assert peers(found) == {"GPU-1": PeerLink(pcie="SYS", nvlinks=0)}
    nameless = reader.read(calls, "GPU-1", c_void_p(1), "", links(1))
    assert peers(nameless)["GPU-2"].nvlinks == peers(read(calls, reader, 2, links(1)))["GPU-1"].nvlinks == 0
    assert len([each for each in node.asked if each[0] == "kind"]) == 2


def test_where_links_are_not_told_their_number_is_unknown():
    """No zero stands for what a driver does not say."""
    calls, reader = Node({}).installed(), TopologyReader()
    read(calls, reader, 1, None)
    assert peers(read(calls, reader, 2, links(0))) == {"GPU-1": PeerLink(pcie="SYS", nvlinks=None)}


def test_links_that_are_there_and_not_told_now_do_not_pass_for_pcie():
    """While nobody says which links are active, the way to a peer is unknown, from both sides."""
    wires = {(gpu, 0): (SWITCH_KIND, SWITCH_BUS) for gpu in (1, 2)}
    calls, reader = Node({}, wires).installed(), TopologyReader()
    read(calls, reader, 1, links(1))
    assert peers(read(calls, reader, 2, links(1)))["GPU-1"].nvlinks == 1
    assert read(calls, reader, 1, None) is None
    assert read(calls, reader, 2, links(1)) is None
    assert peers(read(calls, reader, 1, links(1)))["GPU-2"] == PeerLink(pcie="SYS", nvlinks=1)


def test_an_old_driver_tells_direct_links_by_their_address():
    """Without the call for the kind of a link's far end, the address of a GPU is enough."""
    wires = {(1, 0): (GPU_KIND, BUSES["GPU-2"]), (2, 0): (GPU_KIND, BUSES["GPU-1"])}
    calls = Node({}, wires).installed(nvmlDeviceGetNvLinkRemoteDeviceType=answers(NOT_SUPPORTED))
    reader = TopologyReader()
    read(calls, reader, 1, links(1))
    assert peers(read(calls, reader, 2, links(1)))["GPU-1"].nvlinks == 1
    assert not calls.errors


@pytest.mark.parametrize("kind", [{}, {"nvmlDeviceGetNvLinkRemoteDeviceType": NOT_SUPPORTED}], ids=str)
def test_links_to_a_gpu_that_is_not_named_are_not_known_to_lead_elsewhere(kind: dict[str, int]):
    """Where a driver tells no address at a link's far end, no number of links stands for those there are."""
    wires = {(1, 0): (GPU_KIND, BUSES["GPU-2"]), (2, 0): (GPU_KIND, BUSES["GPU-1"])}
    codes = {"nvmlDeviceGetNvLinkRemotePciInfo_v2": NOT_SUPPORTED} | kind
    calls = Node({}, wires).installed(**{name: answers(code) for name, code in codes.items()})
    reader = TopologyReader()
    for _ in range(2):
        read(calls, reader, 1, links(1))
        assert read(calls, reader, 2, links(1)) is None


def test_a_far_end_that_failed_is_asked_again():
    """An error is no answer: how many links there are is known once the driver says so."""
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
def test_a_pair_that_fails_costs_that_pair_for_now(code: int):
    """It may be the other GPU that is lost: this one is not given up for it, and asked again."""
    node = Node({(1, 2): 10})
    calls, reader = node.installed(), TopologyReader()
    read(calls, reader, 1)
    node.broken = code
    assert read(calls, reader, 2) is None
    assert sum(calls.errors.values()) == 1
    node.broken = 0
    assert peers(read(calls, reader, 2)) == {"GPU-1": PeerLink(pcie="PIX")}


def test_where_pairs_are_not_supported_they_are_asked_once():
    """A driver that cannot tell ways costs one question per GPU."""
    node = Node({})
    node.broken = NOT_SUPPORTED
    calls, reader = node.installed(), TopologyReader()
    for _ in range(3):
        for number in (1, 2, 3):
            assert read(calls, reader, number) is None
    assert len(node.asked) == 3
    assert calls.withheld("GPU-3")["topology"].startswith("not supported")


def test_a_gpu_that_left_is_nobody_s_peer():
    """To one that does not answer there is no way, until it is back."""
    calls, reader = Node({(1, 2): 10}).installed(), TopologyReader()
    read(calls, reader, 1)
    read(calls, reader, 2)
    reader.remove("GPU-1")
    assert read(calls, reader, 2) is None
    read(calls, reader, 1)
    assert list(peers(read(calls, reader, 2))) == ["GPU-1"]


def test_another_driver_is_asked_anew():
    """Handles of the one before are no use: nothing of it is kept."""
    node = Node({(1, 2): 10})
    calls, reader = node.installed(), TopologyReader()
    for _ in range(2):
        read(calls, reader, 1)
        read(calls, reader, 2)
        reader.forget()
    assert node.asked == [("pair", 2, 1)] * 2


def mask(*bits: int, asked: list[int] | None = None) -> Any:
    """Make a function that sets these bits in an array of words."""

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
def test_processors_are_written_as_linux_writes_them(bits: tuple[int, ...], text: str):
    """Ranges across the words of the mask, up to the most processors that a kernel can have."""
    calls = installed(nvmlDeviceGetCpuAffinity=mask(*bits), nvmlDeviceGetMemoryAffinity=mask(0))
    assert read(calls, TopologyReader(), 1) == Topology(numa_node=0, cpus=text)


@pytest.mark.parametrize(("nodes", "told"), [((1,), 1), ((200,), 200), ((0, 1), None), ((), None)])
def test_the_numa_node_is_that_of_the_nearest_memory(nodes: tuple[int, ...], told: int | None):
    """Where several nodes are equally near, none of them is the GPU's."""
    calls = installed(nvmlDeviceGetCpuAffinity=mask(3), nvmlDeviceGetMemoryAffinity=mask(*nodes))
    assert read(calls, TopologyReader(), 1) == Topology(numa_node=told, cpus="3")


def test_where_a_gpu_sits_is_asked_until_it_is_told():
    """Once told it is kept; a failure is asked again."""
    asked: list[int] = []
    near = {"nvmlDeviceGetCpuAffinity": mask(3, asked=asked)}
    failing = installed(nvmlDeviceGetMemoryAffinity=answers(UNKNOWN), **near)
    reader = TopologyReader()
    assert read(failing, reader, 1) is None
    working = installed(nvmlDeviceGetMemoryAffinity=mask(0), **near)
    for _ in range(3):
        assert read(working, reader, 1) == Topology(numa_node=0, cpus="3")
    assert asked == [128, 128]
