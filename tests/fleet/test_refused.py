"""What Prometheus refuses to answer is shown as unknown, not as 0 or as an empty list."""

import asyncio
import re

import pytest

from exporter.fleet.amounts import UNKNOWN_AMOUNT, Amount
from exporter.fleet.json_data import fleet_json, inspection_json
from exporter.fleet.model import Fleet, Node
from exporter.fleet.prometheus import Sample
from exporter.fleet.queries import Answers
from exporter.fleet.sick_and_idle import SICK_LISTED, lists_all_sick
from exporter.fleet.targets import MissingSeriesError
from exporter.fleet.text import fleet_text, inspection_text
from exporter.fleet.watch import FleetRead, read_fleet
from exporter.wording import UNKNOWN
from tests.core.commands.program import run
from tests.fleet.answering import (
    AT,
    GPU,
    HOLDER,
    NODE,
    Answer,
    Samples,
    answering,
    connected,
    inspected,
    nodes,
    of_node,
)
from tests.fleet.shown import html, node, words

WHY = "query processing would load too many samples"
VALUES = (
    *("holders", "held_gpus", "held_bytes", "used_gpus", "used_bytes", "unused_gpus", "unused_bytes"),
    *("idle_holders", "idle_gpus"),
)
OF_GPUS = ("total_bytes", "conditions", "holders", "offers", "offered_slices", "held_slices", "slices")
NOTHING_REFUSED = "matches no query"


ML = {"namespace": "ml"}
ANSWERS: dict[str, Samples] = {
    "node:gpuslice_known_containers": [({**NODE, "value": value}, 1.0) for value in VALUES],
    "namespace:gpuslice_known_containers": [({**ML, "value": value}, 1.0) for value in VALUES],
    "node:gpuslice_known_gpus": [({**NODE, "value": value}, 1.0) for value in OF_GPUS],
    "node:gpuslice_total_gpus": [({**NODE, "model": "T4"}, 1.0)],
    "node:gpuslice_sharing": [({**NODE, "sharing": "exclusive"}, 1.0)],
    r"node:|max by \(cluster, node\)": [(NODE, 1.0)],
    r"namespace:|sum by \(cluster, namespace": [(ML, 1.0)],
    r"topk\(\d+, gpu:gpuslice_raised_condition": [({**GPU, "condition": "needs_reset"}, 1.0)],
    r"gpu:gpuslice_model:info|gpuslice_gpu_info": [({**GPU, "model": "T4", "sharing": "exclusive"}, 1.0)],
    "container:gpuslice_largest_idle_seconds": [(HOLDER, 900.0)],
    "container:|gpuslice_container_": [(HOLDER, 1.0)],
}


def _refusing(pattern: str) -> Answer:
    """Return answers of a node with one unhealthy GPU that one idle container holds; matches are refused."""
    answers = of_node(ANSWERS)

    def answer(expression: str) -> Samples | str:
        refused = nodes(expression, "n1") is None and re.search(pattern, expression)
        return WHY if refused else answers(expression)

    return answer


async def _fleet(pattern: str) -> Fleet:
    async with connected(_refusing(pattern)) as prometheus:
        return await read_fleet(prometheus, 3600)


def _html(fleet: Fleet) -> str:
    return html(FleetRead(fleet=fleet, read_at=AT, reads=1), AT)


def _text(fleet: Fleet) -> str:
    return words(_html(fleet))


async def test_all_answers_are_shown() -> None:
    fleet = await _fleet(NOTHING_REFUSED)
    text = _text(fleet)

    assert fleet.problems == ()
    assert "1 namespace" in text
    assert "1 unhealthy GPU and 1 idle holder" in text
    assert "by 1 holder in 1 namespace" in text
    assert "train-0" in text
    assert "could not be queried" not in text
    assert fleet_json(fleet)["nodes"][0]["models"] == {"T4": 1}


async def test_refused_unhealthy_gpus_and_idle_holders_are_unknown() -> None:
    fleet = await _fleet(r"^topk|^node:gpuslice_(idle|unhealthy)|largest_idle")
    text, document = _text(fleet), fleet_json(fleet)

    assert f"Needs attention {UNKNOWN}" in text
    assert re.search("<h2>Needs attention</h2>[^/]+the query for this failed", _html(fleet))
    assert "incomplete: unhealthy GPUs, idle holders" in text
    assert "Unhealthy GPUs are not known." in text
    assert "Idle holders are not known." in text
    assert "Nobody" not in text
    assert document["sick_gpus"] is document["idle_holders"]["listed"] is None
    assert document["idle_holders"]["holders"] is None
    for line in ("Idle holders are not known.", "Unhealthy GPUs are not known."):
        assert line in fleet_text(fleet)


async def test_a_list_that_is_known_in_part_is_a_least_number() -> None:
    """One of several signs of unhealthy GPUs is refused, and so is the number of idle holders."""
    fleet = await _fleet(r"xid_last|^node:gpuslice_idle_holders")
    text = _text(fleet)

    assert "≥ 1 unhealthy GPUs and ≥ 1 idle holders" in text
    assert "Other unhealthy GPUs are not known." in text
    assert "The number of other idle holders is not known." in text
    assert (fleet.total.idle_holders.value, fleet.total.idle_compute.value) == (None, 1.0)
    assert not fleet.idle_complete
    assert fleet_json(fleet)["sick_gpus"][0]["uuid"] == "GPU-1"


