"""The stream for programs: applying its deltas gives exactly the document of the snapshot."""

import json
from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.demo.scenario.catalog import load
from exporter.metrics import IDENTITY_LABELS
from exporter.web.kit.live.snapshot_stream import LEVELS, delta
from tests.page.web.following import following
from tests.together.end_to_end.serving import serving

SCENARIOS = ("t4-timeslicing", "a100-mig-mixed")


def apply(document, changes) -> dict:
    """Return a copy of a document with changes applied as the description says."""
    new = deepcopy(document)
    for name, value in changes.items():
        if name == "node":
            new["node"] |= value
        elif name in LEVELS and isinstance(value, dict):
            new[name] = _apply_rows(IDENTITY_LABELS[LEVELS[name]], new[name], value)
        else:
            new[name] = value
    return new


def _apply_rows(labels, rows, changes) -> list:
    def key(row) -> tuple:
        return tuple(row[label] for label in labels)

    known = {key(row): row for row in rows}
    for row in changes["gone"]:
        del known[key(row)]
    for row in changes["changed"]:
        known[key(row)] = known.get(key(row), {}) | row
    return [known[key(row)] for row in changes["order"]] if "order" in changes else list(known.values())


VALUES = (
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "a"]) | st.lists(st.integers(0, 1))
)
FIELDS = st.fixed_dictionaries({"used": VALUES, "by_kind": st.dictionaries(st.sampled_from("xy"), VALUES)})


def rows_of(level) -> st.SearchStrategy:
    """Return a strategy for rows, some with equal labels."""
    names = st.sampled_from(["a", "b", "c", None])
    return st.lists(
        st.builds(dict.__or__, st.fixed_dictionaries(dict.fromkeys(IDENTITY_LABELS[level], names)), FIELDS)
    )


DOCUMENTS = st.fixed_dictionaries(
    {
        "sequence": st.integers(0, 2),
        "timestamp": st.floats(0, 2),
        "demo": st.booleans(),
        "node": FIELDS,
        "events": st.lists(FIELDS, max_size=2),
        **{name: rows_of(level) for name, level in LEVELS.items()},
    }
)


@settings(max_examples=20)
@given(DOCUMENTS, DOCUMENTS)
def test_a_delta_leads_from_any_document_to_any_other(old, new) -> None:
    """Also if rows have equal labels."""
    changes = json.loads(json.dumps(delta(old, new)))

    assert apply(old, changes) == new


@settings(max_examples=10)
@given(DOCUMENTS)
def test_equal_documents_have_an_empty_delta(document) -> None:
    assert delta(document, deepcopy(document)) == {
        "sequence": document["sequence"],
        "timestamp": document["timestamp"],
    }


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_deltas_lead_to_the_current_document(scenario) -> None:
    async with serving(load(scenario)) as served:
        await served.poll(0)
        async with following(served.client, f"{served.url}/api/v1/stream") as follower:
            event = await follower.next()
            assert event.name == "snapshot"
            document = event.data
            for second in (5, 10, 300, 900, 905):
                await served.poll(second)
                event = await follower.next()
                assert event.name == "delta"
                assert len(event.raw) < len(json.dumps(document))
                document = apply(document, event.data)
                async with served.client.get(f"{served.url}/api/v1/snapshot") as response:
                    assert document == json.loads(await response.read())


async def test_deltas_have_changed_rows_and_fields_only() -> None:
    async with serving(load("showcase")) as served:
        await served.poll(0)
        async with following(served.client, f"{served.url}/api/v1/stream") as follower:
            before = (await follower.next()).data
            await served.poll(5)
            changes = (await follower.next()).data

    for name, level in LEVELS.items():
        for row in changes.get(name, {"changed": ()})["changed"]:
            labels = {label: row[label] for label in IDENTITY_LABELS[level]}
            (known,) = [each for each in before[name] if labels.items() <= each.items()]
            assert row.keys() - labels.keys()
            assert all(known[field] != value for field, value in row.items() if field not in labels)
    assert "pods" not in changes


async def test_a_program_that_comes_back_gets_what_it_has_missed() -> None:
    """Nothing, one delta or everything."""
    async with serving(load("t4-timeslicing")) as served:
        await served.poll(0)
        url = f"{served.url}/api/v1/stream"
        async with following(served.client, url) as staying:
            first = await staying.next()
            await served.poll(5)
            second = await staying.next()
            async with following(served.client, url, Last_Event_ID=first.id) as back:
                step = await back.next()
            async with following(served.client, url, Last_Event_ID=second.id) as back:
                await served.poll(10)
                third = await back.next()
                assert third.raw == (await staying.next()).raw
            async with following(served.client, url, Last_Event_ID=first.id) as back:
                everything = await back.next()

    assert step.raw == second.raw
    assert third.name == "delta"
    assert (everything.name, everything.id) == ("snapshot", third.id)
    assert everything.data == apply(apply(first.data, second.data), third.data)
