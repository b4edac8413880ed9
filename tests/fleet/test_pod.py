"""One pod from a Prometheus: what it holds, what it held, and what is unknown."""

import json
import re

import pytest

from exporter.fleet.cluster_advice import read_advice
from exporter.fleet.pod_json import pod_json
from exporter.fleet.pod_text import pod_text
from exporter.fleet.targets import MissingSeriesError
from exporter.formats.advice import advice_paragraphs
from tests.core.commands.program import run
from tests.fleet.answering import AT, GPU, HOLDER, NODE, TARGET, Samples, answering
from tests.fleet.pods import GIB, INFO, KUBELET, SERIES, URL, Direct, answers, found, week


async def test_a_pod_has_the_answers_of_its_page() -> None:
    text = pod_text(await found(answers(SERIES)), 500)

    assert text.startswith("ml/train-0 holds 1 device on n1\npod uid u-1\n")
    for line in (
        "No: it has not computed for 1 h 0 min, and keeps 6.0 GiB of memory.",
        "Since it was first seen 2 h 0 min ago, it has used 50 % of the GPU time it was entitled to.",
        "It uses 6.0 GiB; its share of 4.0 GiB is not enforced. Its neighbour uses 1.0 GiB.",
        "GPU 0 needs a reset. XID 31, 1 min ago, while it was there.",
        f"Not known here, without records for advice of a full hour: open {URL}",
        "main: GPU 0 · 1 \N{MULTIPLICATION SIGN} nvidia.com/gpu · node n1",
        "T4 · time-sliced · isolation none · GPU-1",
        "state: idle, holding memory (1 h 0 min), over its notional share",
        "memory: 6.0 / 4.0 GiB · compute: 0.00 / 0.25 GPU",
        "efficiency 50 % · memory peak 7.0 GiB · energy 7.2 kJ",
        "also on this device: lab/nb/jupyter, 1.0 / 4.0 GiB, 0.50 / 0.25 GPU, active",
        f"open {URL}",
    ):
        assert line in text
    assert "79" not in text, "an error from before its time did not hit it"


async def test_json_has_the_same() -> None:
    document = json.loads(json.dumps(pod_json(await found(answers(SERIES)))))
    (device,) = document["devices"]

    assert document["state"] == "holds"
    assert [answer["question"] for answer in document["answers"]] == [
        "Is its slice used?",
        "Is there memory left for it?",
        "Has a fault hit it?",
        "Which slice would fit it?",
    ]
    expected = {
        "node": "n1",
        "url": URL,
        "uuid": "GPU-1",
        "mig_uuid": None,
        "container": "main",
        "state": "idle-memory",
        "other_states": ["over-notional"],
        "quiet_seconds": 3600.0,
        "memory_peak_bytes": 7 * GIB,
        "conditions": ["needs_reset"],
        "up": True,
        "pod_uid": "u-1",
        "energy_joules": 7200.0,
        "all_holders": True,
    }
    assert device | expected == device
    assert [xid["xid"] for xid in device["xids"]] == [31]
    assert [other["pod"] for other in device["others"]] == ["nb"]


async def test_with_records_for_advice_its_own_advice_is_there() -> None:
    """And not that on other pods of its namespace."""
    without = answers(SERIES)

    def answer(expression: str) -> Samples | str:
        if expression.startswith('last_over_time(container:gpuslice_last_week:value{namespace="ml"}'):
            return [*week(HOLDER), *week({**HOLDER, "pod": "other", "uuid": "GPU-2"})]
        return without(expression)

    advices = (await read_advice(Direct(answer), "ml")).advices
    shown = await found(answer)
    text = pod_text(shown, 2000)

    assert len(advices) == 2
    (mine,) = [each for each in advices if each.window.uses[0].holder.pod == "train-0"]
    assert all(paragraph in text for paragraph in advice_paragraphs(mine))
    assert "without records for advice" not in text
    assert [each["workload"] for each in pod_json(shown)["advice"]] == ["train-0"]


async def test_what_is_not_in_prometheus_is_not_known_and_not_0() -> None:
    few = {
        name: SERIES[name]
        for name in ("gpuslice_gpu_info", "gpuslice_container_info", "gpuslice_container_slices")
    }
    shown = await found(answers(few))
    text = pod_text(shown, 500)
    (device,) = pod_json(shown)["devices"]

    assert f"Not known: this Prometheus does not have it; {URL} may say why." in text
    assert f"Errors of its device are not known here: open {URL}" in text
    assert "GPU time held \N{EN DASH} · used \N{EN DASH}" in text
    assert "other holders of this GPU are not known" in text
    numbers = (
        "memory_used_bytes",
        "compute_used_ratio",
        "memory_peak_bytes",
        "energy_joules",
        "xids",
        "conditions",
    )
    assert [device[name] for name in numbers] == [None] * len(numbers)
    assert " 0.0 " not in text


async def test_a_pod_that_held_a_gpu_says_until_when() -> None:
    last: Samples = [({**HOLDER, **INFO}, 1.0)]
    shown = await found(answers(KUBELET, last=last, times=[(HOLDER, AT - 7200)]))

    assert shown.state == "held"
    text = pod_text(shown, 500)
    assert text.startswith("ml/train-0 holds no GPU now\n")
    assert "main held nvidia.com/gpu of T4 0 on node n1: until 2023-11-14 20:13 UTC, 2 h 0 min ago." in text
    assert URL in text
    (before,) = pod_json(shown)["before"]
    assert (before["until"], before["ended"], before["reason"]) == (AT - 7200, True, None)


