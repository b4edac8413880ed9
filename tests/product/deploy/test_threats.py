"""A tenant writes what it can on the node: only its own rows change, and it learns nothing of others."""

import logging
import os
import re
import shutil
import socket
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from exporter.demo.scenario.catalog import load
from exporter.model.kubelet import MOST_ANNOTATIONS
from exporter.output import set_up_logging
from exporter.sharing.hami.cache import LAYOUTS
from tests.together.end_to_end.serving import Served, serving

SCENARIO = "showcase"
VICTIM, TENANT = ("chat", "assistant-0"), ("search", "embed-0")
HIDDEN = "root:$6$of-the-shadow-file:19000"
MARKUP = "</script><svg/o"
OUTPUTS = ("/", "/metrics", "/api/v1/snapshot", "/api/v1/doctor", "/holder/search/embed-0/server")


@pytest.fixture
async def node() -> AsyncIterator[Served]:
    """Serve a node on which several tenants share a GPU by HAMi, after one poll."""
    async with serving(load(SCENARIO), deadline=600) as served:
        await served.poll(30)
        yield served


def row(served: Served, pod: tuple[str, str]):
    """Return the one row of a pod."""
    (only_row,) = [
        row for row in served.poller.snapshot.containers if (row.holder.namespace, row.holder.pod) == pod
    ]
    return only_row


def change_tenant(served: Served, **changes: Any) -> None:
    """Change the tenant's pod as the kubelet reports it."""
    kubelet = served.node.kubelet
    kubelet.pods = tuple(replace(pod, **changes) if pod.name == TENANT[1] else pod for pod in kubelet.pods)


def annotations_of(served: Served) -> dict[str, str]:
    (pod,) = [pod for pod in served.node.kubelet.pods if pod.name == TENANT[1]]
    return dict(pod.annotations)


def cache_of(served: Served, pod: tuple[str, str]) -> Path:
    """Return the file that HAMi's library writes inside the pod's container."""
    uid = row(served, pod).pod_uid
    (path,) = served.node.paths.hami_root.glob(f"containers/{uid}_*/*.cache")
    return path


async def all_outputs(served: Served) -> str:
    """Return the text of all pages of the port."""
    pages = []
    for path in OUTPUTS:
        async with served.client.get(served.url + path, headers={"Accept": "text/html, */*;q=0.1"}) as answer:
            assert answer.status == 200, path
            pages.append(await answer.text())
    return "\n".join(pages)


def sparse(path: Path, size: int = 1 << 40) -> None:
    """Make a file with a length of a tebibyte and no content."""
    path.touch()
    os.truncate(path, size)


def listening(path: Path) -> None:
    """Make a socket, under a short name first: long ones are refused."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path.parents[1] / "s"))
    (path.parents[1] / "s").rename(path)


def crowd(path: Path) -> None:
    """Fill the folder with names."""
    for number in range(2000):
        (path.parent / f"{number}.cache").touch()


def huge_numbers(path: Path) -> None:
    """Keep the header of the file, and set each number to its maximum."""
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


def numbers_of_others(served: Served) -> dict:
    """Return the numbers of all holders except the tenant."""
    return {
        (each.holder, each.device): (each.memory_used, each.memory_entitled, each.slices, each.sharing)
        for each in served.poller.snapshot.containers
        if each.holder.pod != TENANT[1]
    }


async def test_a_tenants_file_of_any_kind_changes_only_its_own_row(node: Served) -> None:
    """The poll ends, the tenant's row has the numbers of the driver, and the others are unchanged."""
    path, of_driver = cache_of(node, TENANT), None
    others, folder = numbers_of_others(node), path.parent
    kept = folder.with_name("kept")
    folder.rename(kept)
    for kind, put in INSTEAD.items():
        folder.mkdir()
        path.with_suffix(".was").write_bytes((kept / path.name).read_bytes())
        put(path)

        await node.poller.poll()

        assert numbers_of_others(node) == others, kind
        own = row(node, TENANT)
        of_driver = of_driver or (own.memory_used, own.slices)
        assert (own.memory_source, own.memory_used, own.slices) == ("process", *of_driver), kind
        shutil.rmtree(folder)


