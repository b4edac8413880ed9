"""Each way in which the kubelet can fail to answer has one reason and one clear message."""

import asyncio
import gc
import math
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from exporter.demo.fake_kubelet import FakeKubelet
from podresources import channel
from podresources.channel import REMEDIES, KubeletError
from podresources.client import PodResourcesApi
from tests.core.podresources.support import ByteServer
from tests.waiting import wait_until_async

SETTINGS = bytes.fromhex("000000040000000000")  # an empty HTTP/2 SETTINGS frame
READ_AS_NOBODY = """
import asyncio, os, sys
from pathlib import Path
from podresources.client import PodResourcesApi
from podresources.channel import KubeletError
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    asyncio.run(PodResourcesApi(Path(sys.argv[1])).read())
except KubeletError as error:
    print(error.reason)
"""


async def failure(path: Path, *, timeout: float = 100.0) -> KubeletError:  # noqa: ASYNC109 - the client's
    """Read from ``path``, check the message of the error, and return the error."""
    with pytest.raises(KubeletError) as caught:
        await PodResourcesApi(path, timeout=timeout).read()
    assert str(path) in str(caught.value)
    assert REMEDIES[caught.value.reason] in str(caught.value)
    return caught.value


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """Return a directory that any user may enter, unlike those of tmp_path."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


async def test_absent(tmp_path: Path) -> None:
    for path in ("kubelet.sock", "a/b/kubelet.sock", "x" * 120 + "/kubelet.sock", "x" * 200):
        assert (await failure(tmp_path / path)).reason == "absent"


async def test_a_directory_or_file_in_place_of_the_socket(tmp_path: Path) -> None:
    """As a wrong mount makes it."""
    file = tmp_path / "file"
    file.touch()
    for path in (tmp_path, file):
        assert "not a socket" in str(await failure(path))
    assert (await failure(file / "kubelet.sock")).reason == "absent"


async def test_symbolic_links(kubelet: FakeKubelet, tmp_path: Path) -> None:
    link, circle = tmp_path / "link", tmp_path / "circle"
    link.symlink_to(kubelet.socket)
    circle.symlink_to(circle)
    assert len((await PodResourcesApi(link).read()).allocated) == 2
    assert (await failure(circle)).reason == "absent"


async def test_a_socket_without_a_listener_is_unavailable(kubelet: FakeKubelet) -> None:
    await kubelet.stop()
    assert kubelet.socket.is_socket()
    assert (await failure(kubelet.socket)).reason == "unavailable"


async def test_a_kubelet_that_hangs_is_reachable_and_a_socket_without_a_listener_is_not(
    kubelet: FakeKubelet, tmp_path: Path
) -> None:
    hung, absent = PodResourcesApi(kubelet.socket, timeout=0.1), PodResourcesApi(tmp_path / "absent.sock")
    kubelet.delay = math.inf
    for reader, unreachable in ((hung, False), (absent, True)):
        with pytest.raises(KubeletError):
            await reader.read()
        assert reader.unreachable is unreachable
    kubelet.delay = 0
    await kubelet.stop()
    client = PodResourcesApi(kubelet.socket)
    # The second read begins without grpc.
    for _ in range(2):
        with pytest.raises(KubeletError) as caught:
            await client.read()
        assert (caught.value.reason, client.unreachable) == ("unavailable", True)
    await kubelet.start()
    assert len((await client.read()).allocated) == 2
    assert not client.unreachable


@pytest.mark.slow
@pytest.mark.parametrize("listens", [False, True])
async def test_a_failed_read_leaves_no_connection(tmp_path: Path, *, listens: bool) -> None:
    """Its channel ends with it, not at a later collection of garbage: grpc would connect again meanwhile."""
    path = tmp_path / "silent.sock"
    gc.disable()
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.setblocking(False)
            server.bind(os.fspath(path))
            if listens:
                server.listen()
            await failure(path, timeout=0.1)
            if listens:
                with server.accept()[0] as connection:
                    connection.setblocking(True)
                    await asyncio.to_thread(until_end, connection)
            else:
                server.listen()
            await asyncio.sleep(2)
            with pytest.raises(BlockingIOError):
                server.accept()
    finally:
        gc.enable()


def until_end(connection: socket.socket) -> None:
    """Read until the other side closes."""
    while connection.recv(1 << 16):
        pass


async def test_killed_while_answering(kubelet: FakeKubelet) -> None:
    kubelet.delay = math.inf
    failed = asyncio.ensure_future(failure(kubelet.socket))
    await wait_until_async(lambda: kubelet.calls["List"])
    await kubelet.stop()
    assert (await failed).reason == "unavailable"


async def test_permission(open_directory: Path) -> None:
    kubelet = FakeKubelet(open_directory)
    await kubelet.start()
    kubelet.socket.parent.chmod(0o755)
    kubelet.socket.chmod(0o555)
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", READ_AS_NOBODY, kubelet.socket, stdout=subprocess.PIPE
    )
    reason, _ = await child.communicate()
    await kubelet.stop()
    assert reason == b"permission\n"


async def test_hang(kubelet: FakeKubelet) -> None:
    kubelet.delay = math.inf
    assert (await failure(kubelet.socket, timeout=0.1)).reason == "deadline"


async def test_no_time(kubelet: FakeKubelet) -> None:
    assert (await failure(kubelet.socket, timeout=0.0)).reason == "deadline"
    assert not kubelet.calls


async def test_a_silent_server_ends_at_the_deadline_and_one_with_a_full_queue_is_unavailable(
    tmp_path: Path,
) -> None:
    path = tmp_path / "silent.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.fspath(path))
        server.listen(0)
        assert (await failure(path, timeout=0.1)).reason == "deadline"
        assert (await failure(path)).reason == "unavailable"


async def test_other_protocol(tmp_path: Path, serve_bytes: ByteServer) -> None:
    path = tmp_path / "web.sock"
    await serve_bytes(path, b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    assert (await failure(path)).reason == "unavailable"


async def test_the_authority_is_localhost_and_not_the_path(tmp_path: Path, serve_bytes: ByteServer) -> None:
    path = tmp_path / "strict.sock"
    heard = await serve_bytes(path, SETTINGS)
    reading = asyncio.ensure_future(PodResourcesApi(path).read())
    await wait_until_async(lambda: b"/v1.PodResourcesLister/List" in heard and b"localhost" in heard)
    reading.cancel()
    assert b"strict.sock" not in heard


async def test_a_rate_limited_call_is_tried_three_times(kubelet: FakeKubelet) -> None:
    kubelet.rate_limited = True
    assert (await failure(kubelet.socket)).reason == "rate_limited"
    assert kubelet.calls == {"List": 3}


async def test_rate_limit_passes(kubelet: FakeKubelet) -> None:
    kubelet.rate_limited = True
    misbehave = kubelet._misbehave

    async def reject_first(method: str, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        kubelet.rate_limited = kubelet.calls["List"] == 1
        await misbehave(method, context)

    kubelet._misbehave = reject_first
    assert len((await PodResourcesApi(kubelet.socket).read()).allocated) == 2
    assert kubelet.calls["List"] == 2


async def test_a_pause_that_would_outlast_the_deadline_is_not_begun(
    kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelet.rate_limited = True
    monkeypatch.setattr(channel, "_PAUSES", (3600.0,))
    assert (await failure(kubelet.socket)).reason == "rate_limited"
    assert kubelet.calls == {"List": 1}


async def test_too_large(kubelet: FakeKubelet) -> None:
    kubelet.padding_bytes = 33 << 20
    assert (await failure(kubelet.socket)).reason == "too_large"
    assert kubelet.calls == {"List": 1}


@pytest.mark.parametrize(
    ("code", "details", "reason"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit", "rate_limited"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "", "rate_limited"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max (5 vs. 4)", "too_large"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "grpc: trying to send message larger than max", "too_large"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "gRPC message exceeds maximum size 4: 5", "too_large"),
        (grpc.StatusCode.FAILED_PRECONDITION, "not synced", "not_ready"),
        (grpc.StatusCode.UNAVAILABLE, "shutting down", "unavailable"),
        (grpc.StatusCode.CANCELLED, "", "unavailable"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "", "deadline"),
        (grpc.StatusCode.PERMISSION_DENIED, "no", "permission"),
        (grpc.StatusCode.UNIMPLEMENTED, "unknown service", "unimplemented"),
        (grpc.StatusCode.UNKNOWN, "failed to list", "internal"),
        (grpc.StatusCode.INTERNAL, "bug\nin\tlines " + "x" * 999, "internal"),
    ],
)
async def test_statuses(kubelet: FakeKubelet, code: grpc.StatusCode, details: str, reason: str) -> None:
    """Each status has its reason, and its details become one short line."""
    kubelet.errors = {"List": (code, details)}
    error = await failure(kubelet.socket)
    assert error.reason == reason
    assert len(str(error)) < 600
    assert "\n" not in str(error)


async def test_garbage(kubelet: FakeKubelet) -> None:
    kubelet.garbage = frozenset({"List"})
    assert (await failure(kubelet.socket)).reason == "malformed"


async def test_wrong_socket(kubelet: FakeKubelet) -> None:
    assert (await failure(kubelet.pods_socket)).reason == "unimplemented"
