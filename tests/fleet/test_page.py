"""The page of the cluster, drawn by hand-made looks."""

import re
from dataclasses import replace
from urllib.parse import quote

import pytest

from exporter.advice import advise
from exporter.fleet import (
    Fleet,
    IdleHolder,
    IdleTotals,
    Namespace,
    Node,
    NodeKey,
    SickGpu,
    Target,
)
from exporter.fleet.amounts import Amount, Share, Units, whole
from exporter.fleet.cluster_advice import ClusterAdvice
from exporter.fleet.targets import NodeLinks
from exporter.fleet.watch import AdviceRead, FleetRead
from exporter.formats.wording import UNKNOWN
from exporter.model import ContainerRef, DeviceKey
from exporter.web.cluster.fleet_page import FleetScene, fleet_drawing
from exporter.web.cluster.fleet_tables import SHOWN, Orders
from exporter.web.html import page
from tests.advice.simulated import Run, window
from tests.advice.simulated import whole as whole_gpu

GIB = 1024.0**3
HOSTILE = '<script>alert(1)</script>"\u202e\x1b'


def _node(name: str, **known) -> Node:
    told = {"gpus": Amount(2, 1), "memory_total": Amount(80 * GIB, 2)}
    return Node(key=NodeKey("", name), target=Target("", "gpus", f"{name}:9836"), age=4.0, **(told | known))


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


def _fleet(**known) -> Fleet:
    return Fleet(at=1000.0, window=86400.0, **({"nodes": (_node("n1"),)} | known))


def _html(look: FleetRead, **orders: str) -> str:
    scene = FleetScene(look, 1010.0, NodeLinks(), Orders(**orders))
    return page(fleet_drawing(scene), "")


def _of(fleet: Fleet, advice: AdviceRead = AdviceRead(), **orders: str) -> str:  # noqa: B008 - frozen
    return _html(FleetRead(fleet=fleet, read_at=1000.0, reads=1, advice=advice), **orders)