@pytest.mark.parametrize(
    ("series", "silent", "why"),
    [
        ({}, True, "there is no newer data of its node, as it is no longer scraped"),
        ({}, False, "the kubelet of its node does not answer"),
        (
            KUBELET
            | {"gpuslice_collector_success": [({**TARGET, **NODE, "collector": "podresources"}, 0.0)]},
            False,
            "the kubelet of its node does not answer",
        ),
        (
            KUBELET | {"gpuslice_unlisted_pods": [({**TARGET, **NODE}, 2.0)]},
            False,
            "the kubelet of its node does not list all pods yet",
        ),
    ],
)
async def test_a_pod_that_cannot_be_seen_may_still_hold_its_gpu(series, silent, why) -> None:
    last: Samples = [({**HOLDER, **INFO}, 1.0)]
    shown = await found(answers(series, last=last, times=[(HOLDER, AT - 60)], silent=silent))

    assert shown.state == "unknown"
    assert f"Whether it still does is not known: {why}" in pod_text(shown, 500)
    assert pod_json(shown)["before"][0]["ended"] is False


async def test_a_pod_that_never_held_one_is_not_known() -> None:
    shown = await found(answers(SERIES | KUBELET), "ml/other")

    assert shown.state == "none"
    assert pod_text(shown).startswith("ml/other: no such pod holds a GPU, or held one in the last 7 days\n")


async def test_while_a_node_does_not_answer_no_pod_is_known_to_hold_none() -> None:
    shown = await found(answers(SERIES, silent=True), "ml/other")

    assert shown.state == "unknown"
    assert "Not answering: n1." in pod_text(shown)


async def test_without_records_of_any_holder_that_is_the_error() -> None:
    with pytest.raises(MissingSeriesError, match="no records of holders"):
        await found(answers({}))


async def test_only_the_last_pod_of_a_name_counts() -> None:
    """A pod of a stateful set was on another node before."""
    old = {**HOLDER, "node": "n0", "uuid": "GPU-9"}
    last: Samples = [({**HOLDER, **INFO}, 1.0), ({**old, **INFO}, 1.0)]
    shown = await found(answers(KUBELET, last=last, times=[(HOLDER, AT - 7200), (old, AT - 90_000)]))

    assert [each.uuid for each in shown.before] == ["GPU-1"]


def _mig(container: str, uuid: str) -> dict[str, str]:
    return {**HOLDER, "container": container, "mig_uuid": uuid}


async def test_each_container_of_the_pod_has_its_device() -> None:
    one, two = _mig("main", "MIG-1"), _mig("side", "MIG-2")
    part = {**GPU, "profile": "1g.5gb"}
    series = {
        **SERIES,
        "gpuslice_container_info": [({**one, **INFO}, 1.0), ({**two, **INFO}, 1.0)],
        "gpuslice_container_slices": [(one, 1.0), (two, 0.0)],
        "gpuslice_mig_info": [({**part, "mig_uuid": "MIG-1"}, 1.0)],
        **{name: [] for name in SERIES if "_memory_" in name or "compute" in name or "seconds" in name},
    }
    shown = await found(answers(series))
    text = pod_text(shown, 500)

    assert "ml/train-0 holds 2 devices on n1" in text
    assert "T4 · time-sliced · 1g.5gb · isolation none · MIG-1" in text
    assert "side: GPU 0 · none · node n1" in text
    assert "uses without holding" in text
    assert [device.others for device in shown.devices] == [(), ()]


@pytest.mark.parametrize(
    ("answer", "name", "code", "said"),
    [
        (answers(SERIES), "ml/train-0", 0, "holds 1 device"),
        (answers(SERIES, silent=True), "ml/x", 1, "not known whether"),
        (
            answers(KUBELET, last=[({**HOLDER, **INFO}, 1.0)], times=[(HOLDER, AT - 9)]),
            "ml/train-0",
            3,
            "no GPU now",
        ),
        (answers(SERIES | KUBELET), "ml/x", 4, "no such pod"),
    ],
)
@pytest.mark.parametrize("output", ["text", "json"])
def test_exit_codes(answer, name, code, said, output) -> None:
    with answering(answer) as url:
        done = run("is", name, "--output", output, "--prometheus-url", url)

    assert (done.returncode, done.stderr) == (code, "")
    if output == "text":
        assert said in done.stdout
    else:
        assert json.loads(done.stdout)["pod"] == name.partition("/")[2]


@pytest.mark.parametrize("name", ["train-0", "ml/", "/x", "ml/a/b", "ML/x", 'ml/"}', "ml/x\n", ""])
def test_a_name_that_kubernetes_does_not_allow_is_refused(name) -> None:
    done = run("is", name, "--prometheus-url", "http://127.0.0.1:9")

    assert (done.returncode, done.stdout) == (2, "")
    assert "is not NAMESPACE/POD" in done.stderr


def test_without_records_the_exit_code_is_1() -> None:
    with answering(answers({})) as url:
        done = run("is", "ml/x", "--prometheus-url", url)

    assert (done.returncode, done.stdout) == (1, "")
    assert "this Prometheus has no records of holders" in done.stderr


@pytest.mark.parametrize("refused", sorted(SERIES))
def test_a_refused_query_costs_what_it_asked_for(refused) -> None:
    """The exit code is 1; without the names of its containers nothing is known."""
    whole = answers(SERIES)

    def answer(expression: str) -> Samples | str:
        return "too many samples" if re.match(rf"{refused}\b", expression) else whole(expression)

    with answering(answer) as url:
        done = run("is", "ml/train-0", "--prometheus-url", url)

    assert done.returncode == 1
    if refused == "gpuslice_container_info":
        assert "too many samples" in done.stderr
    else:
        assert "too many samples" in done.stdout
