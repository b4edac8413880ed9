"""The system calls of the program while it serves: it reads files, and uses two sockets and a port."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.product.deploy.confined import NODE_NAME, inside, placed
from tests.together.end_to_end.programs import get
from tests.tools import ROOT, tool
from tests.waiting import wait_until_async

pytestmark = pytest.mark.tools

SCENARIO = "showcase"
# All calls that can change a file, a process or a right, use the network, or write.
CHANGING = "write,writev,pwrite64,pwritev,fchmod,fchown,ftruncate,fallocate,getdents64"
TRACED = f"trace=%file,%network,%process,%creds,{CHANGING}"
PAGES = ("", "metrics", "api/v1/snapshot", "doctor")
READING = (
    "open openat stat lstat newfstatat statx statfs access faccessat faccessat2"
    " readlink readlinkat getcwd getdents64"
)
USING_SOCKETS = (
    "socket socketpair connect bind listen accept4 shutdown getsockname getpeername setsockopt getsockopt"
    " recvfrom recvmsg sendto sendmsg write writev"
)
# A thread is made as a process is.
STARTING_AND_ENDING = "execve clone clone3 exit exit_group prctl getuid geteuid getgid getegid wait4"
ALLOWED = {*READING.split(), *USING_SOCKETS.split(), *STARTING_AND_ENDING.split()}
CALL = re.compile(r"^\d+ +(\w+)\((.*)")
UNFINISHED = " <unfinished ...>"
RESUMED = re.compile(r"^\d+ +<\.\.\. \w+ resumed>(.*)")
PATH = re.compile(r'"((?:[^"\\]|\\.)*)"')
NOT_A_FILE = re.compile(r"\d+<(socket|pipe|anon_inode|TCP|UNIX)\b")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[str, str]]]:
    """Serve polls and pages, then end; return the node's folder, and the calls with their arguments."""
    root, trace = tmp_path_factory.mktemp("node"), tmp_path_factory.mktemp("trace") / "calls"
    asyncio.run(_serve(root, trace))
    return root, [
        (line[1], line[2])
        for line in map(CALL.match, _whole(trace.read_text(errors="replace").splitlines()))
        if line is not None
    ]


def _whole(lines: list[str]) -> Iterator[str]:
    """Join the two parts of a call that strace prints if another thread's call is between them."""
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
    options = ("-f", "--seccomp-bpf", "-qq", "-y", "-s", "4096", "-e", TRACED, "-o", str(trace))
    async with placed(SCENARIO, root) as place:
        paths = {f"GPUSLICE_{name.upper()}": str(path) for name, path in asdict(place.node.paths).items()}
        own = {"NODE_NAME": NODE_NAME, "GPUSLICE_LISTEN": "127.0.0.1:0", "GPUSLICE_POLL_INTERVAL": "1s"}
        process = await asyncio.create_subprocess_exec(
            *(tool("strace"), *options),
            *inside(place, "serve"),
            env=os.environ | paths | own | {"PYTHONDONTWRITEBYTECODE": "1"},
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            url = (await process.stdout.readline()).decode().strip()

            async def last_poll() -> int:
                """Return the number of the last poll that found use, 0 if there was none."""
                _, body = await asyncio.to_thread(get, f"{url}api/v1/snapshot")
                snapshot = json.loads(body)
                used = any(row["memory_used_bytes"] for row in snapshot["containers"])
                return snapshot["sequence"] if used else 0

            before = await wait_until_async(last_poll, "holders are known")
            for page in PAGES:
                _, body = await asyncio.to_thread(get, url + page)
                assert body

            async def polled_again() -> bool:
                return await last_poll() > before

            await wait_until_async(polled_again, "another poll")
        finally:
            _end_traced_program(process.pid)
            assert await process.wait() == 0


def _end_traced_program(strace: int) -> None:
    (child,) = Path(f"/proc/{strace}/task/{strace}/children").read_text().split()
    os.kill(int(child), signal.SIGTERM)


def _paths(calls: list[tuple[str, str]], name: str, tried: bool = False) -> set[str]:
    """Return the paths in a call that existed, or all that were ``tried``."""
    texts = [text for call, text in calls if call == name and (tried or "= -1 ENOENT" not in text)]
    return {match[1] for match in map(PATH.search, texts) if match is not None}


def test_it_only_reads(served: tuple[Path, list[tuple[str, str]]]) -> None:
    """No call that changes a file, a right or another process; each file is opened for reading."""
    _, calls = served
    opened = [text for name, text in calls if name in ("openat", "open")]

    assert {name for name, _ in calls} <= ALLOWED
    assert len(opened) > 500
    assert all("O_RDONLY" in text and "O_CREAT" not in text for text in opened)
    assert [text for name, text in calls if name == "execve"] == [text for name, text in calls[:1]]
    # Names of threads and of parts of the memory.
    assert all(text.startswith(("PR_SET_NAME", "PR_SET_VMA")) for name, text in calls if name == "prctl")
    threads = [text for name, text in calls if name in ("clone", "clone3")]
    assert threads
    assert all("CLONE_THREAD" in text for text in threads)


def test_it_writes_to_sockets_and_to_its_own_output(served: tuple[Path, list[tuple[str, str]]]) -> None:
    """Never to a file."""
    _, calls = served
    written = [text for name, text in calls if name in ("write", "writev")]

    assert written
    assert all(NOT_A_FILE.match(text) or re.match("[12]<", text) for text in written)


def test_it_connects_to_the_kubelet_and_listens_on_one_port(
    served: tuple[Path, list[tuple[str, str]]],
) -> None:
    """To the kubelet's two sockets and to nothing else."""
    root, calls = served
    kubelet = root / "var/lib/kubelet"
    sockets = {str(kubelet / "pod-resources/kubelet.sock"), str(kubelet / "pods-api/pods-api.sock")}

    assert all("AF_UNIX" in text for name, text in calls if name == "connect")
    assert _paths(calls, "connect") == sockets
    # The same socket twice, the second time with a longer queue.
    assert len({text.partition("<")[2].partition(",")[0] for name, text in calls if name == "listen"}) == 1
    (bound,) = (text for name, text in calls if name == "bind")
    assert "127.0.0.1" in bound


def test_it_reads_two_files_of_processes(served: tuple[Path, list[tuple[str, str]]]) -> None:
    """The cgroup, and the line with the short name; no command line."""
    _, calls = served
    opened = _paths(calls, "openat")
    of_processes = {re.sub(r".*/proc/\d+/", "", path) for path in opened if re.search(r"/proc/\d+/", path)}

    assert of_processes == {"cgroup", "stat"}


def test_it_reads_the_documented_directories_of_the_node(served: tuple[Path, list[tuple[str, str]]]) -> None:
    """It does not try to open any other."""
    root, calls = served
    tried = map(Path, _paths(calls, "openat", tried=True))
    inside_node = {path.relative_to(root) for path in tried if path.is_relative_to(root)}
    text = (ROOT / "docs/security.md").read_text()
    documented = {Path(path) for path in re.findall(r"^\|[^|\n]*?`/([a-z][^`]*)`", text, re.MULTILINE)}

    assert {path.parts[0] for path in inside_node} >= {"proc", "sys", "usr", "var"}
    assert {
        path for path in inside_node if not any(path.is_relative_to(each) for each in documented)
    } == set()


def test_it_reads_its_own_files_outside_the_node(served: tuple[Path, list[tuple[str, str]]]) -> None:
    """Interpreter, libraries, sources, and the system's certificates, clock and randomness."""
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
