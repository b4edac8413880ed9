"""The shutdown of a process, a killed process, a new one, and several on one node."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from exporter.demo.node import FakeNode
from exporter.demo.scenario import KubeletFailure, NvmlHang, catalog
from exporter.demo.scenario.catalog import dump
from tests.core.commands.program import TIMEOUT, Serving, command, environment, run, serving
from tests.page.abuse.attacks import METRICS, STREAM
from tests.page.abuse.clients import crowd, push
from tests.waiting import wait_until

# Series that differ between two processes on the same node.
OF_A_PROCESS = re.compile(
    r"process_|python_|gpuslice_(build_info|snapshot_|poll_|collector_|nvml_|render_)"
    r"|.*_(total|created|timestamp_seconds)\b"
)


@asynccontextmanager
async def a_node(root: Path) -> AsyncIterator[list[str]]:
    """Run a fake AMD node that stands still; yield the command that serves it."""
    async with FakeNode(catalog.load("mi300x-cpx"), root=root, clock=lambda: 0.0) as node:
        flags = [f"--{name.replace('_', '-')}={path}" for name, path in asdict(node.paths).items()]
        nothing = f"--nvml-library={root / 'none.so'}"
        yield ["serve", *flags, nothing, "--node-name", node.name, "--poll-interval", "200ms"]


def truth(server: Serving) -> Mapping[str, str]:
    """Return the samples of a page that describe the node, once it was polled."""

    def page() -> str:
        with contextlib.suppress(OSError):
            server.get("-/ready")
            return server.get("metrics")
        return ""

    lines = [line for line in wait_until(page, "the first poll").splitlines() if not line.startswith("#")]
    samples = dict(line.rsplit(" ", 1) for line in lines)
    return {name: value for name, value in samples.items() if not OF_A_PROCESS.match(name)}


def files_below(*folders: Path) -> set[tuple[str, int]]:
    """Return all files with their inode numbers: a file that is written again has another."""
    return {(str(path), path.lstat().st_ino) for folder in folders for path in [folder, *folder.rglob("*")]}


def held_by(pid: int) -> set[str]:
    """Return what a process could leave: files open for writing, and shared memory."""
    names = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        # It opens and closes files of the node meanwhile.
        with contextlib.suppress(FileNotFoundError):
            flags = int(
                re.search(r"flags:\s+(\d+)", Path(f"/proc/{pid}/fdinfo/{link.name}").read_text())[1], 8
            )
            name = str(link.readlink())
            names |= {name} if name.startswith("/") and flags & (os.O_WRONLY | os.O_RDWR) else set()
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    mapped = {line.split(None, 5)[5] for line in maps if "/" in line}
    return (names - {"/dev/null"}) | {
        name for name in mapped if name.startswith(("/dev/", "/memfd", "/SYSV"))
    }


def children(pid: int) -> str:
    """Return the ids of the processes that a process has started."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return "".join(task.read_text() for task in tasks)


def compare_processes(words: list[str], folder: Path) -> None:
    """Assert that two show the same; and still do, with a third, when one is killed, which leaves nothing."""
    (scratch := folder / "scratch").mkdir()
    before = files_below(folder)
    with ExitStack() as running:
        victim, survivor = (running.enter_context(serving(*words, TMPDIR=str(scratch))) for _ in range(2))
        shown = truth(survivor)
        assert truth(victim) == shown
        assert sum(name.startswith("gpuslice_container_memory_used_bytes{") for name in shown) > 1
        assert children(victim.pid) == ""
        assert held_by(victim.pid) == set()
        assert victim.stop(signal.SIGKILL) == -signal.SIGKILL
        assert files_below(folder) == before
        assert truth(survivor) == shown
        third = running.enter_context(serving(*words, TMPDIR=str(scratch)))
        assert truth(third) == shown
        assert [third.stop(), survivor.stop()] == [0, 0]
        assert [line for line in survivor.lines if "ERROR" in line or "Traceback" in line] == []


@pytest.mark.slow
async def test_two_on_one_node_show_the_same_and_one_that_is_killed_leaves_nothing(tmp_path):
    async with a_node(tmp_path / "node") as words:
        await asyncio.to_thread(compare_processes, words, tmp_path)


@pytest.mark.slow
def test_a_second_one_does_not_disturb_the_first_on_the_same_port():
    with serving("demo", "--scenario", "a10-mps") as first:
        taken = first.url.removeprefix("http://").rstrip("/")
        assert run("demo", "--scenario", "a10-mps", "--listen", taken).returncode == 2
        assert first.get("-/healthy") == "ok\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "numbers",
    [[signal.SIGTERM] * 20, [signal.SIGHUP, signal.SIGINT]],
    ids=["SIGTERM twenty times", "SIGHUP and SIGINT"],
)
def test_a_second_signal_does_not_cut_the_shutdown_short(numbers, tmp_path):
    """The exit code is 0, and no file is left."""
    with serving("demo", "--scenario", "a10-mps", TMPDIR=str(tmp_path)) as server:
        for number in numbers[:-1]:
            server.send(number)
            time.sleep(0.02)
        assert server.stop(numbers[-1]) == 0
    assert list(tmp_path.iterdir()) == []
    assert "Traceback" not in "\n".join(server.lines)


@pytest.mark.slow
def test_under_nohup_sighup_stays_ignored():
    ignored = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = serving("demo", "--scenario", "a10-mps")
        server = process.__enter__()
    finally:
        signal.signal(signal.SIGHUP, ignored)
    with ExitStack() as running:
        running.push(process.__exit__)
        ignored_signals = int(
            re.search(r"SigIgn:\s+(\w+)", Path(f"/proc/{server.pid}/status").read_text())[1], 16
        )
        assert ignored_signals >> (signal.SIGHUP - 1) & 1
        server.send(signal.SIGHUP)
        assert server.get("-/healthy") == "ok\n"
        assert server.stop() == 0


@pytest.mark.parametrize("after", [0.05, 0.4])
def test_a_signal_ends_it_before_it_serves(after, tmp_path):
    """Until the program handles SIGTERM, the signal itself ends it."""
    process = subprocess.Popen(
        command("serve", "--listen", "127.0.0.1:0", f"--nvml-library={tmp_path / 'none.so'}"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    time.sleep(after)
    process.terminate()
    _, log = process.communicate(timeout=TIMEOUT)
    assert process.returncode in (0, -signal.SIGTERM)
    assert "Traceback" not in log


@pytest.mark.slow
def test_hangs_and_clients_do_not_keep_it_from_ending(tmp_path):
    """Driver and kubelet hang for good, and clients neither read nor leave."""
    faults = (
        NvmlHang(kind="nvml_hang", function="nvmlDeviceGetCount_v2"),
        KubeletFailure(kind="kubelet_hang"),
    )
    hanging = tmp_path / "hangs.json"
    hanging.write_text(dump(replace(catalog.load("a10-mps"), faults=faults)))
    with serving("demo", "--scenario", hanging, "--poll-interval", "200ms") as server:
        port = int(server.url.rstrip("/").rpartition(":")[2])
        with crowd(port, 60, 3, small=True) as clients:
            push(clients[:20], METRICS * 50)
            push(clients[20:40], STREAM)
            push(clients[40:50], b"GET / HTTP/1.1\r\nHost")
            assert server.get("-/healthy") == "ok\n"
            assert server.stop() == 0
    assert "Traceback" not in "\n".join(server.lines)
