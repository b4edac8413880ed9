"""The cluster of a hub for some namespaces: its page, API and advice."""

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
from tests.fleet.answering import AT
from tests.fleet.shown import asked, html, node, words

NAMES = ("ml", "lab", "ops")


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
    misspelt = await asked(_read(), "/api/v1/fleet", ("ml", "xyz"))
    assert misspelt.status == 200, "what one namespace has is not lost with another one"
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
