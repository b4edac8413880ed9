"""A tenant who owns what he may write on the node: he harms his own rows, and learns nothing of others."""

import logging
import os
import re
import shutil
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from exporter.commands.runtime import set_up_logging
from exporter.demo.scenario.catalog import load
from exporter.model.kubelet import MOST_ANNOTATIONS
from exporter.sharing.hami.cache import LAYOUTS
from tests.end_to_end.serving import Served, serving

SCENARIO = "showcase"
VICTIM, TENANT = ("chat", "assistant-0"), ("search", "embed-0")
HIDDEN = "root:$6$of-the-shadow-file:19000"
MARKUP = "</script><svg/o"
OUTPUTS = ("/", "/metrics", "/api/v1/snapshot", "/api/v1/doctor", "/holder/search/embed-0/server")
# A poll of this node takes a tenth of this.
SOON = 3.0


@pytest.fixture
async def node() -> AsyncIterator[Served]:
    """Serve a node on which several tenants share a GPU by HAMi, and which was polled once."""
    async with serving(load(SCENARIO)) as served:
        await served.poll(30)
        yield served


def row(served: Served, who: tuple[str, str]):
    """Give the one row of a pod."""
    (found,) = [
        row for row in served.poller.snapshot.containers if (row.holder.namespace, row.holder.pod) == who
    ]
    return found


def cache_of(served: Served, who: tuple[str, str]) -> Path:
    """Find the file that HAMi's library writes inside the pod's container."""
    uid = row(served, who).pod_uid
    (path,) = served.node.paths.hami_root.glob(f"containers/{uid}_*/*.cache")
    return path


async def all_outputs(served: Served) -> str:
    """Fetch all that the port tells."""
    pages = []
    for path in OUTPUTS:
        async with served.client.get(served.url + path, headers={"Accept": "text/html, */*;q=0.1"}) as answer:
            assert answer.status == 200, path
            pages.append(await answer.text())
    return "\n".join(pages)


def sparse(path: Path, size: int = 1 << 40) -> None:
    """Make a file that says it has a tebibyte, and has nothing."""
    path.touch()
    os.truncate(path, size)


