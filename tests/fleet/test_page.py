"""The page of the cluster."""

import re
from dataclasses import replace
from urllib.parse import quote

import pytest

from exporter.advice import advise
from exporter.fleet.amounts import UNKNOWN_AMOUNT, Amount, Share, Units, whole
from exporter.fleet.cluster_advice import ClusterAdvice
from exporter.fleet.model import Fleet, IdleHolder, Namespace, Node, NodeKey, SickGpu
from exporter.fleet.pages.tables import MOST_ROWS
from exporter.fleet.text import fleet_text
from exporter.fleet.watch import AdviceRead, FleetRead
from exporter.model import ContainerRef, DeviceKey
from exporter.wording import UNKNOWN
from tests.core.advice.simulated import Run, window
from tests.core.advice.simulated import whole as whole_gpu
from tests.fleet.shown import html, node, words

GIB = 1024.0**3
NOW = 1010.0
HOSTILE = '<script>alert(1)</script>"\u202e\x1b'


def _node(name: str, **values) -> Node:
    return node(name, **({"gpus": Amount(2, 1), "memory_total": Amount(80 * GIB, 2)} | values))


def _idle(name: str, node: NodeKey) -> IdleHolder:
    return IdleHolder(
        node=node,
        holder=ContainerRef(name, name, name),
        uuid=name,
        mig_uuid="",
        gpu=name,
        resource=name,
        seconds=700.0,
        memory_held=GIB,
        memory_used=None,
        compute_held=None,
    )


def _fleet(*nodes: Node, **values) -> Fleet:
    return Fleet(at=1000.0, window=86400.0, nodes=nodes or (_node("n1"),), **values)


def _page(fleet: Fleet, advice: AdviceRead = AdviceRead(), **orders: str) -> str:  # noqa: B008 - frozen
    return html(FleetRead(fleet=fleet, read_at=1000.0, reads=1, advice=advice), NOW, **orders)


def _words(fleet: Fleet) -> str:
    """Return the text of the page without its drawings."""
    return words(re.sub(r"<svg.*?</svg>", "", _page(fleet), flags=re.DOTALL))


def test_hostile_names_add_no_markup_and_reverse_no_text() -> None:
    node = _node(HOSTILE, models=((HOSTILE, 2),))
    idle = _idle(HOSTILE, node.key)
    sick = SickGpu(
        node=node.key, uuid=HOSTILE, gpu=HOSTILE, model=HOSTILE, severity="bad", reasons=(HOSTILE,)
    )
    held = window(Run(memory=[1], compute=[0.1]), device=whole_gpu(model=HOSTILE), opted_out=True)
    (use,) = held.uses
    use = replace(use, holder=idle.holder, device=DeviceKey(HOSTILE), node=HOSTILE)
    windows = [
        replace(held, namespace=HOSTILE, workload=workload, container=HOSTILE, cluster=cluster, uses=(use,))
        for workload, cluster in ((HOSTILE, ""), ("", HOSTILE))
    ]
    advice = AdviceRead(found=ClusterAdvice(at=1.0, advices=tuple(map(advise, windows))), error=HOSTILE)
    drawn = _page(
        _fleet(
            node,
            namespaces=(Namespace(name=HOSTILE, holders=1),),
            idle=(idle,),
            sick=(sick,),
            problems=((HOSTILE, HOSTILE),),
        ),
        advice,
    )

    assert "<script>alert" not in drawn
    assert not set(drawn) & {"\u202e", "\x1b"}
    assert drawn.count("&lt;script&gt;") >= 17
    assert f"holder/{quote(HOSTILE, safe='')}" in drawn
    assert set(re.findall(r'href="(\w+):', drawn)) == {"http"}


def test_a_silent_node_has_a_row_with_the_reason_and_makes_totals_incomplete() -> None:
    silent = _node(
        "n2",
        age=120.0,
        silent="its exporter does not answer",
        gpus=UNKNOWN_AMOUNT,
        memory_total=UNKNOWN_AMOUNT,
    )
    drawn = _page(_fleet(_node("n1"), silent))

    assert "not answering for 2 min: its exporter does not answer" in words(drawn)
    assert "of ≥ 80.0" in words(drawn)
    assert "1 silent node" in words(drawn)


def test_a_node_without_records_is_named_as_the_reason_of_unknown_sums() -> None:
    """Neither the page nor the text has a 0 that is not in a record."""
    there = {"containers": Amount(0, 1), "unhealthy": Amount(0, 2)}
    young = _fleet(_node("n1"), _node("n2", **there), all_namespaces=False, all_sick=False)
    complete = _fleet(_node("n2", **there))

    assert "Records of 1 node are missing. New nodes and new rules have them after a minute." in _words(young)
    assert f"by {UNKNOWN} holders in {UNKNOWN} namespaces" in _words(young)
    assert "! records of 1 node are missing. New nodes" in fleet_text(young)
    assert "Namespaces that hold GPUs are not known." in fleet_text(young)
    assert "are missing" not in _words(complete) + fleet_text(complete)


def test_unknown_compute_of_a_namespace_is_a_dash_and_a_known_part_a_least_figure() -> None:
    unknown = Namespace(name="mig", holders=2, compute=Share(held=Amount(1, 2)))
    partly = Namespace(
        name="mixed", holders=2, compute=Share(Amount(1, 2), Amount(0.25, 1, 1), Amount(0.5, 1, 1))
    )
    drawn = _page(_fleet(namespaces=(unknown, partly)))

    assert f"{UNKNOWN} / 1.00 GPU" in words(drawn)
    assert "≥ 0.25 / 1.00 GPU" in words(drawn)
    assert "not measured there" in drawn


