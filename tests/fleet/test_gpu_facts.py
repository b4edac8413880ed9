"""What Prometheus knows of GPUs that may help a waiting pod: by a real one, and without some answers."""

import re
from collections.abc import Iterator
from time import time

import pytest

from exporter.fleet.cluster_advice import ClusterAdvice
from exporter.fleet.gpu_facts import MIG_QUESTIONS, QUESTIONS, read_facts, read_gpu_facts, with_advice
from exporter.fleet.prometheus import Prometheus, Sample
from exporter.fleet.queries import Answers
from exporter.model.mig_geometry import Span
from exporter.waiting.gpu_facts import GpuFacts, IdlePod, MigGpu, SharedGpu, SickDevice
from exporter.waiting.objects import PodKey
from tests.fleet.answering import AT, answering
from tests.fleet.shown import node
from tests.product.compat.places import Stored, blocks, serve
from tests.tools import tool

BIG, SMALL = "nvidia.com/mig-3g.40gb", "nvidia.com/mig-1g.10gb"
H100 = "NVIDIA H100 80GB HBM3"


def gpu(number: int, node_name: str = "n1") -> str:
    """Return the labels of a GPU."""
    return f'node="{node_name}",gpu="{number}",uuid="GPU-{node_name}-{number}"'


def holder(pod: str, number: int) -> str:
    """Return the labels of a pod on a GPU."""
    return f'{gpu(number)},namespace="ml",pod="{pod}",container="main"'


def mig(number: int, used: int, free: int, holders: str, *layout: str) -> str:
    """Return the series of a GPU in MIG mode."""
    lines = [
        f'gpuslice_gpu_mig_memory_slices{{{gpu(number)},state="used"}} {used}',
        f'gpuslice_gpu_mig_memory_slices{{{gpu(number)},state="free"}} {free}',
        f'gpuslice_gpu_info{{{gpu(number)},model="{H100}",sharing="mig"}} 1',
        f'gpuslice_gpu_slices{{{gpu(number)},resource="{SMALL}"}} {len(layout)}',
    ]
    if holders:
        lines.append(f"gpuslice_gpu_holders{{{gpu(number)}}} {holders}")
    for gi, placement in enumerate(layout):
        identity = f'mig_uuid="MIG-{gi}",profile="1g.10gb",gi="{gi}",ci="0",placement="{placement}"'
        lines.append(f"gpuslice_mig_info{{{gpu(number)},{identity}}} 1")
    return "\n".join(lines)


SERIES = "\n".join(
    (
        'gpuslice_node_info{node="n1",job="gpus",instance="n1:9836"} 1',
        'gpuslice_snapshot_timestamp_seconds{node="n1",job="gpus",instance="n1:9836"} NOW',
        'node:gpuslice_exporters:count{node="n1"} 1',
        # Idle on all it holds; on one of two; on one, of the other it is not known.
        *(
            f"container:gpuslice_held_slices:max{{{holder(pod, number)}}} 1"
            for pod, number in (("idle", 0), ("idle", 1), ("half", 0), ("half", 1), ("dark", 0), ("dark", 1))
        ),
        *(
            f"container:gpuslice_idle_seconds:max{{{holder(pod, number)}}} {seconds}\n"
            f"container:gpuslice_idle_holder:bool{{{holder(pod, number)}}} {int(seconds >= 3600)}"
            for pod, number, seconds in (
                *(("idle", 0, 9000), ("idle", 1, 7200)),
                *(("half", 0, 9000), ("half", 1, 5), ("dark", 0, 9000)),
            )
        ),
        mig(2, 4, 4, "1", "0:1", "1:1", "2:1", "3:1"),
        mig(3, 7, 1, "0", *(f"{start}:1" for start in range(7))),
        mig(4, 8, 0, "2", *(f"{start}:1" for start in range(7)), "7:1"),
        mig(5, 2, 6, "", "0:1"),  # an instance is missing
        mig(6, 1, 7, "0", ""),  # the driver does not report where it is
        mig(7, 1, 7, "0", "0:1"),  # it is sick
        f'gpu:gpuslice_raised_condition:bool{{{gpu(7)},condition="needs_reset"}} 1',
        f'gpuslice_gpu_slices_unhealthy{{{gpu(7)},resource="{SMALL}"}} 1',
        f'gpuslice_gpu_slices_unhealthy{{{gpu(2)},resource="{SMALL}"}} 0',
        f'gpuslice_gpu_info{{{gpu(8)},model="T4",sharing="time-slicing"}} 1',
        f'gpuslice_gpu_slices{{{gpu(8)},resource="nvidia.com/gpu"}} 4',
        *(
            f'gpuslice_node_mig_profile_instances{{node="n1",model="{H100}",profile="{name}"}} {count}'
            for name, count in (("1g.10gb", 7), ("3g.40gb", 2))
        ),
    )
)


