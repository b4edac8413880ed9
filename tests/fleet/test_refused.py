"""What a Prometheus refuses to answer is not known: it is no 0, nobody and nothing."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from exporter.fleet import Fleet, IdleTotals, attention
from exporter.fleet.inspection import Inspection, inspect, inspection_json, inspection_text
from exporter.fleet.queries import Answers
from exporter.fleet.rendering import fleet_json, fleet_text
from exporter.fleet.targets import MissingSeriesError, NodeLinks
from exporter.fleet.watch import FleetRead, read_fleet
from exporter.formats.wording import UNKNOWN
from exporter.prometheus import Prometheus, Sample
from exporter.web.cluster.fleet_page import FleetScene, fleet_drawing
from exporter.web.cluster.fleet_tables import Orders
from exporter.web.html import page
from tests.commands.program import run
from tests.fleet.answering import AT, Samples, answering, nodes

WHY = "query processing would load too many samples"
TARGET = {"job": "gpus", "instance": "n1:9836"}
NODE = {"node": "n1"}
GPU = {**TARGET, **NODE, "gpu": "0", "uuid": "GPU-1"}
VALUES = ("containers", "slices", "held_gpus", "held_bytes", "used_gpus", "used_bytes")
HOLDER = {**GPU, "namespace": "ml", "pod": "train-0", "container": "main"}


@contextmanager
def _refusing(pattern: str) -> Iterator[str]:
    """Tell of a node with one sick GPU that one idle container holds, and refuse what matches."""

    def answer(expression: str) -> Samples | str:
        there = nodes(expression, "n1")
        if there is not None:
            return there
        return WHY if re.search(pattern, expression) else _told(expression)

    with answering(answer) as url:
        yield url


def _told(expression: str) -> Samples:
    namespace = {"namespace": "ml"}
    answers: dict[str, Samples] = {
        "node:gpuslice_known_containers": [({**NODE, "value": value}, 1.0) for value in VALUES],
        "namespace:gpuslice_known_containers": [({**namespace, "value": value}, 1.0) for value in VALUES],
        "node:gpuslice_known_gpus": [
            ({**NODE, "value": value}, 1.0) for value in ("total_bytes", "holders", "offered_slices")
        ],
        "node:gpuslice_total_gpus": [({**NODE, "model": "T4"}, 1.0)],
        "node:gpuslice_sharing": [({**NODE, "sharing": "exclusive"}, 1.0)],
        r"node:|max by \(cluster, node\)": [(NODE, 1.0)],
        r"namespace:|sum by \(namespace": [(namespace, 1.0)],
        r"sum\(node:": [({}, 1.0)],
        r"topk\(\d+, gpu:gpuslice_raised_condition": [({**GPU, "condition": "needs_reset"}, 1.0)],
        r"gpu:gpuslice_model:info|gpuslice_gpu_info": [({**GPU, "model": "T4", "sharing": "exclusive"}, 1.0)],
        "container:gpuslice_largest_idle_seconds": [(HOLDER, 900.0)],
        "container:|gpuslice_container_": [(HOLDER, 1.0)],
    }
    return next((found for pattern, found in answers.items() if re.match(pattern, expression)), [])


async def _fleet(pattern: str) -> Fleet:
    with _refusing(pattern) as url:
        prometheus = Prometheus(url, deadline=5)
        fleet = await read_fleet(prometheus, 3600)
        await prometheus.close()
    return fleet


async def _inspection(pattern: str) -> Inspection:
    with _refusing(pattern) as url:
        prometheus = Prometheus(url, deadline=5)
        found = await inspect(prometheus, ("n1",), details=True, idle_after=600)
        await prometheus.close()
    return found


def _html(fleet: Fleet) -> str:
    look = FleetRead(fleet=fleet, read_at=AT, reads=1)
    return page(fleet_drawing(FleetScene(look, AT, NodeLinks(), Orders())), "")


def _seen(fleet: Fleet) -> str:
    """Give what a person reads on the page."""
    return " ".join(re.sub(r"<[^>]+>", " ", _html(fleet)).split())


async def test_what_is_answered_is_there() -> None:
    """Where nothing is refused all of it is told."""
    fleet = await _fleet("nothing like this")
    told = _seen(fleet)

    assert fleet.problems == ()
    for words in (
        "1 namespace",
        "1 unhealthy GPU and 1 idle holder",
        "by 1 holder in 1 namespace",
        "train-0",
    ):
        assert words in told
    assert "could not be queried" not in told
    assert fleet_json(fleet)["nodes"][0]["models"] == {"T4": 1}


async def test_sick_and_idle_that_are_refused_are_not_nothing() -> None:
    """Where neither could be asked, the page does not say that there is nothing to look at."""
    fleet = await _fleet(r"^topk|^sum\(node:|largest_idle")
    told, document = _seen(fleet), fleet_json(fleet)

    assert f"Needs attention {UNKNOWN}" in told
    assert re.search("<h2>Needs attention</h2>[^/]+the query for this failed", _html(fleet))
    assert "incomplete: unhealthy GPUs, idle holders" in told
    assert "Unhealthy GPUs are not known." in told
    assert "Idle holders could not be queried." in told
    assert "Nobody" not in told
    assert document["sick_gpus"] is document["idle_holders"]["listed"] is None
    assert document["idle_holders"]["holders"] is None
    for line in ("Idle holders are not known.", "Unhealthy GPUs are not known."):
        assert line in fleet_text(fleet)


async def test_what_is_known_in_part_is_a_least_number() -> None:
    """One sign that is refused, and holders that are listed and were not counted, leave what was found."""
    fleet = await _fleet(r"recent_xid|^sum\(node:gpuslice_idle_holders")
    told = _seen(fleet)

    assert "≥ 1 unhealthy GPUs and ≥ 1 idle holders" in told
    assert "Other unhealthy GPUs are not known." in told
    assert "The number of other idle holders is not known." in told
    assert fleet.idle_totals == IdleTotals(None, 1.0)
    assert fleet_json(fleet)["sick_gpus"][0]["uuid"] == "GPU-1"


async def test_what_an_idle_holder_holds_may_be_refused() -> None:
    """It stays on the list, without these values."""
    fleet = await _fleet("^container:gpuslice_(held_gpus|used_bytes)")
    (each,) = fleet.idle or ()

    assert (each.seconds, each.memory_used, each.compute_held) == (900.0, None, None)
    row = _html(fleet).partition('id="idle"')[2].partition("</section>")[0]
    assert "train-0" in row
    assert row.count("the query for this failed") == 2
    assert "train-0" in fleet_text(fleet)


async def test_namespaces_that_are_refused_are_not_none() -> None:
    """Their number is a dash, and so is that of all holders."""
    fleet = await _fleet("^namespace:gpuslice_known_containers")
    told = _seen(fleet)

    assert f"{UNKNOWN} namespaces" in told
    assert "holders could not be queried" in told
    assert "Namespaces that hold GPUs could not be queried." in told
    assert fleet_json(fleet)["namespaces"] is None
    assert "Namespaces that hold GPUs are not known." in fleet_text(fleet)


async def test_who_holds_may_be_refused_where_who_uses_is_known() -> None:
    """Holders of a namespace are not those who use a GPU without holding it."""
    fleet = await _fleet("^namespace:gpuslice_holders")

    assert fleet_json(fleet)["namespaces"][0]["holders"] is None
    assert f"by {UNKNOWN} holders in 1 namespace" in _seen(fleet)


async def test_models_that_are_refused_are_not_known() -> None:
    """A node whose GPUs could not be named has no empty list of them."""
    (node,) = fleet_json(await _fleet("total_gpus|sharing:count|driver_released"))["nodes"]

    assert node["models"] is node["sharing"] is node["driver_released"] is None


async def test_inspect_says_that_gpus_could_not_be_asked() -> None:
    """A node whose GPUs are refused is not one without GPUs, and their holders are not nobody."""
    found = await _inspection("^gpuslice_gpu_info")
    told = inspection_text(found, details=True)

    assert "its GPUs could not be queried" in told
    assert "Holders could not be queried on n1." in told
    assert "No pod" not in told
    assert inspection_json(found, details=True)["nodes"][0]["devices"] is None


async def test_inspect_says_that_holders_could_not_be_asked() -> None:
    """The GPUs are told, and their holders are null."""
    found = await _inspection("^gpuslice_container_info")
    told = inspection_text(found, details=True)

    assert "T4" in told
    assert "Holders could not be queried on n1." in told
    (gpu,) = inspection_json(found, details=True)["nodes"][0]["devices"]
    assert gpu["holders"] is None


async def test_a_state_that_stands_on_what_was_refused_is_not_known() -> None:
    """Who could not be asked for its slices may be one without a slice, and is not called active."""
    found = await _inspection("^gpuslice_container_slices")
    (gpu,) = inspection_json(found, details=True)["nodes"][0]["devices"]

    assert [holder["state"] for holder in gpu["holders"]] == ["unknown"]


@pytest.mark.parametrize(("pattern", "code"), [("nothing like this", 0), ("^gpuslice_gpu_up", 1)])
def test_inspect_ends_with_a_code_that_tells_of_questions_that_failed(pattern: str, code: int) -> None:
    """What could be asked is printed all the same."""
    with _refusing(pattern) as url:
        done = run("inspect", "n1", "--prometheus-url", url)

    assert (done.returncode, done.stderr) == (code, "")
    assert "Total: 1 node" in done.stdout
    assert ("! not known" in done.stdout) == bool(code)


def test_a_sign_with_as_many_gpus_as_are_listed_may_have_more() -> None:
    """Prometheus is asked for so many rows of each sign, so their number is a least one."""
    rows = [Sample({"uuid": f"GPU-{number}"}, 1.0) for number in range(attention.SICK_LISTED)]
    told = {"unhealthy GPUs": [Sample({}, 250.0)]}

    assert not attention.is_whole(Answers(told | {"conditions": rows}, {}))
    assert attention.is_whole(Answers(told | {"conditions": rows[1:]}, {}))
    assert not attention.is_whole(Answers(told | {"conditions": rows[1:]}, {"XID errors": WHY}))


@pytest.mark.parametrize("told", [{}, {"unhealthy GPUs": [Sample({}, 1.0)]}], ids=["no record", "not listed"])
def test_no_rows_of_sick_gpus_are_not_no_sick_gpus(told: dict[str, list[Sample]]) -> None:
    """Where their number is not recorded, or there are some, an empty list is not all of them."""
    assert not attention.is_whole(Answers(told, {}))
    assert attention.is_whole(Answers({"unhealthy GPUs": [Sample({}, 0.0)]}, {}))


async def test_a_prometheus_without_the_rules_is_no_empty_cluster() -> None:
    """Nodes answer, and nothing is recorded of them: that is said with the remedy, and no figure is shown."""

    def answer(expression: str) -> Samples:
        return [] if "exporters:count" in expression else nodes(expression, "n1") or []

    with answering(answer) as url:
        prometheus = Prometheus(url, deadline=5)
        with pytest.raises(MissingSeriesError, match="load alerts/rules/gpuslice-recording"):
            await read_fleet(prometheus, 3600)
        await prometheus.close()
        done = run("inspect", "--prometheus-url", url)

    assert (done.returncode, done.stdout) == (1, "")
    assert "has no records of gpuslice-exporter: load alerts/rules/gpuslice-recording.yaml" in done.stderr


async def test_a_node_without_records_has_no_values() -> None:
    """It was scraped, and the rules were not evaluated since: only its GPUs are counted."""

    def answer(expression: str) -> Samples:
        there = nodes(expression, "n1")
        if there is not None:
            return there
        return [(NODE, 8.0)] if "gpuslice_node_gpus" in expression else []

    with answering(answer) as url:
        prometheus = Prometheus(url, deadline=5)
        (node,) = (await read_fleet(prometheus, 3600)).nodes
        await prometheus.close()

    assert node.gpus.value == 8
    unknown = (node.memory_total, *node.memory, *node.compute, node.slices.held, node.slices.offered)
    assert {amount.value for amount in unknown} == {None}
