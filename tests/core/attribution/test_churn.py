"""A node on which processes start and end at each poll: which values are absent, and why."""

import shutil
from pathlib import Path

from exporter.model import PodIdentity, Workloads
from exporter.workloads.processes import ProcessTable
from tests.core.attribution.build import GIB, UUID, gpu, held, join, process, replicas, row
from tests.core.workloads.tree import write_process

PODS = ("idle", "busy", "short")
HELD = [allocation for n, name in enumerate(PODS) for allocation in held(name, f"{UUID}::{n}")]
LONG, FIRST, UNSEEN = 50, 100, 1000
POLLS = 12


def uid(name: str) -> str:
    return f"aaaaaaaa-0000-4000-8000-{name.encode().hex():0>12}"


def container_id(name: str) -> str:
    return name.encode().hex().ljust(64, "0")


def started(root: Path, pid: int, name: str, at: float) -> None:
    write_process(root, pid, f"/kubepods.slice/pod{uid(name)}/{container_id(name)}", start=at)


def test_each_absent_value_has_a_reason(tmp_path: Path):
    """Each interval has a process of its own, which the next poll does not list any more but has samples of.

    In every third interval another process starts and ends unseen. Only then, and only a zero of compute, is
    unknown: the process may have been of the container that has none.
    """
    table = ProcessTable(tmp_path)
    started(tmp_path, LONG, "busy", at=1)
    pods = {
        uid(name): PodIdentity(
            uid=uid(name),
            namespace="ml",
            name=name,
            containers=("main",),
            container_ids={container_id(name): "main"},
        )
        for name in PODS
    }
    found, expected = [], []
    for poll in range(POLLS):
        now, unseen = 10.0 * (poll + 1), poll % 3 == 2
        shutil.rmtree(tmp_path / str(FIRST + poll - 1), ignore_errors=True)
        started(tmp_path, FIRST + poll, "short", at=now - 1)
        samples = {LONG: 30, FIRST + poll: 5} | ({FIRST + poll - 1: 10} if poll else {})
        samples |= {UNSEEN + poll: 20} if unseen else {}
        listed = [process(LONG, 2 * GIB), process(FIRST + poll)]
        places = table.read(dict.fromkeys(samples, now))
        result = join(
            gpu(listed, samples), HELD, replicas(4), Workloads(places=places, pods=pods, process_view=True)
        )
        rows = {name: row(result, name) for name in PODS}
        found.append(
            {name: (each.memory_used, each.compute_used, each.processes) for name, each in rows.items()}
        )
        expected.append(
            {
                "idle": (0, None if unseen else 0.0, 0),
                "busy": (2 * GIB, 0.3, 1),
                "short": (GIB, 0.15 if poll else 0.05, 1),
            }
        )
    assert found == expected
