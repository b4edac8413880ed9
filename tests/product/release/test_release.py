"""A file, a signal or a label opens a release window, and the window closes again."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from exporter.kubernetes import Cluster
from exporter.kubernetes import cluster as cluster_module
from exporter.poll import release_window
from exporter.poll.release_window import Release
from tests.core.kubernetes.api import NODE, Api, api_server
from tests.waiting import wait_until_async


@pytest.fixture(autouse=True)
def _looks_are_frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_window, "CHECK_SECONDS", 0.01)
    # A busy machine must not end the wait for the first look or the first labels.
    monkeypatch.setattr(release_window, "FIRST_SECONDS", 600.0)
    monkeypatch.setattr(cluster_module, "FIRST_SECONDS", 600.0)


@asynccontextmanager
async def started(*sources, **bounds: float) -> AsyncIterator[Release]:
    """Run a release while the body runs."""
    release = Release(*sources, **bounds)
    await release.start()
    try:
        yield release
    finally:
        await release.close()


async def _reason_becomes(release: Release, reason: str) -> None:
    """Wait for the reason by the event that announces its changes."""
    while release.reason() != reason:
        await release.changed.wait()
        release.changed.clear()


async def test_without_a_request_there_is_no_reason() -> None:
    async with started() as release:
        assert release.reason() == ""
        assert not release.changed.is_set()


async def test_a_file_is_looked_for_once_a_thread_can_be_started(tmp_path: Path, monkeypatch, caplog) -> None:
    """A pod may have reached its limit of threads for a moment."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    file = tmp_path / "release"
    file.touch()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        patched.setattr(release_window, "FIRST_SECONDS", 0.1)
        release = Release(file)
        await release.start()
        assert release.reason() == ""
    await _reason_becomes(release, f"the file {file} exists")
    await release.close()
    assert [record.message for record in caplog.records if "thread" in record.message] == [
        "cannot look for the release file: can't start new thread"
    ]


async def test_a_file_opens_and_closes_the_window(tmp_path: Path, caplog) -> None:
    """The log has a line for each."""
    caplog.set_level(logging.INFO)
    file = tmp_path / "release"
    async with started(file) as release:
        assert release.reason() == ""
        file.touch()
        await _reason_becomes(release, f"the file {file} exists")
        file.unlink()
        await _reason_becomes(release, "")

    assert [record.message for record in caplog.records] == [
        f"driver released: the file {file} exists",
        "driver opened again",
    ]


async def test_a_file_is_seen_before_the_first_poll(tmp_path: Path) -> None:
    """A pod that starts within a window knows it, and the file may be a directory."""
    directory = tmp_path / "release"
    directory.mkdir()
    async with started(directory) as release:
        assert release.reason() == f"the file {directory} exists"


async def test_a_missing_directory_of_the_file_is_no_request(tmp_path: Path, caplog) -> None:
    """It is logged, because a file in a directory that nothing mounts releases nothing."""
    (tmp_path / "file").touch()
    for directory in (tmp_path / "none", tmp_path / "file"):
        caplog.clear()
        async with started(directory / "release") as release:
            assert release.reason() == ""
        assert [record.getMessage() for record in caplog.records] == [
            f"cannot look for the release file: the directory {directory} does not exist"
        ]


async def test_an_unreadable_path_is_logged_once_and_opens_no_window(
    tmp_path: Path, caplog, monkeypatch
) -> None:
    looks: list[Path] = []
    exists = release_window._exists
    monkeypatch.setattr(release_window, "_exists", lambda file: looks.append(file) or exists(file))
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    async with started(loop) as release:
        await wait_until_async(lambda: len(looks) > 3)
        assert release.reason() == ""

    (record,) = caplog.records
    assert "cannot look for the release file" in record.message
    assert str(loop) in record.message


async def test_signals_open_and_close_the_window() -> None:
    """SIGUSR1 releases the driver and SIGUSR2 opens it; waiters wake up at once."""
    async with started() as release:
        release.release()
        assert release.changed.is_set()
        assert release.reason() == "SIGUSR1 was received"
        release.changed.clear()
        release.reopen()
        assert release.changed.is_set()
        assert release.reason() == ""


async def test_the_window_of_a_signal_ends_without_the_second_signal(caplog) -> None:
    """The log has the reason."""
    async with started(by_signal=0.05) as release:
        release.release()
        await _reason_becomes(release, "")

    assert "did not end within 0.05 s (SIGUSR1 was received)" in caplog.text


async def test_a_second_signal_begins_a_new_window() -> None:
    """The end of the first window does not close the second."""
    async with started() as release:
        release.release()
        first = release._ends["signal"]
        await asyncio.sleep(0.01)
        release.release()

        assert first.cancelled()
        assert release._ends["signal"].when() > first.when()


async def test_the_driver_is_opened_once_nothing_requests_its_release(tmp_path: Path) -> None:
    file = tmp_path / "release"
    file.touch()
    async with started(file) as release:
        release.release()
        assert release.reason() == f"the file {file} exists"
        file.unlink()
        await _reason_becomes(release, "SIGUSR1 was received")
        release.reopen()
        assert release.reason() == ""


@asynccontextmanager
async def following_labels(api: Api, **bounds: float) -> AsyncIterator[Release]:
    """Run a release that follows the node's labels while the body runs."""
    async with started(None, **bounds) as release:
        cluster = Cluster(NODE, api.configure, release.set_labels)
        await cluster.start()
        try:
            yield release
        finally:
            await cluster.close()


async def test_labels_of_the_node_open_and_close_the_window() -> None:
    """Those that the MIG manager sets, also before the first poll."""
    async with api_server() as api:
        api.label(nvidia_com__mig_config_state="pending")
        async with following_labels(api) as release:
            assert release.reason() == "nvidia.com/mig.config.state is pending"
            await api.nodes.watching.wait()
            api.label(nvidia_com__mig_config_state="success")
            await _reason_becomes(release, "")


async def test_a_label_that_stays_expires() -> None:
    """A manager may die: its label counts for a while, and again once it changes; other labels may change."""
    state = "nvidia.com/mig.config.state"
    async with started(by_label=0.05) as release:
        release.set_labels({state: "pending"})
        assert release.reason() == f"{state} is pending"
        await _reason_becomes(release, "")
        release.set_labels({state: "pending", "unrelated": "1"})
        assert release.reason() == ""
        release.set_labels({state: "rebooting", "unrelated": "1"})
        assert release.reason() == f"{state} is rebooting"
