"""What the program asks of the kernel while it serves: to read files, and speak to two sockets and a port."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest

from tests.deploy.confined import NODE_NAME, inside, placed
from tests.deploy.tools import ROOT, tool
from tests.end_to_end.programs import get, until

pytestmark = pytest.mark.slow

SCENARIO = "showcase"
# All that can change a file, a process or a right, speak to somebody, or write to what is open.
CHANGING = "write,writev,pwrite64,pwritev,fchmod,fchown,ftruncate,fallocate,getdents64"
TRACED = f"trace=%file,%network,%process,%creds,{CHANGING}"
PAGES = ("", "metrics", "api/v1/snapshot", "doctor")
READING = {
    "openat",
    "newfstatat",
    "stat",
    "lstat",
    "statx",
    "access",
    "faccessat",
    "faccessat2",
    "readlink",
    "readlinkat",
}
READING |= {"getdents64", "getcwd", "statfs", "open"}
TALKING = {
    "socket",
    "socketpair",
    "connect",
    "bind",
    "listen",
    "accept4",
    "shutdown",
    "getsockname",
    "getpeername",
}
TALKING |= {"setsockopt", "getsockopt", "recvfrom", "recvmsg", "sendto", "sendmsg", "write", "writev"}
# The id of a user and those of threads are asked for; a thread is made as a process is.
LIVING = {
    "execve",
    "clone3",
    "clone",
    "exit",
    "exit_group",
    "prctl",
    "getuid",
    "geteuid",
    "getgid",
    "getegid",
    "wait4",
}
CALL = re.compile(r"^\d+ +(\w+)\((.*)")
UNFINISHED = " <unfinished ...>"
RESUMED = re.compile(r"^\d+ +<\.\.\. \w+ resumed>(.*)")
PATH = re.compile(r'"((?:[^"\\]|\\.)*)"')
NOT_A_FILE = re.compile(r"\d+<(socket|pipe|anon_inode|TCP|UNIX)\b")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[str, str]]]:
    """Serve polls and pages, then end; give the node's folder, and the calls with their arguments."""
    root, trace = tmp_path_factory.mktemp("node"), tmp_path_factory.mktemp("trace") / "calls"
    asyncio.run(_serve(root, trace))
    return root, [
        (line[1], line[2])
        for line in map(CALL.match, _whole(trace.read_text(errors="replace").splitlines()))
        if line is not None
    ]


def _whole(lines: list[str]) -> Iterator[str]:
    """Join the two parts in which strace tells a call that another thread's came between."""
    begun: dict[str, str] = {}
    for line in lines:
        thread = line.partition(" ")[0]
        if line.endswith(UNFINISHED):
            begun[thread] = line.removesuffix(UNFINISHED)
        elif resumed := RESUMED.match(line):
            yield begun.pop(thread, "") + resumed[1]
        else:
            yield line
    # The program ended in these.
    yield from begun.values()


