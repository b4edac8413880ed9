"""Ending, being killed, starting again, and two exporters beside each other on one node, as processes."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from exporter.demo.node import FakeNode
from exporter.demo.scenario import KubeletFailure, NvmlHang, catalog
from exporter.demo.scenario.catalog import dump
from tests.abuse.attacks import METRICS, STREAM
from tests.abuse.clients import crowd, push
from tests.commands.program import TIMEOUT, Serving, command, environment, run, serving

# A third of what a pod is given to end.
GRACE_SECONDS = 10.0
# What differs between two processes that see the same node at different moments.
OF_A_PROCESS = re.compile(
    r"process_|python_|gpuslice_(build_info|snapshot_|poll_|collector_|nvml_|render_)"
    r"|.*_(total|created|timestamp_seconds)\b"
)


@asynccontextmanager
async def a_node(root: Path) -> AsyncIterator[list[str]]:
    """Run a fake node of AMD's that stands still, and give the flags that lead a real process to it."""
    async with FakeNode(catalog.load("mi300x-cpx"), root=root, clock=lambda: 0.0) as node:
        flags = [f"--{name.replace('_', '-')}={path}" for name, path in asdict(node.paths).items()]
        nothing = f"--nvml-library={root / 'none.so'}"
        yield ["serve", *flags, nothing, "--node-name", node.name, "--poll-interval", "200ms"]


def started(words: list[str], **variables: str) -> tuple[subprocess.Popen[str], Serving]:
    """Start the program on a free port."""
    process = subprocess.Popen(
        command(*words, "--listen", "127.0.0.1:0"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**variables),
    )
    return process, Serving(process)


def truth(server: Serving) -> Mapping[str, str]:
    """Give the samples of a page that tell of the node, once it was polled."""
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            server.get("-/ready")
            lines = [line for line in server.get("metrics").splitlines() if not line.startswith("#")]
            samples = dict(line.rsplit(" ", 1) for line in lines)
            return {name: value for name, value in samples.items() if not OF_A_PROCESS.match(name)}
        time.sleep(0.05)
    raise AssertionError("it does not become ready")


def files_below(*folders: Path) -> set[tuple[str, int]]:
    """List what is there, with the number of each file: one made anew has another."""
    return {(str(path), path.lstat().st_ino) for folder in folders for path in [folder, *folder.rglob("*")]}


def held_by(pid: int) -> set[str]:
    """Name what a process could leave behind: files that it may write to, and memory that it may share."""
    found = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        # It goes on reading files of the node meanwhile.
        with contextlib.suppress(FileNotFoundError):
            flags = int(
                re.search(r"flags:\s+(\d+)", Path(f"/proc/{pid}/fdinfo/{link.name}").read_text())[1], 8
            )
            name = str(link.readlink())
            found |= {name} if name.startswith("/") and flags & (os.O_WRONLY | os.O_RDWR) else set()
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    mapped = {line.split(None, 5)[5] for line in maps if "/" in line}
    return (found - {"/dev/null"}) | {
        name for name in mapped if name.startswith(("/dev/", "/memfd", "/SYSV"))
    }


