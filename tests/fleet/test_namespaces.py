"""The cluster for some namespaces: their holders only, of sums that are of all."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from exporter.advice import advise
from exporter.fleet.amounts import Amount
from exporter.fleet.cluster_advice import ClusterAdvice
from exporter.fleet.json_data import fleet_json
from exporter.fleet.model import Fleet, IdleHolder, Namespace, NodeKey
from exporter.fleet.narrowed import advice_of, fleet_of, unknown_names
from exporter.fleet.pages import openapi as hub_openapi
from exporter.fleet.text import fleet_text
from exporter.fleet.watch import AdviceRead, FleetRead
from exporter.model import ContainerRef
from tests.core.advice.simulated import Run, window
from tests.core.commands.program import run
from tests.fleet.answering import AT, GPU, HOLDER, Answer, Samples, answering, of_node
from tests.fleet.shown import asked, html, node, words

LAB = {**HOLDER, "namespace": "lab", "pod": "nb-0"}
NAMES = ("ml", "lab", "ops")


def _answers(*, complete: bool = True, recorded: tuple[str, ...] = (), there: tuple[str, ...] = ()) -> Answer:
    """Return answers about node n1, with a GPU that ml and lab hold.

    ``complete``: whether it is known that these are all; ``recorded``: namespaces that held one this week;
    ``there``: namespaces of the cluster.
    """
    holders = [(HOLDER, 1.0), (LAB, 1.0)]
    number = 2.0 if complete else 3.0
    series: dict[str, Samples] = {
        r"gpuslice_gpu_info": [({**GPU, "model": "T4", "sharing": "time-slicing"}, 1.0)],
        r"gpuslice_gpu_holders": [(GPU, number)],
        r"gpuslice_gpu_memory_used_bytes": [(GPU, 300.0)],
        r"gpuslice_container_(info|slices)": holders,
        r"group by \(namespace\) \(namespace:gpuslice_containers": [
            ({"namespace": n}, 1.0) for n in ("ml", "lab")
        ],
        r"group by \(namespace\) \(last_over_time": [({"namespace": name}, 1.0) for name in ("", *recorded)],
    }
    answer = of_node(series)

    def of(expression: str) -> Samples | str:
        if expression.startswith("group(gpuslice_container_info"):
            return [({}, 1.0)] if any(f'"{name}"' in expression for name in there) else []
        return answer(expression)

    return of


def _inspected(answer: Answer, *arguments: str) -> dict:
    with answering(answer) as url:
        done = run("inspect", *arguments, "--output", "json", "--prometheus-url", url)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def _pods(document: dict) -> list[str]:
    (one,) = document["nodes"]
    (gpu,) = one["devices"]
    return [holder["pod"] for holder in gpu["holders"]]


@pytest.mark.parametrize(
    ("arguments", "pods"),
    [
        (("--namespace", "ml"), ["train-0"]),
        (("-n", "lab"), ["nb-0"]),
        (("-n", "lab", "--namespace", "ml"), ["train-0", "nb-0"]),
        (("-n", "lab, ml"), ["train-0", "nb-0"]),
        (("n1", "-n", "lab", "--details"), ["nb-0"]),
    ],
)
def test_inspect_has_the_holders_of_a_namespace_only(arguments, pods) -> None:
    """All sums are those of the whole node, and the answer says which namespaces it has."""
    narrowed, whole = _inspected(_answers(), *arguments), _inspected(_answers(), "--details")

    assert sorted(_pods(narrowed)) == sorted(pods)
    assert sorted(narrowed.pop("only_namespaces")) == sorted(
        {"nb-0": "lab", "train-0": "ml"}[pod] for pod in pods
    )
    assert whole.pop("only_namespaces") is None
    for document in (narrowed, whole):
        for one in document["nodes"][0]["devices"]:
            del one["holders"]
    assert narrowed == whole


def test_text_says_which_holders_are_listed() -> None:
    with answering(_answers()) as url:
        done = run("inspect", "--namespace", "lab", "--prometheus-url", url)

    assert done.returncode == 0
    assert "nb-0" in done.stdout
    assert "train-0" not in done.stdout
    assert "Only holders in lab are listed. Nodes, GPUs and totals are of all namespaces." in done.stdout
    assert done.stdout.splitlines()[0].split()[:2] == ["NODE", "GPUS"]


@pytest.mark.parametrize(
    ("answers", "code", "said"),
    [
        ({}, 1, "nothing is known of a namespace 'ops'; GPUs are held in lab, ml"),
        ({"there": ("ops",)}, 0, "No known pod in ops holds or uses a GPU."),
        ({"recorded": ("ops",)}, 0, "No known pod in ops holds or uses a GPU."),
        ({"there": ("ops",), "complete": False}, 0, "Holders are not known on n1."),
    ],
    ids=["unknown", "without holders", "without holders today", "not known"],
)
def test_an_unknown_namespace_none_held_and_not_known_are_three_answers(answers, code, said) -> None:
    with answering(_answers(**answers)) as url:
        done = run("inspect", "--namespace", "ops", "--prometheus-url", url)

    assert done.returncode == code
    assert said in (done.stderr if code else done.stdout)
    assert bool(done.stdout) == (code == 0)


def test_one_misspelt_of_several_namespaces_is_an_error() -> None:
    with answering(_answers()) as url:
        done = run("inspect", "--namespace", "ml,mll", "--prometheus-url", url)

    assert (done.returncode, done.stdout) == (1, "")
    assert "namespace 'mll'" in done.stderr


@pytest.mark.parametrize("names", ["", "ml,", ",", " "])
def test_an_empty_name_is_an_error_of_usage(names) -> None:
    """It is mostly an unset variable of a shell."""
    done = run("inspect", "--namespace", names, "--prometheus-url", "http://localhost:1")

    assert done.returncode == 2
    assert "--namespace" in done.stderr


def _idle(namespace: str, compute: float | None = 0.5) -> IdleHolder:
    return IdleHolder(
        node=NodeKey("", "n1"),
        holder=ContainerRef(namespace, f"{namespace}-0", "main"),
        uuid="GPU-1",
        mig_uuid="",
        gpu="0",
        resource="nvidia.com/gpu",
        seconds=700.0,
        memory_held=None,
        memory_used=None,
        compute_held=compute,
    )


def _fleet(**values) -> Fleet:
    one = node(idle_holders=Amount(2, 1), idle_compute=Amount(1.0, 1), gpus=Amount(1, 1))
    rows = (Namespace(name="ml", holders=1), Namespace(name="lab", holders=1))
    known = {"namespaces": rows, "idle": (_idle("ml"), _idle("lab")), "cluster_namespaces": frozenset(NAMES)}
    return Fleet(at=AT, window=3600.0, nodes=(one,), **(known | values))


def _read(advice: AdviceRead = AdviceRead(), **values) -> FleetRead:  # noqa: B008 - frozen
    return FleetRead(fleet=_fleet(**values), read_at=AT, reads=1, advice=advice)


_ROWS = st.lists(st.sampled_from(NAMES), unique=True)


@given(
    _ROWS,
    st.lists(st.sampled_from(NAMES)),
    st.lists(st.sampled_from(NAMES), min_size=1, unique=True),
    st.booleans(),
)
def test_the_parts_of_the_cluster_are_the_whole(rows, idle, names, all_namespaces) -> None:
    """Whatever is chosen: what is left out is of other namespaces, and sums of nodes stay."""
    whole = _fleet(
        namespaces=tuple(Namespace(name=name, holders=1) for name in rows),
        idle=tuple(map(_idle, idle)),
        all_namespaces=all_namespaces,
    )
    narrowed = fleet_of(whole, names)
    document, of_whole = fleet_json(narrowed), fleet_json(whole)

    assert [row.name for row in narrowed.namespaces or ()] == [name for name in rows if name in names]
    assert [each.holder.namespace for each in narrowed.idle or ()] == [name for name in idle if name in names]
    assert all(
        document[name] == of_whole[name] for name in ("totals", "nodes", "sick_gpus", "problems", "timestamp")
    )
    assert narrowed.all_namespaces == (all_namespaces or set(names) <= set(rows))
    assert fleet_of(whole, ()) == whole
    document["read_at"] = None
    schema = hub_openapi.document()
    validator = Draft202012Validator(
        {"$ref": "#/components/schemas/Fleet", "components": schema["components"]}
    )
    assert validator.is_valid(document)


def test_idle_holders_of_a_namespace_are_counted_only_if_all_are_listed() -> None:
    """The list has the largest of the cluster."""
    all_listed = fleet_json(fleet_of(_fleet(), ["ml"]))["idle_holders"]
    largest = fleet_of(_fleet(idle=(_idle("ml"),)), ["ml", "ops"])
    none_listed = fleet_json(fleet_of(_fleet(idle=(_idle("ml"),)), ["lab"]))["idle_holders"]

    assert (all_listed["holders"], all_listed["compute_held"], all_listed["complete"]) == (1, 0.5, True)
    assert fleet_json(fleet_of(_fleet(), ["ops"]))["idle_holders"]["listed"] == []
    assert fleet_json(largest)["idle_holders"]["complete"] is False
    assert "There may be other idle holders" in fleet_text(largest)
    assert (none_listed["holders"], none_listed["compute_held"], none_listed["listed"]) == (None, None, None)


def test_advice_on_a_gpu_with_turns_is_that_of_each_of_its_namespaces() -> None:
    of_ml = window(Run(memory=[1], compute=[0.1]))
    (use,) = of_ml.uses
    of_others = tuple(replace(use, holder=ContainerRef(name, "p", "c")) for name in ("lab", "ops"))
    of_lab = replace(of_ml, namespace="lab", uses=of_others[:1])
    turns = replace(of_ml, namespace="", workload="", uses=of_others)
    advice = ClusterAdvice(at=AT, advices=tuple(map(advise, (of_ml, of_lab, turns))))

    def chosen(*names: str) -> list[int]:
        return [advice.advices.index(each) for each in advice_of(advice, names).advices]

    assert [chosen("ml"), chosen("lab"), chosen("ops"), chosen("x")] == [[0], [1, 2], [2], []]
    assert chosen() == chosen(*NAMES) == [0, 1, 2]


def test_nothing_is_known_of_a_namespace_only_if_all_are_known() -> None:
    """A failed query, or a node that does not answer, may hide it."""
    names = ("ml", "ops", "xyz")
    assert unknown_names(_read(), names) == ("xyz",)
    assert unknown_names(_read(cluster_namespaces=frozenset()), names) == ("ops", "xyz")
    assert unknown_names(_read(all_namespaces=False), names) == ()
    assert unknown_names(_read(cluster_namespaces=None), names) == ()
    assert unknown_names(FleetRead(), names) == ()
    advised = replace(window(Run(memory=[1], compute=[0.1])), namespace="xyz")
    advice = AdviceRead(found=ClusterAdvice(at=AT, advices=(advise(advised),)))
    assert unknown_names(_read(advice), names) == ()


ADVICE = AdviceRead(found=ClusterAdvice(at=AT, advices=()), read_at=AT, error="")


@pytest.mark.parametrize("path", ["/api/v1/fleet", "/api/v1/fleet?format=text", "/api/v1/advice", "/"])
@pytest.mark.parametrize(
    ("namespace", "status"), [("ml", 200), ("ml,lab", 200), ("ops", 200), ("xyz", 404), ("ml,xyz", 404)]
)
async def test_the_hub_says_that_nothing_is_known_of_a_namespace(path, namespace, status) -> None:
    mark = "&" if "?" in path else "?"
    response = await asked(_read(ADVICE), f"{path}{mark}namespace={namespace}")

    assert response.status == status
    if status == 404:
        assert response.text == "Nothing is known of a namespace 'xyz'; GPUs are held in lab, ml.\n"


async def test_the_hub_has_the_rows_of_a_namespace() -> None:
    for query in ("namespace=ml&namespace=ops", "namespace=ml,ops"):
        fleet = json.loads((await asked(_read(), f"/api/v1/fleet?{query}")).text)["fleet"]
        assert [row["namespace"] for row in fleet["namespaces"]] == ["ml"]
        assert [idle["namespace"] for idle in fleet["idle_holders"]["listed"]] == ["ml"]
        assert fleet["only_namespaces"] == ["ml", "ops"]
        text = (await asked(_read(), f"/?{query}")).text
        assert "Only holders in ml, ops are listed." in text
        assert "No container in ops holds a GPU." in text
        assert "lab" not in text


def test_the_page_links_each_namespace_and_back() -> None:
    """The order of the tables stays, and the cards are those of the whole cluster."""
    whole, narrowed = html(_read(), AT, nodes="name"), html(_read(), AT, nodes="name", namespace=("ml",))

    assert 'href="?nodes=name&amp;namespace=ml"' in whole
    assert 'href="?nodes=name"' in narrowed
    assert "Holders in ml only; cards, nodes and unhealthy GPUs are of all namespaces." in words(narrowed)
    assert "lab-0" in words(whole)
    assert "lab-0" not in words(narrowed)
    assert 'href="?nodes=name&amp;namespace=ml&amp;idle=memory#idle"' in narrowed.replace(
        "nodes=name&amp;idle=memory&amp;namespace=ml", "nodes=name&amp;namespace=ml&amp;idle=memory"
    )
    assert "by 2 holders in 2 namespaces" in words(narrowed)


def test_the_page_names_an_unknown_namespace_and_one_that_holds_nothing() -> None:
    assert "No such namespace: xyz" in words(html(_read(), AT, namespace=("xyz",)))
    assert "No container in ops holds a GPU." in words(html(_read(), AT, namespace=("ops",)))
    hidden = words(html(_read(all_namespaces=False), AT, namespace=("ops",)))
    assert "It is not known whether ops holds GPUs." in hidden
    assert "No such namespace" not in hidden


def test_a_hostile_name_in_the_url_adds_no_markup() -> None:
    drawn = html(_read(), AT, namespace=('"><script>alert(1)</script>\u202e\udc80',))

    assert "<script>alert" not in drawn
    assert "\u202e" not in drawn


async def test_a_hub_of_some_namespaces_shows_no_others() -> None:
    """It is no access control: sums and nodes are those of all."""
    fleet = json.loads((await asked(_read(), "/api/v1/fleet", ("ml", "ops"))).text)["fleet"]
    assert fleet["only_namespaces"] == ["ml", "ops"]
    narrowed = json.loads((await asked(_read(), "/api/v1/fleet?namespace=ops", ("ml", "ops"))).text)["fleet"]
    assert (narrowed["only_namespaces"], narrowed["namespaces"]) == (["ops"], [])
    refused = await asked(_read(ADVICE), "/api/v1/advice?namespace=lab", ("ml", "ops"))
    assert (refused.status, refused.text) == (404, "This hub does not show 'lab', but ml, ops.\n")
    page = await asked(_read(), "/", ("ml",), Accept="text/html")
    assert "Holders in ml only" in page.text
    assert "Show all namespaces" not in page.text


def test_a_hub_takes_its_namespaces_from_the_command_line() -> None:
    """It serves, although Prometheus cannot be reached."""
    done = run(
        "hub",
        "--namespace",
        "ml,lab",
        "-n",
        "ops",
        "--prometheus-url",
        "http://localhost:1",
        "--listen",
        ":0",
    )

    assert done.returncode == 0
    assert run("hub", "--namespace", "", "--prometheus-url", "http://localhost:1").returncode == 2