async def test_an_idle_holder_stays_listed_without_refused_values() -> None:
    fleet = await _fleet("^container:gpuslice_(held_gpus|used_bytes)")
    (holder,) = fleet.idle or ()

    assert (holder.seconds, holder.memory_used, holder.compute_held) == (900.0, None, None)
    row = _html(fleet).partition('id="idle"')[2].partition("</section>")[0]
    assert "train-0" in row
    assert row.count("the query for this failed") == 2
    assert "train-0" in fleet_text(fleet)


async def test_refused_namespaces_are_unknown() -> None:
    fleet = await _fleet("^namespace:gpuslice_known_containers")
    text = _text(fleet)

    assert f"{UNKNOWN} namespaces" in text
    assert "holders could not be queried" in text
    assert "Namespaces that hold GPUs could not be queried." in text
    assert fleet_json(fleet)["namespaces"] is None
    assert "Namespaces that hold GPUs are not known." in fleet_text(fleet)


async def test_refused_holders_of_a_namespace_are_unknown() -> None:
    """Containers that use a GPU may not hold it."""
    fleet = await _fleet("^namespace:gpuslice_holders")

    assert fleet_json(fleet)["namespaces"][0]["holders"] is None
    assert f"by {UNKNOWN} holders in 1 namespace" in _text(fleet)


async def test_refused_models_of_a_node_are_unknown() -> None:
    (read,) = fleet_json(await _fleet("total_gpus|sharing:count|driver_released"))["nodes"]

    assert read["models"] is read["sharing"] is read["driver_released"] is None


async def test_inspect_shows_refused_gpus_as_unknown() -> None:
    inspection = await inspected(_refusing("^gpuslice_gpu_info"))
    text = inspection_text(inspection, details=True)

    assert "its GPUs are not known" in text
    assert "Holders are not known on n1." in text
    assert "No pod" not in text
    assert inspection_json(inspection, details=True)["nodes"][0]["devices"] is None


async def test_inspect_shows_refused_holders_as_unknown() -> None:
    inspection = await inspected(_refusing("^gpuslice_container_info"))
    text = inspection_text(inspection, details=True)

    assert "T4" in text
    assert "Holders are not known on n1." in text
    (gpu,) = inspection_json(inspection, details=True)["nodes"][0]["devices"]
    assert gpu["holders"] is None


async def test_the_state_of_a_holder_whose_slices_are_refused_is_unknown() -> None:
    """It may have no slice."""
    inspection = await inspected(_refusing("^gpuslice_container_slices"))
    (gpu,) = inspection_json(inspection, details=True)["nodes"][0]["devices"]

    assert [holder["state"] for holder in gpu["holders"]] == ["unknown"]


@pytest.mark.parametrize(("pattern", "code"), [(NOTHING_REFUSED, 0), ("^gpuslice_gpu_up", 1)])
def test_inspect_prints_what_is_known_and_exits_with_1_if_a_query_failed(pattern: str, code: int) -> None:
    with answering(_refusing(pattern)) as url:
        done = run("inspect", "n1", "--prometheus-url", url)

    assert (done.returncode, done.stderr) == (code, "")
    assert "Total: 1 node" in done.stdout
    assert ("! not known" in done.stdout) == bool(code)


def _with_unhealthy(count: int | None) -> Node:
    """Return a node with that many unhealthy GPUs."""
    return node(unhealthy=UNKNOWN_AMOUNT if count is None else Amount(count, 1))


def test_a_full_list_of_unhealthy_gpus_may_not_be_all() -> None:
    """Each query returns a limited number of rows."""
    rows = [Sample({**NODE, "uuid": f"GPU-{number}"}, 1.0) for number in range(SICK_LISTED)]
    all_but_one = {"conditions": rows[1:]}

    assert not lists_all_sick(Answers({"conditions": rows}, {}), [_with_unhealthy(len(rows))])
    assert lists_all_sick(Answers(all_but_one, {}), [_with_unhealthy(len(rows) - 1)])
    assert not lists_all_sick(Answers(all_but_one, {}), [_with_unhealthy(len(rows))])
    assert not lists_all_sick(Answers(all_but_one, {"XID errors": WHY}), [_with_unhealthy(1)])


def test_an_empty_list_of_unhealthy_gpus_is_all_only_if_their_number_is_0() -> None:
    assert not lists_all_sick(Answers({}, {}), [_with_unhealthy(None)])
    assert not lists_all_sick(Answers({}, {}), [_with_unhealthy(1)])
    assert lists_all_sick(Answers({}, {}), [_with_unhealthy(0)])


async def test_a_prometheus_without_the_rules_is_an_error() -> None:
    """It is not shown as a cluster without GPUs."""

    def answer(expression: str) -> Samples:
        return [] if "exporters:count" in expression else nodes(expression, "n1") or []

    async with connected(answer) as prometheus:
        with pytest.raises(MissingSeriesError, match="load alerts/rules/gpuslice-recording"):
            await read_fleet(prometheus, 3600)
    with answering(answer) as url:
        done = await asyncio.to_thread(run, "inspect", "--prometheus-url", url)

    assert (done.returncode, done.stdout) == (1, "")
    assert "has no records of gpuslice-exporter: load alerts/rules/gpuslice-recording.yaml" in done.stderr


async def test_a_node_without_records_has_only_its_number_of_gpus() -> None:
    """It was scraped, and the rules were not evaluated since."""
    async with connected(of_node({r".*gpuslice_node_gpus": [(NODE, 8.0)]})) as prometheus:
        (read,) = (await read_fleet(prometheus, 3600)).nodes

    assert read.gpus.value == 8
    unknown = (read.memory_total, *read.memory, *read.compute, read.slices.held, read.slices.offered)
    assert {amount.value for amount in unknown} == {None}