def children(pid: int) -> str:
    """Name the processes that a process has started."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return "".join(task.read_text() for task in tasks)


@pytest.mark.slow
async def test_two_beside_each_other_and_one_that_is_killed(tmp_path):
    """Both say the same; killing one leaves nothing behind, and the other and a third say that still."""
    (scratch := tmp_path / "scratch").mkdir()
    async with a_node(tmp_path / "node") as words:
        before = files_below(tmp_path)
        started_here = [await asyncio.to_thread(started, words, TMPDIR=str(scratch)) for _ in range(2)]
        (killed, victim), (_, survivor) = started_here
        try:
            told = await asyncio.to_thread(truth, survivor)
            assert await asyncio.to_thread(truth, victim) == told
            assert sum(name.startswith("gpuslice_container_memory_used_bytes{") for name in told) > 1
            assert children(killed.pid) == ""
            assert held_by(killed.pid) == set()
            killed.kill()
            await asyncio.to_thread(killed.wait, TIMEOUT)
            assert files_below(tmp_path) == before
            assert await asyncio.to_thread(truth, survivor) == told
            third, again = await asyncio.to_thread(started, words, TMPDIR=str(scratch))
            started_here.append((third, again))
            assert await asyncio.to_thread(truth, again) == told
            for server in (again, survivor):
                assert (await asyncio.to_thread(server.end))[0] == 0
            assert [line for line in survivor.lines if "ERROR" in line or "Traceback" in line] == []
        finally:
            for process, _ in started_here:
                process.kill()
                process.wait(TIMEOUT)


@pytest.mark.slow
def test_a_second_one_on_the_same_port_says_so():
    """It names the address and the remedy, and the first goes on."""
    with serving("demo", "--scenario", "a10-mps") as first:
        taken = first.url.removeprefix("http://").rstrip("/")
        done = run("serve", "--listen", taken)
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1] == (
            f"gpuslice-exporter: cannot listen on {taken}: Address already in use; "
            "choose another with --listen"
        )
        assert first.get("-/healthy") == "ok\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "numbers",
    [[signal.SIGTERM] * 20, [signal.SIGINT] * 20, [signal.SIGHUP], [signal.SIGHUP, signal.SIGTERM]],
    ids=["SIGTERM again and again", "SIGINT again and again", "SIGHUP", "SIGHUP and SIGTERM"],
)
def test_who_is_told_twice_ends_no_less_well(numbers, tmp_path):
    """Signals that come while it ends do not cut that short: the code is 0, and nothing is left behind."""
    with serving("demo", "--scenario", "a10-mps", TMPDIR=str(tmp_path)) as server:
        for number in numbers[:-1]:
            with contextlib.suppress(ProcessLookupError):
                server.send(number)
                time.sleep(0.02)
        code, took = server.end(numbers[-1])
    assert code == 0
    assert took < GRACE_SECONDS
    assert list(tmp_path.iterdir()) == []
    assert "Traceback" not in "\n".join(server.lines)


@pytest.mark.slow
def test_who_was_started_to_outlive_its_terminal_does():
    """Under ``nohup`` a SIGHUP is not heeded, and SIGTERM is."""
    ignored = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process, server = started(["demo", "--scenario", "a10-mps"])
    finally:
        signal.signal(signal.SIGHUP, ignored)
    try:
        server.send(signal.SIGHUP)
        time.sleep(0.2)
        assert server.get("-/healthy") == "ok\n"
        assert server.end()[0] == 0
    finally:
        process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.05, 0.3, 0.6, 0.9])
def test_it_ends_at_once_though_it_has_not_begun(after, tmp_path):
    """SIGTERM while it starts ends it at once, without a word: by the signal itself until it is heeded."""
    process = subprocess.Popen(
        command("serve", "--listen", "127.0.0.1:0", f"--nvml-library={tmp_path / 'none.so'}"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    time.sleep(after)
    process.terminate()
    began = time.monotonic()
    _, said = process.communicate(timeout=TIMEOUT)
    assert time.monotonic() - began < GRACE_SECONDS
    assert process.returncode in (0, -signal.SIGTERM)
    assert "Traceback" not in said


@pytest.fixture
def hanging(tmp_path: Path) -> Path:
    """Write a node whose driver and kubelet both hang."""
    faults = (
        NvmlHang(kind="nvml_hang", function="nvmlDeviceGetCount_v2"),
        KubeletFailure(kind="kubelet_hang"),
    )
    path = tmp_path / "hangs.json"
    path.write_text(dump(replace(catalog.load("a10-mps"), faults=faults)))
    return path


@pytest.mark.slow
def test_it_ends_in_time_though_everything_hangs(hanging):
    """Driver, kubelet, and clients that neither read nor leave together do not keep it from ending."""
    with serving("demo", "--scenario", hanging, "--poll-interval", "200ms") as server:
        port = int(server.url.rstrip("/").rpartition(":")[2])
        with crowd(port, 60, 3, small=True) as clients:
            push(clients[:20], METRICS * 50)
            push(clients[20:40], STREAM)
            push(clients[40:50], b"GET / HTTP/1.1\r\nHost")
            assert server.get("-/healthy", within=5) == "ok\n"
            code, took = server.end()
    assert code == 0
    assert took < GRACE_SECONDS
    assert "Traceback" not in "\n".join(server.lines)
