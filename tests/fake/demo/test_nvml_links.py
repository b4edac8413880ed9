"""The fake driver on PCIe, NVLink and topology, through the unmodified binding."""

import pynvml
import pytest

from tests.fake.demo.driver import INVALID, NOT_SUPPORTED, code_of, fields_of, gpu_at
from tests.fake.demo.making import Bench, gpu, made, node_of, pod

ALL = 2**32 - 1
PCIE = (197, 198)
NVLINK = ((138, ALL), (139, ALL))


def at_load(percent: int) -> dict[str, object]:
    """Return a pod that keeps the first GPU that busy."""
    return pod("p", {"device": "{gpu:0}", "load": {"high": percent}})


@pytest.mark.parametrize(("architecture", "generation"), [(5, 3), (6, 3), (7, 4), (8, 4), (9, 5), (10, 5)])
def test_the_pcie_link_has_the_generation_of_the_architecture(bench, architecture, generation):
    """An idle small board lowers it."""
    board = gpu(architecture=architecture, count=2, links={"pcie_width": 8})
    bench(made(gpus=[board], pods=[at_load(10)]))
    for index, now in ((0, generation), (1, 1)):
        assert pynvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu_at(index)) == now
        assert pynvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu_at(index)) == generation
        assert pynvml.nvmlDeviceGetCurrPcieLinkWidth(gpu_at(index)) == 8
        assert pynvml.nvmlDeviceGetMaxPcieLinkWidth(gpu_at(index)) == 8


def test_a_large_board_keeps_its_link_at_full_speed(bench):
    """A slot may limit it."""
    bench(made(gpus=[gpu(memory_temperature=True, links={"pcie_generation": 3})]))
    assert pynvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu_at()) == 3


def test_pcie_counters_grow_at_the_reported_rate(bench):
    totals = []
    for percent in (0, 20, 80):
        node = bench(made(pods=[at_load(percent)]))
        counters = [fields_of(gpu_at(), *PCIE)]
        for time in (5, 7, 30):
            node.step(time)
            counters.append(fields_of(gpu_at(), *PCIE))
        assert counters == sorted(counters)
        rates = [pynvml.nvmlDeviceGetPcieThroughput(gpu_at(), direction) for direction in (0, 1)]
        assert [rate * 1024 * 30 for rate in rates] == pytest.approx(counters[-1], rel=1e-4)
        totals.append(counters[-1])
    assert totals[0] == [0, 0]
    assert totals[1][0] * 4 == totals[2][0] > 0
    assert totals[1][1] * 4 == totals[2][1] > totals[2][0]
    assert code_of(pynvml.nvmlDeviceGetPcieThroughput, gpu_at(), 2) == INVALID


def test_older_drivers_lack_pcie_byte_counters(bench):
    bench(made(node=node_of(535)))
    assert fields_of(gpu_at(), *PCIE, 74) == [None, None, 0]


@pytest.fixture
def pair(bench) -> Bench:
    """Two GPUs with four links to each other, the second with one down."""
    return bench(
        made(
            node=node_of(570),
            gpus=[
                gpu(
                    links={
                        "nvlinks": 4,
                        "to": {"{gpu:1}": 4},
                        "errors": {"crc_flit": 5, "crc_data": 4, "replay": 3, "recovery": 2},
                    }
                ),
                gpu(links={"nvlinks": 4, "down": 1, "to": {"{gpu:0}": 4}}),
            ],
            pods=[at_load(50)],
        )
    )


@pytest.mark.usefixtures("pair")
def test_each_link_has_a_state_a_speed_and_a_remote_end():
    assert fields_of(gpu_at(), 91, 90, (165, 3)) == [4, 25_000, 1]
    assert fields_of(gpu_at(1), 91, 90, (165, 3)) == [4, 25_000, 0]
    assert [pynvml.nvmlDeviceGetNvLinkState(gpu_at(1), link) for link in range(4)] == [1, 1, 1, 0]
    assert pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(gpu_at(), 0) == pynvml.NVML_NVLINK_DEVICE_TYPE_GPU
    remote = pynvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu_at(), 0)
    assert remote.busId == pynvml.nvmlDeviceGetPciInfo(gpu_at(1)).busId
    assert code_of(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, gpu_at(1), 3) == NOT_SUPPORTED
    assert code_of(pynvml.nvmlDeviceGetNvLinkState, gpu_at(), 4) == INVALID
    assert pynvml.nvmlDeviceGetFieldValues(gpu_at(), [(165, 4)])[0].nvmlReturn == INVALID


