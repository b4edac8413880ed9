"""The four totals: what is held in which unit, how much of it is used, and where a finding leads."""

from exporter.model import Memory, SliceCount, Totals
from tests.page.web.views_reading import GIB, NOW, draw, gpu, holder, snapshot


def card(page, name):
    """Return the total with that name."""
    return next(card for card in page.all(of="card") if card.one("h2").text == name)


def units(resource, offered, held):
    """Return the units of one resource on a GPU."""
    return {"slices": (SliceCount(resource, offered, held),)}


def test_slices_of_all_ways_to_cut_are_counted_together() -> None:
    shared = gpu(1, "time-slicing", **units("nvidia.com/gpu", 10, 4))
    slices = card(draw(snapshot([gpu(), shared], [holder("a")])), "Slices")

    assert slices.one(of="figure").text == "5 held of 11"
    assert "6 free" in slices.text
    assert slices.one(of="detail").text == "by 1 container"


def test_units_of_a_system_are_shown_next_to_the_slices() -> None:
    rows = [gpu(), gpu(1), gpu(2, "cgpu", **units("aliyun.com/gpu-mem", 22, 16))]
    slices = card(draw(snapshot(rows, [holder("a")])), "Slices")

    assert slices.one(of="figure").text == "2 held of 2"
    assert slices.one(of="detail").text == "by 1 container · cGPU 16 of 22"


def test_a_node_of_one_system_is_counted_in_its_unit() -> None:
    rows = [gpu(at, "cgpu", **units("aliyun.com/gpu-mem", 22, 16)) for at in range(2)]
    slices = card(draw(snapshot(rows, [holder("a")])), "Slices")

    assert slices.one(of="figure").text == "32 held of 44"
    assert slices.one(of="detail").text == "of aliyun.com/gpu-mem · by 1 container"


def test_where_units_have_nothing_in_common_gpus_are_counted() -> None:
    both = (SliceCount("acme.io/core", 100, 40), SliceCount("acme.io/memory", 30, 6))
    rows = [gpu(0, "acme", slices=both), gpu(1, "acme", slices=both, holders=0)]
    slices = card(draw(snapshot(rows, [holder("a")])), "Slices")

    assert slices.one(of="figure").text == "1 held of 2 GPUs"
    assert slices.one(of="detail").text == "by 1 container · acme 80 of 200 core, 12 of 60 memory"


def test_slices_of_no_fixed_number_have_no_whole() -> None:
    slices = card(draw(snapshot([gpu(**units("gpu.nvidia.com", None, 1))], [holder("a")])), "Slices")

    assert slices.one(of="figure").text == "1 held"
    assert not slices.all("svg")


def test_the_used_part_of_what_is_held_is_shown() -> None:
    known = card(draw(snapshot([gpu(used=4 * GIB)], [holder("a")])), "Memory")
    unknown = card(draw(snapshot([gpu(used=4 * GIB), gpu(1, memory_entitled=None)])), "Memory")

    assert "used, 25% of held" in known.text
    assert "of held" not in unknown.text


def test_slices_that_may_be_held_are_not_called_free() -> None:
    rows = [gpu(), gpu(1, **units("nvidia.com/gpu", 4, None))]
    slices = card(draw(snapshot(rows, [holder("a")])), "Slices")

    assert slices.one(of="figure").text == "≥ 1 held of 5"
    assert "at most 4 free" in slices.text


def test_the_reason_for_unknown_holders_is_the_same_everywhere() -> None:
    shown = snapshot([gpu(holders=None)], node={"allocations_read_at": NOW})
    page = draw(shown)
    why = "he kubelet answers, but the number of slices per GPU is not known"

    assert why in card(page, "Slices").one("abbr").attributes["title"]
    assert why in page.one(id="holders-none").text


def test_more_memory_than_is_held_is_not_hidden() -> None:
    full = gpu(memory_entitled=4 * GIB, memory=Memory(total=16 * GIB, used=8 * GIB, free=8 * GIB))

    assert "used, more than held" in card(draw(snapshot([full], [holder("a")])), "Memory").text


def test_a_finding_leads_to_the_holders_that_it_counts() -> None:
    rows = [
        holder("a", memory_used=20 * GIB),
        holder("b", memory_used=20 * GIB, isolation="none"),
        holder("c", slices=0),
        holder("d", compute_used=0.0, totals=Totals(first_seen=NOW - 9999, last_active=NOW - 9000)),
    ]
    found = [
        link
        for link in card(draw(snapshot([gpu()], rows)), "Needs attention").all("a")
        if link.attributes["href"].startswith("?")
    ]

    assert {link.attributes["href"]: link.text for link in found} == {
        "?state=over-share#holders": "1 over its share",
        "?state=over-notional#holders": "1 over a notional share",
        "?state=unheld#holders": "1 without a slice",
        "?state=idle-memory#holders": "1 idle, holding 7.0 GiB",
    }


def test_a_finding_names_the_first_of_its_holders() -> None:
    idle = {"compute_used": 0.0, "totals": Totals(first_seen=NOW - 9999, last_active=NOW - 9000)}
    rows = [holder(pod, memory_used=size * GIB, **idle) for pod, size in (("a", 1), ("b", 3), ("c", 2))]
    found = card(draw(snapshot([gpu()], rows)), "Needs attention")

    assert [link.attributes["href"] for link in found.all(of="who")] == [
        "holder/ml/b/main",
        "holder/ml/c/main",
    ]
    assert "and 1 more" in found.one(of="finding-holders").text


def test_waste_is_added_up_holder_by_holder() -> None:
    rows = [
        holder("a", memory_used=20 * GIB, compute_used=1.0),
        holder("b", memory_used=10 * GIB, compute_used=0.75),
        holder("c", slices=0, memory_entitled=None, compute_entitled=None),
    ]
    page = draw(snapshot([gpu()], rows))

    assert card(page, "Memory").one(of="waste").text == "6.0 GiB held but not used"
    assert card(page, "Compute").one(of="waste").text == "0.25 GPUs held but not used"


def test_waste_that_is_not_known_is_not_zero() -> None:
    silent = holder("b", memory_used=None, compute_used=None)
    page = draw(snapshot([gpu()], [holder("a"), silent]))
    unknown = draw(snapshot([gpu()], [silent]))

    assert card(page, "Memory").one(of="waste").text == "≥ 9.0 GiB held but not used"
    assert not card(unknown, "Memory").all(of="waste")