def stored(at: float, replica: str) -> Iterator[Stored]:
    """Yield the series as samples of one time, with the label of one of two Prometheus servers."""
    for line in SERIES.replace("NOW", str(at)).splitlines():
        name, inside, value = re.fullmatch(r"(.+)\{(.*)\} (\S+)", line).groups()
        labels = {key: each for key, each in re.findall(r'(\w+)="([^"]*)"', inside) if each}
        yield Stored({"__name__": name, **labels, "replica": replica}, [(at, value)])


@pytest.fixture(scope="module")
def facts_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, float]]:
    """Serve the series, twice as by two servers, and yield the URL and their time."""
    folder, at = tmp_path_factory.mktemp("prometheus"), time() // 7200 * 7200 - 7200
    program, promtool = tool("prometheus"), tool("promtool")
    blocks(folder, promtool, [*stored(at, "a"), *stored(at, "b")])
    with serve(folder, program) as server:
        yield server.url, at


@pytest.mark.tools
async def test_the_facts_of_the_series_of_two_replicas(facts_of: tuple[str, float]) -> None:
    url, at = facts_of
    prometheus = Prometheus(url, deadline=60)
    try:
        facts = await read_gpu_facts(prometheus, [BIG], at)
    finally:
        await prometheus.close()

    assert facts.problems == ()
    assert facts.idle == (IdlePod(PodKey("ml", "idle"), "n1", 7200),)
    assert facts.sick == (SickDevice("n1", "7", "GPU-n1-7", {SMALL: 1}, "needs reset"),)
    assert facts.shared == (SharedGpu("n1", "nvidia.com/gpu", "time-slicing"),)
    assert facts.instances == {(H100, "1g.10gb"): 7, (H100, "3g.40gb"): 2}
    ones = tuple(Span(start, 1) for start in range(7))
    assert facts.mig == (
        MigGpu("n1", "2", "GPU-n1-2", H100, ones[:4], held=True, offered={SMALL: 4}),
        MigGpu("n1", "3", "GPU-n1-3", H100, ones, held=False, offered={SMALL: 7}),
    )


@pytest.mark.parametrize("failed", [*QUESTIONS, *MIG_QUESTIONS, "MIG devices", "conditions of GPUs"])
def test_what_a_failed_query_would_show_is_not_known(failed: str) -> None:
    empty = {name: [] for name in (*QUESTIONS, *MIG_QUESTIONS)}
    facts = read_facts(Answers(empty, {failed: "refused"}), Answers({}, {}), [node("n1")], AT)

    unknown = [each for each in (facts.idle, facts.sick, facts.shared, facts.mig) if each is None]
    assert facts.problems == (f"{failed}: refused",)
    assert len(unknown) == (failed != "MIG profiles")


def test_nodes_of_one_name_in_two_clusters_are_left_out() -> None:
    sample = Sample({"cluster": "west", "node": "n1", "namespace": "ml", "pod": "idle"}, 7200)
    nodes = [node("n1", cluster="west"), node("n1", cluster="east")]

    facts = read_facts(Answers({"idle pods": [sample]}, {}), Answers({}, {}), nodes, AT)

    assert facts.idle == ()
    assert "such as n1" in facts.problems[0]


async def test_a_prometheus_that_refuses_is_a_problem_and_nothing_is_known() -> None:
    with answering(lambda _: "out of memory") as url:
        prometheus = Prometheus(url, deadline=60)
        facts = await read_gpu_facts(prometheus, [BIG])
        await prometheus.close()

    assert (facts.idle, facts.mig, facts.sick, facts.shared) == (None, None, None, None)
    assert "out of memory" in facts.problems[0]


async def test_without_a_prometheus_nothing_is_known_and_the_option_is_named() -> None:
    assert "--prometheus-url" in (await read_gpu_facts(None, [BIG])).problems[0]


@pytest.mark.parametrize("placement", ["4", "4:", ":4", "a:b", "-1:2", "9999:1", "٣:1", "4:4:4"])
def test_a_placement_that_is_not_one_makes_the_layout_unknown(placement: str) -> None:
    here = {"node": "n1", "gpu": "0", "uuid": "GPU-1"}
    rows = {
        "MIG devices": [Sample({**here, "placement": placement}, 1)],
        "used memory slices of MIG": [Sample({**here, "state": "used"}, 4)],
        "models of GPUs": [Sample({**here, "model": H100}, 1)],
    }

    facts = read_facts(
        Answers({"free memory slices of MIG": [Sample(here, 4)]}, {}), Answers(rows, {}), [node("n1")], AT
    )

    assert facts.mig == ()


def test_without_advice_no_smaller_request_is_known() -> None:
    assert with_advice(GpuFacts(at=AT), None).smaller is None
    assert with_advice(GpuFacts(at=AT), ClusterAdvice(at=AT, advices=())).smaller == ()