async def test_a_link_to_a_secret_is_not_followed(node: Served) -> None:
    """No page has its content."""
    path = cache_of(node, TENANT)
    secret = path.parents[3] / "shadow"
    secret.write_text(HIDDEN)
    path.unlink()
    path.symlink_to(secret)

    await node.poller.poll()

    assert HIDDEN not in await all_outputs(node)


@pytest.mark.parametrize(
    ("lie", "source"), [(1, "hami"), (0, "none")], ids=["next to nothing", "nothing, against the driver"]
)
async def test_memory_that_a_tenant_hides_is_unattributed(node: Served, lie: int, source: str) -> None:
    """The row has the tenant's figure and its source; the device's unattributed memory grows."""
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
    # The driver still counts and measures the tenant's processes.
    processes = [each for each in node.poller.snapshot.processes if each.holder == before.holder]
    assert after.processes == len(processes) > 0
    assert sum(each.memory or 0 for each in processes) >= before.memory_used


async def test_an_excessive_claim_in_an_annotation_is_overcommit(node: Served) -> None:
    """The sum of claims exceeds the device, and others keep theirs."""
    theirs, uuid = row(node, VICTIM), row(node, TENANT).device.uuid
    claim = {"hami.io/vgpu-devices-allocated": f"{uuid},NVIDIA,900000,100:;"}
    change_tenant(node, annotations=annotations_of(node) | claim)

    await node.poller.poll()

    assert row(node, VICTIM).memory_entitled == theirs.memory_entitled
    assert row(node, VICTIM).memory_used == theirs.memory_used
    (gpu,) = [each for each in node.poller.snapshot.gpus if each.identity.uuid == uuid]
    assert gpu.memory_entitled > gpu.reading.memory.total


@pytest.mark.parametrize("size", [1 << 20, 65_000])
async def test_a_long_annotation_changes_only_its_pod(node: Served, size: int) -> None:
    """A mebibyte, or as much as is read."""
    theirs = row(node, VICTIM)
    change_tenant(node, annotations={"hami.io/vgpu-devices-allocated": ("GPU-x,NVIDIA,1,1:" * size)[:size]})

    await node.poller.poll()

    assert row(node, VICTIM).memory_entitled == theirs.memory_entitled
    assert "GPU-x,NVIDIA" not in await all_outputs(node)


async def test_long_annotations_do_not_displace_short_ones(node: Served) -> None:
    """A pod with as many annotations as Kubernetes allows keeps those about its GPU."""
    before = row(node, TENANT)
    long = {f"example.com/{number}": "x" * 60_000 for number in range(4)}
    change_tenant(node, annotations=long | annotations_of(node))

    await node.poller.poll()

    assert row(node, TENANT).memory_entitled == before.memory_entitled is not None
    details = node.poller.evidence.workloads.pods[before.pod_uid].details
    assert sum(map(len, details.annotations.values())) <= MOST_ANNOTATIONS


async def test_names_are_text_in_every_output(node: Served) -> None:
    """A name of a pod, namespace or process becomes no markup and no series."""
    hostile = 'x"} 1\ngpuslice_evil{a="<script>alert(1)</script>'
    change_tenant(node, name=hostile, namespace=hostile)
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


async def test_the_name_of_a_file_is_one_line_of_the_log(
    node: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    """A tenant cannot forge lines of the log or control the reader's terminal."""
    path = cache_of(node, TENANT)
    renamed = path.rename(path.parent / "a\n2026-01-01 ERROR all is lost \x1b[2J\u202e.cache")
    renamed.write_bytes(b"no cache")
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    set_up_logging("warning", "text")
    try:
        await node.poller.poll()
        # A thread writes the messages.
        root.handlers[0].flush()
    finally:
        logging.basicConfig(level=level, handlers=handlers, force=True)

    (line,) = capfd.readouterr().err.splitlines()
    assert r"a\n2026-01-01 ERROR all is lost \x1b[2J\u202e.cache: " in line