def listening(path: Path) -> None:
    """Make a socket; it is born under a shorter name, as long ones are refused."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path.parents[1] / "s"))
    (path.parents[1] / "s").rename(path)


def crowd(path: Path) -> None:
    """Fill the folder with more names than anybody needs."""
    for number in range(2000):
        (path.parent / f"{number}.cache").touch()


def huge_numbers(path: Path) -> None:
    """Keep the form of the file, with every number at its largest."""
    size = path.with_suffix(".was").stat().st_size
    head = path.with_suffix(".was").read_bytes()[:64]
    path.write_bytes(head + b"\xff" * (size - 64))


INSTEAD: dict[str, Callable[[Path], None]] = {
    "a link": lambda path: path.symlink_to(path.with_suffix(".was")),
    "a pipe": os.mkfifo,
    "a socket": listening,
    "a folder": Path.mkdir,
    "a tebibyte of holes": sparse,
    "the right size of holes": lambda path: sparse(path, path.with_suffix(".was").stat().st_size),
    "the largest numbers": huge_numbers,
    "a crowd of files": crowd,
    "nothing": lambda _path: None,
}


def told_of_others(served: Served) -> dict:
    """Give what is said of everybody but the tenant."""
    return {
        (each.holder, each.device): (each.memory_used, each.memory_entitled, each.slices, each.sharing)
        for each in served.poller.snapshot.containers
        if each.holder.pod != TENANT[1]
    }


@pytest.mark.slow
async def test_what_a_tenant_puts_in_place_of_his_file_harms_nobody(node: Served) -> None:
    """Nothing hangs; his own row is what the driver says, and all others are as they were."""
    path, driver_says = cache_of(node, TENANT), None
    others, folder = told_of_others(node), path.parent
    kept = folder.with_name("kept")
    folder.rename(kept)
    for what, put in INSTEAD.items():
        folder.mkdir()
        path.with_suffix(".was").write_bytes((kept / path.name).read_bytes())
        put(path)

        began = time.monotonic()
        await node.poller.poll()

        assert time.monotonic() - began < SOON, what
        assert told_of_others(node) == others, what
        mine = row(node, TENANT)
        driver_says = driver_says or (mine.memory_used, mine.slices)
        assert (mine.memory_source, mine.memory_used, mine.slices) == ("process", *driver_says), what
        shutil.rmtree(folder)


@pytest.mark.slow
async def test_a_link_leads_to_no_secret(node: Served) -> None:
    """Of a file that a tenant links to in place of his own, nothing is told anywhere, nor logged."""
    path = cache_of(node, TENANT)
    secret = path.parents[3] / "shadow"
    secret.write_text(HIDDEN)
    path.unlink()
    path.symlink_to(secret)

    await node.poller.poll()

    assert HIDDEN not in await all_outputs(node)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lie", "source"), [(1, "hami"), (0, "none")], ids=["next to nothing", "nothing, against the driver"]
)
async def test_a_tenant_who_lies_to_the_meter_is_seen_in_the_rest(
    node: Served, lie: int, source: str
) -> None:
    """His row says what he wrote and who metered it; the device's rest grows by what he hides."""
    before, path = row(node, TENANT), cache_of(node, TENANT)
    others = row(node, VICTIM)
    unattributed = {gpu.identity.uuid: gpu.unattributed_memory for gpu in node.poller.snapshot.gpus}
    content = bytearray(path.read_bytes())
    layout = next(each for each in LAYOUTS if each.file_size == len(content))
    for slot in range(layout.slots, layout.slots + 16 * layout.slot_size, layout.slot_size):
        struct.pack_into("<Q", content, slot + layout.total, lie)
    path.write_bytes(content)

    await node.poller.poll()

    after = row(node, TENANT)
    assert (after.memory_used, after.memory_source) == (after.processes if lie else None, source)
    assert before.memory_used
    hidden = before.memory_used - (after.memory_used or 0)
    (gpu,) = [each for each in node.poller.snapshot.gpus if each.identity.uuid == before.device.uuid]
    assert gpu.unattributed_memory == unattributed[gpu.identity.uuid] + hidden
    assert row(node, VICTIM).memory_used == others.memory_used
    # The driver still counts and sizes his processes.
    driver = [each for each in node.poller.snapshot.processes if each.holder == before.holder]
    assert after.processes == len(driver) > 0
    assert sum(each.memory or 0 for each in driver) >= before.memory_used


@pytest.mark.slow
async def test_an_annotation_that_claims_much_is_seen_as_over_commit(node: Served) -> None:
    """Whoever may write a pod's annotations may claim; the sum of claims shows it, and others keep theirs."""
    mine, theirs = row(node, TENANT), row(node, VICTIM)
    uuid = mine.device.uuid
    pods = node.node.kubelet.pods
    claim = {"hami.io/vgpu-devices-allocated": f"{uuid},NVIDIA,900000,100:;"}
    node.node.kubelet.pods = tuple(
        replace(pod, annotations={**pod.annotations, **claim}) if pod.name == TENANT[1] else pod
        for pod in pods
    )

    await node.poller.poll()

    assert row(node, VICTIM).memory_entitled == theirs.memory_entitled
    assert row(node, VICTIM).memory_used == theirs.memory_used
    (gpu,) = [each for each in node.poller.snapshot.gpus if each.identity.uuid == uuid]
    assert gpu.memory_entitled > gpu.reading.memory.total