def test_rows_beyond_the_limit_of_a_table_are_counted() -> None:
    drawn = _page(_fleet(*(_node(f"n{number}") for number in range(MOST_ROWS["nodes"] + 7))))

    assert drawn.count('<th scope="row">') == MOST_ROWS["nodes"]
    assert "and 7 more" in words(drawn)


def test_the_page_does_not_refer_to_the_json_for_idle_holders_that_it_lacks_too() -> None:
    node = _node("n1", idle_holders=Amount(300, 1), idle_compute=Amount(2.0, 1))
    drawn = _page(_fleet(node, idle=(_idle("train-0", node.key),)))
    section = drawn.partition('id="idle"')[2].partition("</section>")[0]

    assert "and 299 more" in section
    assert "JSON" not in section


@pytest.mark.parametrize(
    ("order", "first"), [("", "waster"), ("name", "a"), ("gpus", "large"), ("nonsense", "waster")]
)
def test_tables_are_sorted_by_the_order_in_the_url(order: str, first: str) -> None:
    """An unknown order is the default of the table."""
    waster = _node("waster", compute=Share(Amount(2, 2), Amount(0, 2), Amount(2, 2)))
    drawn = _page(_fleet(_node("a"), _node("large", gpus=Amount(8, 1)), waster), nodes=order)

    rows = re.findall(r'<th scope="row"><a href="http://(\w+):', drawn)
    assert rows[0] == first
    assert drawn.count('aria-sort="') == 2


def test_before_the_first_answer_the_page_has_the_error_and_its_age() -> None:
    error = "Prometheus cannot be reached: Connection refused"
    drawn = html(FleetRead(error=error, failing_since=710.0, reads=2, failures=2), NOW)

    assert f"The cluster could not be read for 5 min. {error}" in words(drawn)
    assert "not read yet" in drawn


def test_an_old_answer_is_shown_with_its_age() -> None:
    look = FleetRead(
        fleet=_fleet(), read_at=700.0, error="Prometheus did not answer", failing_since=740.0, reads=9
    )
    drawn = html(look, NOW)

    assert "n1" in drawn
    assert "read 5 min ago" in drawn
    assert 'class="age old"' in drawn
    assert "The page shows the last answer." in words(drawn)


def test_the_page_has_the_age_from_which_it_is_old_for_the_script() -> None:
    fleet = _fleet()
    calm = html(FleetRead(fleet=fleet, read_at=900.0, reads=1, interval=60.0), NOW)
    failing = html(
        FleetRead(fleet=fleet, read_at=1009.0, reads=2, failures=1, error="away", interval=60.0), NOW
    )

    assert 'class="age fresh" data-done="read" data-old="180.0"' in calm
    assert 'class="age old" data-done="read" data-old="0.0"' in failing


@pytest.mark.parametrize(
    ("held", "offered", "free"),
    [
        (Amount(3, 2), Amount(8, 2), "5 free"),
        (Amount(3, 1, 1), Amount(8, 2), "at most 5 free"),
        (Amount(3, 2), Amount(8, 1, 1), "≥ 5 free"),
        (Amount(3, 1, 1), Amount(8, 1, 1), ""),
    ],
)
def test_what_is_free_is_bounded_by_what_is_known(held: Amount, offered: Amount, free: str) -> None:
    """With unknown holders fewer are free, with unknown slices more, and with both it is unknown."""
    node = _node("n1", slices=Units("", held, offered), units=())
    card = _words(_fleet(node)).partition("Slices ")[2].partition(" by ")[0]

    assert card == f"{held.text(whole)} held of {offered.text(whole)} {free}".strip()


@pytest.mark.parametrize(
    ("unhealthy", "free"), [(0.0, "5 free"), (1.0, "at most 5 free, 1 unhealthy"), (None, "at most 5 free")]
)
def test_unhealthy_slices_may_be_among_the_free(unhealthy: float | None, free: str) -> None:
    """The sums do not show whether they are held."""
    node = _node("n1", slices=Units("", Amount(3, 2), Amount(8, 2), unhealthy), units=())

    assert f"3 held of 8 {free}" in _words(_fleet(node))


def test_units_of_different_resources_are_not_summed() -> None:
    """They follow the total of slices, each with its resource."""
    whole_gpus = _node("n1", slices=Units("", Amount(3, 2), Amount(8, 2)), units=())
    units = (
        Units("tencent.com/vcuda-core", Amount(100, 1, 2), Amount(300, 3)),
        Units("tencent.com/vcuda-memory", Amount(6144, 2), Amount(0, 0, 2)),
    )
    shared = _node("n2", slices=Units("", Amount(), Amount()), units=units)
    text = _words(_fleet(whole_gpus, shared))
    alone = _words(_fleet(shared))

    assert "Slices 3 held of 8 slices 5 free ≥ 100 of 300 vcuda-core · 6144 vcuda-memory · by" in text
    assert "≥ 100 of 300 vcuda-core , 6144 vcuda-memory" in text
    assert "Slices ≥ 100 held of 300 vcuda-core at most 200 free 6144 vcuda-memory · by" in alone


def test_without_slices_unknown_units_are_a_dash() -> None:
    drawn = _page(_fleet(_node("n1", slices=Units("", Amount(), Amount()), units=None)))

    assert f"Slices {UNKNOWN} of {UNKNOWN}" in words(drawn)


def test_nouns_agree_with_their_counts() -> None:
    assert "1 node · 1 GPU · 0 namespaces" in _words(_fleet(_node("n1", gpus=Amount(1, 1))))
