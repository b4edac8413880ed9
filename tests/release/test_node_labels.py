"""The labels of one node are followed through whatever an API server does."""

import asyncio
import logging
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import certifi
import pytest
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config.incluster_config import InClusterConfigLoader

from exporter.release import NodeLabels, node_labels
from tests.release.api import NODE, Api, api_server


class Told:
    """What was told, in order."""

    def __init__(self) -> None:
        self.labels: list[dict[str, str]] = []
        self._news = asyncio.Event()

    def __call__(self, labels) -> None:
        """Hear of labels."""
        self.labels.append(dict(labels))
        self._news.set()

    async def until(self, told: Callable[[list], bool], seconds: float = 5.0) -> None:
        """Wait until what was told so far is enough."""
        async with asyncio.timeout(seconds):
            while not told(self.labels):
                self._news.clear()
                await self._news.wait()


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """Run a server for one test."""
    async with api_server() as server:
        yield server


@asynccontextmanager
async def following(configure: Callable[[], Configuration], **options: float) -> AsyncIterator[Told]:
    """Follow the node while the body runs."""
    told = Told()
    labels = NodeLabels(NODE, configure, **{"first_pause": 0.02} | options)
    task = asyncio.create_task(labels.run(told))
    try:
        yield told
        assert not task.done()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_labels_are_told_at_once_and_as_they_change(api: Api) -> None:
    """The labels of now come first, each change within a second, and nodes are asked for by name."""
    async with following(api.configure) as told:
        await told.until(lambda labels: labels == [{"kubernetes.io/os": "linux"}])
        await api.watching.wait()
        started = time.monotonic()
        api.label(nvidia_com__mig_config_state="pending")
        await told.until(lambda labels: labels[-1] == {"nvidia.com/mig.config.state": "pending"})
        assert time.monotonic() - started < 1

    first, second = api.asked
    assert first == {"fieldSelector": f"metadata.name={NODE}"}
    assert second == first | {
        "watch": "True",
        "resourceVersion": "100",
        "allowWatchBookmarks": "True",
        "timeoutSeconds": "240",
    }


async def test_a_watch_that_ends_is_taken_up_where_it_ended(api: Api, caplog) -> None:
    """No second list is needed, bookmarks count, and the log stays empty."""
    async with following(api.configure) as told:
        await api.watching.wait()
        api.label(a="1")
        api.bookmark()
        api.end_watches()
        await told.until(lambda labels: labels[-1] == {"a": "1"})
        await _until(lambda: len(api.asked) == 3)
        await api.watching.wait()
        api.label(a="2")
        await told.until(lambda labels: labels[-1] == {"a": "2"})

    assert [query.get("resourceVersion") for query in api.asked] == [None, "100", "102"]
    assert caplog.records == []


async def test_what_the_server_has_forgotten_is_listed_anew(api: Api, caplog) -> None:
    """After an expired version the labels come from a new list, without a word in the log."""
    api.expired = True

    async with following(api.configure) as told:
        await told.until(lambda labels: len(labels) == 2)

    assert told.labels == [{"kubernetes.io/os": "linux"}] * 2
    assert ["watch" in query for query in api.asked[:3]] == [False, True, False]
    assert caplog.records == []


async def test_a_refused_version_is_listed_anew(api: Api) -> None:
    """A server may refuse an expired version by its status as well."""
    api.refuse_watch = 410

    async with following(api.configure) as told:
        await told.until(lambda labels: len(labels) == 3)


@pytest.mark.parametrize("attribute", ["refuse", "refuse_watch"])
async def test_a_missing_right_is_told_once(api: Api, caplog, attribute: str) -> None:
    """Without the right to list, or to watch, one line says what to do, and granting it mends it."""
    caplog.set_level(logging.INFO)
    setattr(api, attribute, 403)

    async with following(api.configure) as told:
        await _until(lambda: len(api.asked) > 4)
        (record,) = caplog.records
        assert f"node {NODE} are not followed" in record.message
        assert "let the service account list and watch nodes" in record.message
        setattr(api, attribute, 0)
        await api.watching.wait()
        api.label(a="1")
        await told.until(lambda labels: labels[-1:] == [{"a": "1"}])

    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_a_server_that_does_not_answer_is_left_in_time(api: Api, caplog, monkeypatch) -> None:
    """A connection that says nothing is given up, and the log says so in words."""
    monkeypatch.setattr(node_labels, "_LIST_SECONDS", 0.05)
    api.silent = True
    async with following(api.configure) as told:
        await _until(lambda: len(api.asked) > 1)
        api.silent = False
        await told.until(lambda labels: len(labels) == 1)

    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        f"the labels of node {NODE} are not followed: the API server does not answer in time"
    ]


