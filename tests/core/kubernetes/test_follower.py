"""The object of a node is followed through all failures of the API server."""

import logging
from collections.abc import AsyncIterator

import certifi
import pytest
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config.incluster_config import InClusterConfigLoader

from exporter.kubernetes import collection, follower
from exporter.kubernetes.cluster import object_of, read_node
from exporter.kubernetes.follower import Follower, Pace
from tests.core.kubernetes.api import NODE, Api, api_server
from tests.core.kubernetes.following import QUICK, Reported, following, messages, running
from tests.waiting import wait_until_async

ABOUT = f"the labels, annotations and devices of node {NODE}"


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """Run a server for one test."""
    async with api_server() as server:
        yield server


async def test_labels_are_reported_at_once_and_as_they_change(api: Api) -> None:
    async with following(api.configure) as reported:
        await reported.until(lambda labels: labels == [{"kubernetes.io/os": "linux"}])
        await api.nodes.watching.wait()
        api.label(nvidia_com__mig_config_state="pending")
        await reported.until(lambda labels: labels[-1] == {"nvidia.com/mig.config.state": "pending"})

    first, second = api.nodes.asked
    assert first == {"fieldSelector": f"metadata.name={NODE}"}
    assert second == first | {
        "watch": "True",
        "resourceVersion": "100",
        "allowWatchBookmarks": "True",
        "timeoutSeconds": "240",
    }


async def test_a_watch_that_ends_is_continued_from_its_last_version(api: Api, caplog) -> None:
    async with following(api.configure) as reported:
        await api.nodes.watching.wait()
        api.label(a="1")
        api.nodes.bookmark()
        api.nodes.end_watches()
        await reported.until(lambda labels: labels[-1] == {"a": "1"})
        await wait_until_async(lambda: len(api.nodes.asked) == 3)
        await api.nodes.watching.wait()
        api.label(a="2")
        await reported.until(lambda labels: labels[-1] == {"a": "2"})

    assert [query.get("resourceVersion") for query in api.nodes.asked] == [None, "100", "102"]
    assert caplog.records == []


async def test_an_expired_version_is_listed_again(api: Api, caplog) -> None:
    api.nodes.expired = True

    async with following(api.configure) as reported:
        await reported.until(lambda labels: len(labels) == 2)

    assert reported.labels == [{"kubernetes.io/os": "linux"}] * 2
    assert ["watch" in query for query in api.nodes.asked[:3]] == [False, True, False]
    assert caplog.records == []


async def test_a_refused_version_is_listed_again(api: Api) -> None:
    api.nodes.refuse_watch = 410

    async with following(api.configure) as reported:
        await reported.until(lambda labels: len(labels) == 3)


async def test_a_server_that_forgets_each_version_is_asked_less_and_less(api: Api, monkeypatch) -> None:
    """A list is dear for the server: what it forgets at once is not asked for at a steady pace."""
    api.nodes.refuse_watch = 410
    monkeypatch.setattr(follower, "LONGEST_PAUSE", 0.05)
    pauses: list[float] = []
    pause = Follower._pause_longer

    async def noted(self: Follower) -> None:
        pauses.append(self._pause)
        await pause(self)

    monkeypatch.setattr(Follower, "_pause_longer", noted)
    async with following(api.configure, Pace(first_pause=0.001)) as reported:
        await reported.until(lambda labels: len(labels) >= 8)

    assert pauses[:6] == pytest.approx([0.001 * 2**number for number in range(6)])


@pytest.mark.parametrize("attribute", ["refuse", "refuse_watch"])
async def test_a_missing_right_is_logged_once_until_it_is_granted(api: Api, caplog, attribute: str) -> None:
    caplog.set_level(logging.INFO)
    setattr(api.nodes, attribute, 403)

    async with following(api.configure) as reported:
        await wait_until_async(lambda: len(api.nodes.asked) > 4)
        (record,) = caplog.records
        assert f"cannot watch {ABOUT}" in record.message
        assert "let the service account list and watch nodes" in record.message
        setattr(api.nodes, attribute, 0)
        await api.nodes.watching.wait()
        api.label(a="1")
        await reported.until(lambda labels: labels[-1:] == [{"a": "1"}])

    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_a_server_that_does_not_answer_times_out(api: Api, caplog, monkeypatch) -> None:
    api.nodes.silent = True
    async with following(api.configure) as reported:
        with monkeypatch.context() as patched:
            patched.setattr(collection, "LIST_SECONDS", 0.05)
            await wait_until_async(lambda: len(api.nodes.asked) > 1)
        api.nodes.silent = False
        await reported.until(lambda labels: len(labels) == 1)

    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [f"cannot watch {ABOUT}: the API server does not answer in time; retrying"]


async def test_changes_while_the_server_was_away_are_reported(api: Api, caplog) -> None:
    """The log has a line for each kind of failure, and one for the recovery."""
    caplog.set_level(logging.INFO)

    async with following(api.configure) as reported:
        await api.nodes.watching.wait()
        await api.stop()
        api.label(a="1")
        await wait_until_async(lambda: any("Cannot connect" in record.message for record in caplog.records))
        await api.start()
        await reported.until(lambda labels: labels[-1] == {"a": "1"})
        await api.nodes.watching.wait()
        api.label(a="2")
        await reported.until(lambda labels: labels[-1] == {"a": "2"})

    assert len(caplog.records) <= 3
    assert messages(caplog.records)[-1] == f"INFO watching {ABOUT} again"


async def test_labels_are_dropped_when_the_server_stays_away(api: Api, caplog) -> None:
    api.label(nvidia_com__mig_config_state="pending")

    async with following(api.configure, Pace(first_pause=0.02, forget_after=0.3)) as reported:
        await api.nodes.watching.wait()
        await api.stop()
        await reported.until(lambda labels: labels[-1] is None)

    assert {"nvidia.com/mig.config.state": "pending"} in reported.labels
    assert f"dropped {ABOUT}" in caplog.text


async def test_quiet_objects_are_not_forgotten(api: Api) -> None:
    """A watch in which only bookmarks come, or that is renewed, proves that nothing changed."""
    reported = Reported()
    follower = Follower(object_of(NODE), read_node, reported, QUICK)
    async with running(follower, api.configure):
        await wait_until_async(lambda: follower.live)
        for renew in (api.nodes.bookmark, api.nodes.end_watches):
            end = follower._forgetting.when()
            renew()
            await wait_until_async(lambda end=end: follower._forgetting.when() > end)

    assert reported.labels == [{"kubernetes.io/os": "linux"}]


async def test_a_node_that_does_not_exist_has_no_labels(api: Api) -> None:
    api.nodes.objects.clear()
    async with following(api.configure) as reported:
        await reported.until(lambda labels: labels == [{}])
        await api.nodes.watching.wait()
        api.label(a="1")
        await reported.until(lambda labels: labels[-1] == {"a": "1"})
        api.nodes.delete("node")
        await reported.until(lambda labels: labels[-1] == {})


async def test_a_replaced_token_is_read_again(api: Api, tmp_path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    api.nodes.refuse = 401

    async def of_pod() -> Configuration:
        configuration = Configuration()
        environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
        loader = InClusterConfigLoader(str(token), certifi.where(), environ=environment)
        loader.load_and_set(configuration)
        configuration.host = api.url
        return configuration

    async with following(of_pod) as reported:
        await wait_until_async(lambda: "Bearer old" in api.tokens)
        token.write_text("new")
        await wait_until_async(lambda: "Bearer new" in api.tokens)
        api.nodes.refuse = 0
        await reported.until(lambda labels: len(labels) == 1)