def _text(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def _seen(fleet: Fleet) -> str:
    """Give the words of the page without those of its drawings."""
    return _text(re.sub(r"<svg.*?</svg>", "", _of(fleet), flags=re.DOTALL))


def test_hostile_names_stay_text() -> None:
    """Whatever a name of the cluster is, it adds no markup and turns no text around."""
    node = _node(HOSTILE, models=((HOSTILE, 2),))
    idle = _idle(HOSTILE, node.key)
    sick = SickGpu(
        node=node.key, uuid=HOSTILE, gpu=HOSTILE, model=HOSTILE, severity="bad", reasons=(HOSTILE,)
    )
    held = window(Run(memory=[1], compute=[0.1]), device=whole_gpu(model=HOSTILE), opted_out=True)
    (use,) = held.uses
    here = replace(use, holder=idle.holder, device=DeviceKey(HOSTILE), node=HOSTILE)
    named = [
        replace(held, namespace=HOSTILE, workload=workload, container=HOSTILE, cluster=cluster, uses=(here,))
        for workload, cluster in ((HOSTILE, ""), ("", HOSTILE))
    ]
    advice = AdviceRead(found=ClusterAdvice(at=1.0, advices=tuple(map(advise, named))), error=HOSTILE)
    html = _of(
        _fleet(
            nodes=(node,),
            namespaces=(Namespace(name=HOSTILE, holders=1),),
            idle=(idle,),
            idle_totals=IdleTotals(1, None),
            sick=(sick,),
            problems=((HOSTILE, HOSTILE),),
        ),
        advice,
    )

    assert "<script>alert" not in html
    assert not set(html) & {"\u202e", "\x1b"}
    assert html.count("&lt;script&gt;") >= 17
    assert f"holder/{quote(HOSTILE, safe='')}" in html
    assert set(re.findall(r'href="(\w+):', html)) == {"http"}


def test_a_silent_node_is_not_an_empty_one() -> None:
    """It has a row that says so, and the totals are marked as not complete."""
    silent = Node(
        key=NodeKey("", "n2"),
        target=Target("", "gpus", "n2:1"),
        age=120.0,
        silent="its exporter does not answer",
    )
    html = _of(_fleet(nodes=(_node("n1"), silent)))

    assert "not answering for 2 min: its exporter does not answer" in _text(html)
    assert "of ≥ 80.0" in _text(html)
    assert "1 silent node" in _text(html)


def test_what_is_not_measured_is_a_dash() -> None:
    """A namespace whose compute is not known has a dash with a reason, and a least figure where a part is."""
    unknown = Namespace(name="mig", holders=2, compute=Share(held=Amount(1, 2)))
    partly = Namespace(
        name="mixed", holders=2, compute=Share(Amount(1, 2), Amount(0.25, 1, 1), Amount(0.5, 1, 1))
    )
    html = _of(_fleet(namespaces=(unknown, partly)))

    assert f"{UNKNOWN} / 1.00 GPU" in _text(html)
    assert "≥ 0.25 / 1.00 GPU" in _text(html)
    assert "not measured there" in html


def test_long_tables_end_and_say_so() -> None:
    """More nodes than the page has rows for are counted."""
    many = tuple(_node(f"n{number}") for number in range(SHOWN["nodes"] + 7))
    html = _of(_fleet(nodes=many))

    assert html.count('<th scope="row">') == SHOWN["nodes"]
    assert "and 7 more" in _text(html)


def test_idle_holders_that_are_not_listed_are_not_promised_elsewhere() -> None:
    """They are counted in Prometheus, and the JSON lists no more of them than are read."""
    html = _of(_fleet(idle=(_idle("train-0", NodeKey("", "n1")),), idle_totals=IdleTotals(300, 2.0)))
    section = html.partition('id="idle"')[2].partition("</section>")[0]

    assert "and 299 more" in section
    assert "JSON" not in section


@pytest.mark.parametrize(
    ("order", "first"), [("", "waster"), ("name", "a"), ("gpus", "large"), ("nonsense", "waster")]
)
def test_tables_stand_in_the_order_that_the_url_names(order: str, first: str) -> None:
    """The order is made on the server; one that is not known is that of the table itself."""
    waster = _node("waster", compute=Share(Amount(2, 2), Amount(0, 2), Amount(2, 2)))
    html = _of(_fleet(nodes=(_node("a"), _node("large", gpus=Amount(8, 1)), waster)), nodes=order)

    rows = re.findall(r'<th scope="row"><a href="http://(\w+):', html)
    assert rows[0] == first
    assert html.count('aria-sort="') == 2


def test_no_prometheus_is_said_with_since_when() -> None:
    """Before the first answer the page has no figures, and says why and for how long."""
    html = _html(
        FleetRead(
            error="Prometheus cannot be reached: Connection refused", failing_since=710.0, reads=2, failures=2
        )
    )

    assert (
        "The cluster could not be read for 5 min. Prometheus cannot be reached: Connection refused"
        in _text(html)
    )
    assert "not read yet" in html


def test_an_old_look_is_shown_as_old() -> None:
    """What was known stays on the page, with its age and the error."""
    look = FleetRead(
        fleet=_fleet(), read_at=700.0, error="Prometheus did not answer", failing_since=740.0, reads=9
    )
    html = _html(look)

    assert "n1" in html
    assert "read 5 min ago" in html
    assert 'class="age old"' in html
    assert "The page shows the last answer." in _text(html)


def test_the_page_says_from_what_age_on_it_is_old() -> None:
    """That stands where the script finds it, with what was done: a look is no poll, and may be seldom."""
    fleet = _fleet()
    calm = _html(FleetRead(fleet=fleet, read_at=900.0, reads=1, interval=60.0))
    failing = _html(FleetRead(fleet=fleet, read_at=1009.0, reads=2, failures=1, error="away", interval=60.0))

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
    """Holders that are not known leave less, slices that are not known leave more, and both leave nothing."""
    node = _node("n1", slices=Units("", held, offered), units=())
    card = _seen(_fleet(nodes=(node,))).partition("Slices ")[2].partition(" by ")[0]

    assert card == f"{held.text(whole)} held of {offered.text(whole)} {free}".strip()


@pytest.mark.parametrize(
    ("unhealthy", "free"), [(0.0, "5 free"), (1.0, "at most 5 free, 1 unhealthy"), (None, "at most 5 free")]
)
def test_an_unhealthy_slice_may_be_one_of_the_free(unhealthy: float | None, free: str) -> None:
    """An unhealthy slice that is not held is not free; the sums do not show whether it is held."""
    node = _node("n1", slices=Units("", Amount(3, 2), Amount(8, 2), unhealthy), units=())

    assert f"3 held of 8 {free}" in _seen(_fleet(nodes=(node,)))


def test_units_of_different_resources_are_not_added_up() -> None:
    """Slices are the total; what sharing systems give out stands beside it, each resource on its own."""
    shared = _node("n1", slices=Units("", Amount(3, 2), Amount(8, 2)), units=())
    units = (
        Units("tencent.com/vcuda-core", Amount(100, 1, 2), Amount(300, 3)),
        Units("tencent.com/vcuda-memory", Amount(6144, 2), Amount(0, 0, 2)),
    )
    cut = _node("n2", slices=Units("", Amount(), Amount()), units=units)
    text = _seen(_fleet(nodes=(shared, cut)))
    alone = _seen(_fleet(nodes=(cut,)))

    assert "Slices 3 held of 8 slices 5 free ≥ 100 of 300 vcuda-core · 6144 vcuda-memory · by" in text
    assert "≥ 100 of 300 vcuda-core , 6144 vcuda-memory" in text
    assert "Slices ≥ 100 held of 300 vcuda-core at most 200 free 6144 vcuda-memory · by" in alone


def test_units_that_could_not_be_asked_are_not_none() -> None:
    """A node without slices of the vendors' plug-ins may have units: a dash, and no 0."""
    html = _of(_fleet(nodes=(_node("n1", slices=Units("", Amount(), Amount()), units=None),)))

    assert f"Slices {UNKNOWN} of {UNKNOWN}" in _text(html)


def test_one_gpu_is_no_gpus() -> None:
    """Counts agree with their nouns."""
    assert "1 node · 1 GPU · 0 namespaces" in _text(_of(_fleet(nodes=(_node("n1", gpus=Amount(1, 1)),))))