async def test_a_server_that_was_away_is_found_again(api: Api, caplog) -> None:
    """What changed meanwhile is told; the log has a line for each way of being away, and for the end."""
    caplog.set_level(logging.INFO)

    async with following(api.configure) as told:
        await api.watching.wait()
        await api.stop()
        api.label(a="1")
        await _until(lambda: any("Cannot connect" in record.message for record in caplog.records))
        await api.start()
        await told.until(lambda labels: labels[-1] == {"a": "1"})
        await api.watching.wait()
        api.label(a="2")
        await told.until(lambda labels: labels[-1] == {"a": "2"})

    assert len(caplog.records) <= 3
    assert caplog.records[-1].message == f"the labels of node {NODE} are followed again"


async def test_labels_of_a_server_that_stays_away_are_forgotten(api: Api, caplog) -> None:
    """After a while what was known is no reason any more, and the log says so."""
    api.label(nvidia_com__mig_config_state="pending")

    async with following(api.configure, forget_after=0.3) as told:
        await api.watching.wait()
        await api.stop()
        await told.until(lambda labels: labels[-1] == {})

    assert [labels for labels in told.labels if labels] == [{"nvidia.com/mig.config.state": "pending"}]
    assert "are forgotten" in caplog.text


async def test_quiet_labels_are_not_forgotten(api: Api) -> None:
    """A watch in which only bookmarks come, or that is renewed, proves that nothing changed."""
    async with following(api.configure, forget_after=0.5) as told:
        await api.watching.wait()
        for _ in range(7):
            await asyncio.sleep(0.1)
            api.bookmark()
        api.end_watches()
        await _until(lambda: len(api.asked) == 3)

    assert told.labels == [{"kubernetes.io/os": "linux"}]


async def test_a_node_that_does_not_exist_has_no_labels(api: Api) -> None:
    """A wrong name, or a node that is deleted, is no error; it asks for nothing."""
    api.labels = None
    async with following(api.configure) as told:
        await told.until(lambda labels: labels == [{}])
        await api.watching.wait()
        api.label(a="1")
        await told.until(lambda labels: labels[-1] == {"a": "1"})
        api.delete()
        await told.until(lambda labels: labels[-1] == {})


async def test_a_token_that_was_replaced_is_read_anew(api: Api, tmp_path) -> None:
    """A pod's token is a file; after the old token was refused the new one is sent."""
    token = tmp_path / "token"
    token.write_text("old")
    api.refuse = 401

    def of_pod() -> Configuration:
        configuration = Configuration()
        environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
        loader = InClusterConfigLoader(str(token), certifi.where(), environ=environment)
        loader.load_and_set(configuration)
        configuration.host = api.configure().host
        return configuration

    async with following(of_pod) as told:
        await _until(lambda: "Bearer old" in api.tokens)
        token.write_text("new")
        api.refuse = 0
        await told.until(lambda labels: len(labels) == 1)

    assert api.tokens[-1] == "Bearer new"


async def test_outside_a_pod_one_line_says_so(caplog, monkeypatch) -> None:
    """Without a cluster around it the exporter goes on without labels."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    task = asyncio.create_task(NodeLabels(NODE, first_pause=0.02).run(Told()))
    await _until(lambda: bool(caplog.records))
    await asyncio.sleep(0.1)
    task.cancel()

    (record,) = caplog.records
    assert "Service host/port is not set" in record.message


def test_without_the_extra_one_line_says_what_to_install() -> None:
    """Where the client is not installed, following ends at once and nothing else does."""
    code = (
        "import asyncio, sys\n"
        "sys.modules['kubernetes_asyncio'] = None\n"
        "from exporter.release import NodeLabels\n"
        "asyncio.run(NodeLabels('node').run(print))\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout == ""
    assert done.stderr.count("install gpuslice-exporter[kubernetes]") == 1


def test_the_client_is_not_imported_before_it_is_needed() -> None:
    """Who does not follow labels pays nothing for the client."""
    code = "import sys, exporter.release; print([name for name in sys.modules if 'kubernetes' in name])"

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout == "[]\n"


async def _until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not done():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)
