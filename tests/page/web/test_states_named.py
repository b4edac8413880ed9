"""Each fact about a holder that deserves attention is named on the pages, in the text and in the JSON."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.formats.json_csv import snapshot_csv, snapshot_json
from exporter.formats.text import snapshot_text
from exporter.model import DeviceKey, Totals
from exporter.web.kit.html import page
from exporter.web.node.pages.layout import holder_drawing
from exporter.web.node.pages.scene import Scene
from tests.page.web.holders_reading import asked, pods
from tests.page.web.test_views_totals import card
from tests.page.web.views_reading import GIB, NOW, UUID, draw, gpu, holder, read, snapshot

WORDS = {
    "idle": "idle",
    "idle-memory": "idle, holding memory",
    "over-share": "over its share",
    "over-notional": "over its notional share",
    "unheld": "uses without holding",
    "unhealthy": "slice reported unhealthy",
    "contested": "device held twice",
}
FOUND = {
    "idle": "1 idle",
    "idle-memory": "1 idle, holding ",
    "over-share": "1 over its share",
    "over-notional": "1 over a notional share",
    "unheld": "1 without a slice",
}
BUSY = Totals(first_seen=NOW - 9000, last_active=NOW, seen_computing=True)
RESTING = Totals(first_seen=NOW - 9000, last_active=NOW - 8000, seen_computing=True)

FACTS = st.fixed_dictionaries(
    {
        "slices": st.sampled_from([0, 1]),
        "sharing": st.sampled_from(["time-slicing", "mps", "hami"]),
        "isolation": st.sampled_from(["hard", "soft", "none", ""]),
        "memory_used": st.sampled_from([None, 0, GIB, 8 * GIB]),
        "memory_entitled": st.sampled_from([None, 4 * GIB]),
        "compute_used": st.sampled_from([None, 0.0, 0.1, 0.9]),
        "compute_entitled": st.sampled_from([None, 0.5]),
        "totals": st.sampled_from([None, BUSY, RESTING]),
        "health": st.sampled_from(["", "Healthy", "Unknown", "Unhealthy", "Degraded"]),
    }
)


def deserving(facts: dict[str, Any], contested: bool) -> set[str]:
    """Return the facts that deserve attention, each judged by itself."""
    enforced = facts["isolation"] != "none"
    over_memory = (facts["memory_used"] or 0) > (facts["memory_entitled"] or 1 << 60)
    over_compute = (facts["compute_used"] or 0) > (facts["compute_entitled"] or 1) + 0.01
    over_compute = over_compute and facts["sharing"] != "mps"
    rests = facts["compute_used"] == 0 and facts["totals"] is RESTING
    judged = {
        "unheld": facts["slices"] == 0,
        # Without a slice there is no share to be over.
        "over-share": facts["slices"] and enforced and (over_memory or over_compute),
        "over-notional": facts["slices"] and not enforced and over_memory,
        "idle": rests and not facts["memory_used"],
        "idle-memory": rests and facts["memory_used"],
        "unhealthy": facts["health"] in ("Unhealthy", "Degraded"),
        "contested": contested,
    }
    return {name for name, holds in judged.items() if holds}


def named(text: str) -> set[str]:
    """Return the facts that are named in a list of states."""
    found = {name for name, word in WORDS.items() if word in text}
    return found - {"idle"} if "idle-memory" in found else found


@settings(max_examples=200, deadline=None)
@given(FACTS, st.booleans())
def test_each_fact_that_deserves_attention_is_named(facts: dict[str, Any], contested: bool) -> None:
    row, other = holder("a", **facts), holder("b", "GPU-1")
    node = {"contested": {DeviceKey(UUID): (row.holder,)}} if contested else {}
    shown = snapshot([gpu(), gpu(1)], [row, other], node=node)
    expected = deserving(facts, contested)

    front = draw(shown)
    assert named(front.one("tbody").all("td", of="state")[0].text) == expected
    texts = [item.all("a")[0].text for item in card(front, "Needs attention").all("li")]
    for name, start in FOUND.items():
        found = [text for text in texts if text == start or (start.endswith(" ") and text.startswith(start))]
        assert len(found) == (name in expected), (name, texts)
    names = tuple(row.holder)
    own = read(page(holder_drawing(Scene(shown, now=NOW, root="../../../"), *names), "../../../"))
    assert named(own.one("p", of="state").text) == expected
    (line,) = [line for line in snapshot_text(shown, now=NOW).splitlines() if "ml/a/main" in line]
    assert named(line) == expected
    record = json.loads(json.dumps(snapshot_json(shown)))["containers"][0]
    states = {record["state"], *record["other_states"]}
    assert states & WORDS.keys() == expected
    (cells,) = [line for line in snapshot_csv(shown).splitlines() if ",a,main," in line]
    assert all(name in cells for name in expected)


@settings(max_examples=100, deadline=None)
@given(FACTS)
def test_a_row_is_found_by_each_of_its_states(facts: dict[str, Any]) -> None:
    shown = snapshot([gpu()], [holder("a", **facts)])
    record = snapshot_json(shown)["containers"][0]

    for state in (record["state"], *record["other_states"]):
        assert pods(asked(f"?state={state}", shown)) == ["a"]
