"""A file, a signal or a label opens a release window, and the window closes again."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from exporter.kubernetes import Cluster
from exporter.poll import release_window as release_module
from exporter.poll.release_window import Release
from tests.kubernetes.api import NODE, Api, api_server


@asynccontextmanager
async def started(*sources, **bounds: float) -> AsyncIterator[Release]:
    """Run a release while the body runs."""
    release = Release(*sources, **bounds)
    await release.start()
    try:
        yield release
    finally:
        await release.close()


async def _change(release: Release, reason: str) -> float:
    """Wait until the reason is the given one; return how many seconds it took."""
    began = time.monotonic()
    async with asyncio.timeout(5):
        while release.reason() != reason:
            await release.changed.wait()
            release.changed.clear()
    return time.monotonic() - began


async def test_nobody_asks() -> None:
    """Without a file, a signal or labels there is no reason, and nothing to wait for."""
    async with started() as release:
        assert release.reason() == ""
        assert not release.changed.is_set()


async def test_a_file_is_looked_for_once_a_thread_can_be_started(tmp_path: Path, monkeypatch, caplog) -> None:
    """Where a pod has as many threads as it may have, for a moment, the window opens afterwards."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    file = tmp_path / "release"
    file.touch()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        patched.setattr(release_module, "FIRST_SECONDS", 0.1)
        release = Release(file)
        await release.start()
        assert release.reason() == ""
    await _change(release, f"the file {file} exists")
    await release.close()
    assert [record.message for record in caplog.records if "thread" in record.message] == [
        "cannot look for the release file: can't start new thread"
    ]


@pytest.mark.slow
async def test_a_file_opens_and_closes_the_window(tmp_path: Path, caplog) -> None:
    """Within a second of its making the file is seen, and of its removal; the log has a line for each."""
    caplog.set_level(logging.INFO)
    file = tmp_path / "release"
    async with started(file) as release:
        assert release.reason() == ""
        file.touch()
        assert await _change(release, f"the file {file} exists") < 1
        file.unlink()
        assert await _change(release, "") < 1

    assert [record.message for record in caplog.records] == [
        f"driver released: the file {file} exists",
        "driver opened again",
    ]


async def test_a_file_is_seen_before_the_first_poll(tmp_path: Path) -> None:
    """A pod that starts within a window knows it once it has started, whatever the file is."""
    directory = tmp_path / "release"
    directory.mkdir()
    async with started(directory) as release:
        assert release.reason() == f"the file {directory} exists"


async def test_a_file_in_a_directory_that_is_not_there(tmp_path: Path, caplog) -> None:
    """Nobody needs to make the directory before there is something to ask for."""
    (tmp_path / "file").touch()
    for missing in (tmp_path / "none" / "release", tmp_path / "file" / "release"):
        async with started(missing) as release:
            assert release.reason() == ""

    assert caplog.records == []


async def test_a_path_that_cannot_be_looked_at_is_told_once(tmp_path: Path, caplog, monkeypatch) -> None:
    """An error other than absence opens no window; one line tells it however often it is met."""
    monkeypatch.setattr("exporter.poll.release_window.LOOK_SECONDS", 0.01)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    async with started(loop) as release:
        await asyncio.sleep(0.1)
        assert release.reason() == ""

    (record,) = caplog.records
    assert "cannot look for the release file" in record.message
    assert str(loop) in record.message


async def test_signals_open_and_close_the_window() -> None:
    """SIGUSR1 gives up and SIGUSR2 takes again, each seen at once by who waits."""
    async with started() as release:
        release.release()
        assert release.changed.is_set()
        assert release.reason() == "SIGUSR1 was received"
        release.changed.clear()
        release.reopen()
        assert release.changed.is_set()
        assert release.reason() == ""


async def test_a_forgotten_signal_ends_by_itself(caplog) -> None:
    """Who never sends SIGUSR2 does not leave the exporter blind for ever, and finds why in the log."""
    async with started(by_signal=0.05) as release:
        release.release()
        assert 0.04 < await _change(release, "") < 1

    assert "did not end within 0.05 s (SIGUSR1 was received)" in caplog.text


async def test_a_second_signal_begins_a_new_window() -> None:
    """SIGUSR1 again means from now on; the end of the first window does not close the second."""
    async with started(by_signal=0.2) as release:
        release.release()
        await asyncio.sleep(0.1)
        release.release()
        assert await _change(release, "") > 0.15


async def test_the_driver_is_taken_when_nobody_wants_it_any_more(tmp_path: Path) -> None:
    """Two who ask at once both have to let go."""
    file = tmp_path / "release"
    file.touch()
    async with started(file) as release:
        release.release()
        assert release.reason() == f"the file {file} exists"
        file.unlink()
        await _change(release, "SIGUSR1 was received")
        release.reopen()
        assert release.reason() == ""


@asynccontextmanager
async def told_by(api: Api, **bounds: float) -> AsyncIterator[Release]:
    """Run a release that hears of the node's labels while the body runs."""
    async with started(None, **bounds) as release:
        cluster = Cluster(NODE, api.configure, release.set_labels)
        await cluster.start()
        try:
            yield release
        finally:
            await cluster.close()


async def test_labels_of_the_node_open_and_close_the_window() -> None:
    """What the MIG manager writes on the node is obeyed within a second, from the start on."""
    async with api_server() as api:
        api.label(nvidia_com__mig_config_state="pending")
        async with told_by(api) as release:
            assert release.reason() == "nvidia.com/mig.config.state is pending"
            await api.nodes.watching.wait()
            api.label(nvidia_com__mig_config_state="success")
            assert await _change(release, "") < 1


async def test_a_label_that_stays_does_not_blind_for_ever() -> None:
    """A manager may die at its work: its label counts for a while, and again once it changes."""
    async with api_server() as api:
        api.label(nvidia_com__mig_config_state="pending")
        async with told_by(api, by_label=0.2) as release:
            assert await _change(release, "") < 1
            await api.nodes.watching.wait()
            api.label(nvidia_com__mig_config_state="pending", unrelated="1")
            api.label(nvidia_com__mig_config_state="rebooting")
            assert await _change(release, "nvidia.com/mig.config.state is rebooting") < 1