async def _serve(root: Path, trace: Path) -> None:
    strace = [
        tool("strace"),
        "-f",
        "--seccomp-bpf",
        "-qq",
        "-y",
        "-s",
        "4096",
        "-e",
        TRACED,
        "-o",
        str(trace),
    ]
    async with placed(SCENARIO, root) as place:
        paths = {f"GPUSLICE_{name.upper()}": str(path) for name, path in asdict(place.node.paths).items()}
        own = {"NODE_NAME": NODE_NAME, "GPUSLICE_LISTEN": "127.0.0.1:0", "GPUSLICE_POLL_INTERVAL": "1s"}
        process = await asyncio.create_subprocess_exec(
            *strace,
            *inside(place, "serve"),
            env=os.environ | paths | own | {"PYTHONDONTWRITEBYTECODE": "1"},
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            url = (await process.stdout.readline()).decode().strip()
            # Under strace a poll takes its time.
            polled = partial(_says, f"{url}metrics", b"\ngpuslice_container_memory_used_bytes{")
            await asyncio.to_thread(until, polled, "holders are known")
            for page in PAGES:
                _, body = await asyncio.to_thread(get, url + page)
                assert body
            await asyncio.sleep(1.5)
        finally:
            _end_what_is_traced(process.pid)
            assert await process.wait() == 0


def _says(url: str, word: bytes) -> bool:
    return word in get(url)[1]


def _end_what_is_traced(strace: int) -> None:
    (child,) = Path(f"/proc/{strace}/task/{strace}/children").read_text().split()
    os.kill(int(child), signal.SIGTERM)


def _paths(calls: list[tuple[str, str]], name: str, tried: bool = False) -> set[str]:
    """Give the paths that a call was given and that were there, or all that were ``tried``."""
    found = [(PATH.search(text), text) for call, text in calls if call == name]
    return {match[1] for match, text in found if match is not None and (tried or "= -1 ENOENT" not in text)}


def test_it_asks_for_nothing_but_reading(served: tuple[Path, list[tuple[str, str]]]) -> None:
    """No call that changes a file, a right or another process; each file is opened for reading."""
    _, calls = served
    opened = [text for name, text in calls if name in ("openat", "open")]

    assert {name for name, _ in calls} <= READING | TALKING | LIVING
    assert len(opened) > 500
    assert all("O_RDONLY" in text and "O_CREAT" not in text for text in opened)
    assert [text for name, text in calls if name == "execve"] == [text for name, text in calls[:1]]
    # Threads and parts of the memory are given names.
    assert all(text.startswith(("PR_SET_NAME", "PR_SET_VMA")) for name, text in calls if name == "prctl")
    threads = [text for name, text in calls if name in ("clone", "clone3")]
    assert threads
    assert all("CLONE_THREAD" in text for text in threads)


def test_it_writes_to_sockets_and_to_its_own_output(served: tuple[Path, list[tuple[str, str]]]) -> None:
    """What is written to is no file of the node's or of the image's."""
    _, calls = served
    written = [text for name, text in calls if name in ("write", "writev")]

    assert written
    assert all(NOT_A_FILE.match(text) or re.match("[12]<", text) for text in written)


def test_it_speaks_to_the_kubelet_and_hears_one_port(served: tuple[Path, list[tuple[str, str]]]) -> None:
    """It connects to the kubelet's two sockets and to nothing else, and listens at one."""
    root, calls = served
    kubelet = root / "var/lib/kubelet"
    sockets = {str(kubelet / "pod-resources/kubelet.sock"), str(kubelet / "pods-api/pods-api.sock")}

    assert all("AF_UNIX" in text for name, text in calls if name == "connect")
    assert _paths(calls, "connect") == sockets
    # The same one again, with a longer queue of clients than it was begun with.
    assert len({text.partition("<")[2].partition(",")[0] for name, text in calls if name == "listen"}) == 1
    (bound,) = (text for name, text in calls if name == "bind")
    assert "127.0.0.1" in bound


def test_of_processes_it_reads_two_files(served: tuple[Path, list[tuple[str, str]]]) -> None:
    """Of a process of the node: its cgroup, and the line with its short name; no command line."""
    _, calls = served
    opened = _paths(calls, "openat")
    of_processes = {re.sub(r".*/proc/\d+/", "", path) for path in opened if re.search(r"/proc/\d+/", path)}

    assert of_processes == {"cgroup", "stat"}


def test_of_the_node_it_reads_what_is_documented(served: tuple[Path, list[tuple[str, str]]]) -> None:
    """Below the node's root only the directories of the documentation's table are opened, or tried to."""
    root, calls = served
    tried = map(Path, _paths(calls, "openat", tried=True))
    inside_node = {path.relative_to(root) for path in tried if path.is_relative_to(root)}
    text = (ROOT / "docs/security.md").read_text()
    documented = {Path(path) for path in re.findall(r"^\|[^|\n]*?`/([a-z][^`]*)`", text, re.MULTILINE)}

    assert {path.parts[0] for path in inside_node} >= {"proc", "sys", "usr", "var"}
    assert {
        path for path in inside_node if not any(path.is_relative_to(each) for each in documented)
    } == set()


def test_outside_the_node_it_reads_its_own_files(served: tuple[Path, list[tuple[str, str]]]) -> None:
    """Beyond interpreter, libraries and sources: the system's certificates, clock and randomness."""
    root, calls = served
    own = (
        str(root),
        sys.prefix,
        sys.base_prefix,
        str(ROOT),
        "/usr/",
        "/lib",
        "/proc/self/",
        "/sys/devices/system/cpu",
    )
    rest = {path for path in _paths(calls, "openat") if not path.startswith(own)}

    assert rest <= {
        "/dev/urandom",
        "/etc/ld.so.cache",
        "/etc/localtime",
        "/etc/mime.types",
        "/proc/stat",
        "/proc/meminfo",
        *(path for path in rest if path.startswith("/etc/ssl/")),
    }