@pytest.mark.slow
@pytest.mark.parametrize("size", [1 << 20, 65_000])
async def test_a_long_annotation_costs_its_pod_alone(node: Served, size: int) -> None:
    """A mebibyte, or as much as is read: the poll takes no longer, and its pod has what it had without."""
    theirs = row(node, VICTIM)
    pods = node.node.kubelet.pods
    long = {"hami.io/vgpu-devices-allocated": ("GPU-x,NVIDIA,1,1:" * size)[:size]}
    node.node.kubelet.pods = tuple(
        replace(pod, annotations=long) if pod.name == TENANT[1] else pod for pod in pods
    )

    began = time.monotonic()
    await node.poller.poll()

    assert time.monotonic() - began < SOON
    assert row(node, VICTIM).memory_entitled == theirs.memory_entitled
    assert "GPU-x,NVIDIA" not in await all_outputs(node)


@pytest.mark.slow
async def test_what_is_long_does_not_push_out_what_is_short(node: Served) -> None:
    """A pod whose annotations are filled to the limit of Kubernetes still has those about its GPU."""
    mine = row(node, TENANT)
    filled = {f"example.com/{number}": "x" * 60_000 for number in range(4)}
    node.node.kubelet.pods = tuple(
        replace(pod, annotations={**filled, **pod.annotations}) if pod.name == TENANT[1] else pod
        for pod in node.node.kubelet.pods
    )

    await node.poller.poll()

    assert row(node, TENANT).memory_entitled == mine.memory_entitled is not None
    details = node.poller.evidence.workloads.pods[mine.pod_uid].details
    assert sum(map(len, details.annotations.values())) <= MOST_ANNOTATIONS


@pytest.mark.slow
async def test_names_are_text_wherever_they_are_told(node: Served) -> None:
    """Pods, namespaces and processes may be called anything: no markup, no series and no header of it."""
    hostile = 'x"} 1\ngpuslice_evil{a="<script>alert(1)</script>'
    pods = node.node.kubelet.pods
    node.node.kubelet.pods = tuple(
        replace(pod, name=hostile, namespace=hostile) if pod.name == TENANT[1] else pod for pod in pods
    )
    victim = next(
        each for each in node.poller.snapshot.processes if each.holder and each.holder.pod == VICTIM[1]
    )
    stat = node.node.paths.proc_root / str(victim.pid) / "stat"
    stat.write_text(re.sub(r"\(.*\)", lambda _: f"({MARKUP})", stat.read_text()))

    await node.poller.poll()

    async with node.client.get(f"{node.url}/metrics", headers={"Accept": "text/plain"}) as answer:
        families = {family.name: family for family in text_string_to_metric_families(await answer.text())}
    assert "gpuslice_evil" not in families
    labels = [sample.labels for family in families.values() for sample in family.samples]
    assert any(each.get("pod") == hostile for each in labels)
    assert not any(MARKUP in value for each in labels for value in each.values())
    for path in ("/", f"/holder/{VICTIM[0]}/{VICTIM[1]}/server"):
        async with node.client.get(node.url + path, headers={"Accept": "text/html"}) as answer:
            page = await answer.text()
        assert "<script>alert" not in page
        assert MARKUP not in page
    assert {each.command for each in node.poller.snapshot.processes if each.pid == victim.pid} == {MARKUP}


@pytest.mark.slow
async def test_the_name_of_a_file_is_one_line_of_the_log(
    node: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    """A tenant can neither forge lines of the log nor steer the terminal of who reads it."""
    path = cache_of(node, TENANT)
    path.rename(path.parent / "a\n2026-01-01 ERROR all is lost \x1b[2J\u202e.cache")
    (path.parent / "b.cache").touch()
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    set_up_logging("warning", "text")
    try:
        (path.parent / "b.cache").unlink()
        (path.parent / "a\n2026-01-01 ERROR all is lost \x1b[2J\u202e.cache").write_bytes(b"no cache")
        await node.poller.poll()
        # Messages are written by a thread of their own.
        root.handlers[0].flush()
    finally:
        logging.basicConfig(level=level, handlers=before, force=True)

    (line,) = capfd.readouterr().err.splitlines()
    assert r"a\n2026-01-01 ERROR all is lost \x1b[2J\u202e.cache: " in line