def test_nvlink_traffic_is_in_kib_by_link_and_in_total(pair):
    """Links that are down carry nothing."""
    pair.step(10)
    whole = fields_of(gpu_at(), *NVLINK)
    assert whole == [4 * 25_000 * 10**6 * 3 // 20 * 10 // 1024] * 2
    links = fields_of(gpu_at(), *((138, link) for link in range(4)))
    assert sum(links) == pytest.approx(whole[0], abs=4)
    assert fields_of(gpu_at(1), (138, 3), *NVLINK) == [0, 0, 0]
    pair.step(20)
    assert fields_of(gpu_at(), *NVLINK) == pytest.approx([2 * kib for kib in whole], abs=1)


@pytest.mark.usefixtures("pair")
def test_nvlink_errors_are_totals_by_field():
    assert fields_of(gpu_at(), 38, 45, 52, 59) == [5, 4, 3, 2]


def test_a_board_without_nvlink_refuses_all_calls_about_links(bench):
    bench(made(gpus=[gpu(architecture=6)]))
    asked = fields_of(gpu_at(), 91, 90, (165, 0), *NVLINK, 38, (202, 0))
    assert asked == [None] * 7
    for name in ("State", "RemoteDeviceType"):
        assert code_of(getattr(pynvml, f"nvmlDeviceGetNvLink{name}"), gpu_at(), 0) == NOT_SUPPORTED


def test_a_remote_end_is_a_switch_or_a_processor(bench):
    """Without the address of a GPU."""
    bench(made(gpus=[gpu(links={"nvlinks": 2, "switch": True}), gpu(links={"nvlinks": 2})]))
    assert pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(gpu_at(), 1) == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
    address = pynvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu_at(), 1).busId
    assert address not in {pynvml.nvmlDeviceGetPciInfo(gpu_at(index)).busId for index in (0, 1)}
    kind = pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(gpu_at(1), 0)
    assert kind == pynvml.NVML_NVLINK_DEVICE_TYPE_IBMNPU
    assert code_of(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, gpu_at(1), 0) == NOT_SUPPORTED


def test_blackwell_counts_bytes_by_link_and_recoveries(bench):
    """Instead of errors by kind."""
    links = {"nvlinks": 18, "switch": True, "errors": {"recovery": 3, "replay": 8}}
    node = bench(made(node=node_of(580), gpus=[gpu(architecture=10, links=links)], pods=[at_load(40)]))
    node.step(10)
    (whole,) = fields_of(gpu_at(), (202, ALL))
    assert fields_of(gpu_at(), (202, 5), (204, ALL)) == [whole // 18, whole]
    assert fields_of(gpu_at(), (138, ALL)) == [whole // 1024]
    assert fields_of(gpu_at(), (215, ALL), (215, 0), (215, 1)) == [3, 3, 0]
    assert fields_of(gpu_at(), 38, 52, 59, (161, 0)) == [None] * 4
    assert fields_of(gpu_at(), 90) == [53_125]


def test_with_mig_links_are_up_without_traffic(bench):
    board = gpu(links={"nvlinks": 2, "switch": True}, mig={"instances": []})
    node = bench(made(gpus=[board]))
    node.step(10)
    assert fields_of(gpu_at(), 91, (165, 0), *NVLINK) == [2, 1, 0, 0]


@pytest.mark.parametrize(
    ("one", "other", "level"),
    [
        ({}, {}, pynvml.NVML_TOPOLOGY_NODE),
        ({}, {"numa_node": 1}, pynvml.NVML_TOPOLOGY_SYSTEM),
        ({"relations": {"{gpu:1}": "PIX"}}, {"numa_node": 1}, pynvml.NVML_TOPOLOGY_SINGLE),
        ({}, {"relations": {"{gpu:0}": "PHB"}}, pynvml.NVML_TOPOLOGY_HOSTBRIDGE),
    ],
)
def test_the_common_ancestor_is_symmetric(bench, one, other, level):
    """It is in the scenario, or follows from the NUMA nodes."""
    bench(made(gpus=[gpu(links=one), gpu(links=other)]))
    assert pynvml.nvmlDeviceGetTopologyCommonAncestor(gpu_at(0), gpu_at(1)) == level
    assert pynvml.nvmlDeviceGetTopologyCommonAncestor(gpu_at(1), gpu_at(0)) == level
    assert code_of(pynvml.nvmlDeviceGetTopologyCommonAncestor, gpu_at(0), None) == INVALID


def test_affinities_are_masks_of_words(bench):
    """Bits past the last word are dropped."""
    links = {"numa_node": 3, "cpus": "0-1,63,64,130"}
    bench(made(gpus=[gpu(links=links), gpu(links={"numa_node": None, "cpus": ""})]))
    assert list(pynvml.nvmlDeviceGetCpuAffinity(gpu_at(), 3)) == [3 | 1 << 63, 1, 4]
    assert list(pynvml.nvmlDeviceGetCpuAffinity(gpu_at(), 1)) == [3 | 1 << 63]
    assert list(pynvml.nvmlDeviceGetMemoryAffinity(gpu_at(), 1, 0)) == [1 << 3]
    assert code_of(pynvml.nvmlDeviceGetCpuAffinity, gpu_at(1), 1) == NOT_SUPPORTED
    assert code_of(pynvml.nvmlDeviceGetMemoryAffinity, gpu_at(1), 1, 0) == NOT_SUPPORTED
