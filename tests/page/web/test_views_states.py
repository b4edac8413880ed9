"""What the page says when something is missing, and that unknown is never shown as zero."""

import re
from dataclasses import replace

import pytest

from exporter.model import (
    ContainerRow,
    DeviceEvent,
    EventRow,
    GpuIdentity,
    GpuReading,
    GpuRow,
    MigReading,
    MigRow,
    SliceCount,
)
from exporter.web.node import caches
from exporter.web.node.caches import PageCache
from exporter.web.node.parameters import Place
from exporter.wording import UNKNOWN
from tests.page.web.views_reading import GIB, NOW, draw, gpu, holder, mig, scenario, snapshot


def card(page, name):
    """Return the total with that name."""
    return next(card for card in page.all(of="card") if card.one("h2").text == name)


def test_before_the_first_poll_it_says_to_wait() -> None:
    page = draw(replace(snapshot(node={"gpu_count": None}), sequence=0, collectors=()))

    assert "The first poll is running" in page.text
    assert "not polled yet" in page.text


def test_without_a_driver_it_says_why_and_what_to_run() -> None:
    page = draw(scenario("no-gpu"))

    panel = page.one(of="panel")
    assert "kernel module is not loaded" in panel.text
    assert [code.text for code in panel.all("code")] == ["gpuslice-exporter doctor", "gpuslice-exporter demo"]
    assert not page.all(of="card")
    assert not page.all("table")


def test_a_driver_without_gpus_is_not_called_silent() -> None:
    panel = draw(snapshot()).one(of="panel")

    assert "This node has no GPU" in panel.text
    assert "NVIDIA_VISIBLE_DEVICES" in panel.text


def test_old_readings_are_not_called_absent() -> None:
    assert "No current GPU readings" in draw(snapshot(node={"gpu_count": None})).one(of="panel").text


def test_unreadable_annotations_name_the_sharing_system() -> None:
    health = draw(snapshot(node={"blind": {"hami": "which GPU a container has"}})).one(id="health")

    assert "HAMi shares GPUs here" in health.text
    assert "Cannot determine which GPU a container has: pod annotations are not readable." in health.text


def test_without_the_kubelet_holders_are_not_known() -> None:
    silent = gpu(sharing="unknown", slices=(), holders=None, memory_entitled=None)

    page = draw(snapshot([silent], failing={"podresources": "no socket at /var/lib/kubelet"}))

    assert "The kubelet does not answer; holders are not known" in page.one(id="health").text
    assert "No socket at /var/lib/kubelet." in page.one(id="holders").text
    assert card(page, "Slices").one(of="figure").text == UNKNOWN


def test_a_kubelet_that_answers_is_not_blamed() -> None:
    row = gpu(holders=None, sharing="amd-partition", mig_enabled=True, mig=None)
    page = draw(snapshot([row], node={"allocations_read_at": NOW}))

    assert "the kubelet has not answered" not in page.text.lower()
    assert "the number of slices per GPU is not known" in page.one("section", id="holders").text


def test_old_allocations_carry_their_age() -> None:
    page = draw(
        snapshot(
            [gpu()], [holder("a")], node={"allocations_read_at": NOW - 17}, failing={"podresources": "x"}
        )
    )

    assert "holders are from 20 s ago" in page.one(id="health").text


def test_a_restarting_kubelet_is_reported_with_the_age_of_the_holders() -> None:
    node = {"allocations_read_at": NOW - 90, "unlisted_pods": 4}
    health = draw(snapshot([gpu()], [holder("a")], node=node)).one(id="health").text

    assert "does not list 4 running pods yet" in health
    assert "from 1 min ago" in health
    assert "does not list" not in draw(snapshot([gpu()], node=node | {"unlisted_pods": 0})).text


def test_an_empty_table_has_a_reason() -> None:
    free = gpu(slices=(SliceCount("nvidia.com/gpu", 1, 0),), holders=0)
    unoffered = gpu(sharing="none", slices=(), holders=0)

    assert "No pod holds or uses a GPU" in draw(snapshot([free])).one(id="holders").text
    assert "device plugin" in draw(snapshot([unoffered])).one(id="holders").text


def test_a_missing_host_pid_namespace_is_reported_with_the_fix() -> None:
    page = draw(scenario("gke"))

    assert page.one(id="health").text.count("set hostPID: true") == 1
    assert "doctor" in {link.attributes["href"] for link in page.one(id="health").all("a")}


def test_under_confidential_computing_the_page_says_why_use_is_unknown() -> None:
    page = draw(scenario("confidential"))

    assert page.one(id="health").text.count("confidential computing") == 1


def test_allocations_without_a_device_are_counted() -> None:
    page = draw(snapshot([gpu()], node={"unresolved": {"nvidia.com/gpu": 2}}))

    assert "2 allocated devices of nvidia.com/gpu not found" in page.one(id="health").text


def test_claims_of_an_unknown_driver_are_no_missing_devices() -> None:
    unknown = {"unresolved": {"dra.example.com": 2}, "unknown_drivers": frozenset({"dra.example.com"})}
    page = draw(snapshot([gpu()], node=unknown))

    assert "Resource claims of dra.example.com may be for GPUs" in page.one(id="health").text
    assert "not found" not in page.text


def test_a_device_that_is_held_twice_is_named_with_its_holders() -> None:
    unknown = {"isolation": "none", "memory_entitled": None, "compute_entitled": None}
    rows = [holder(name, **unknown) for name in ("a", "b")]
    contested = {rows[0].device: tuple(row.holder for row in rows)}
    page = draw(snapshot([gpu()], rows, node={"contested": contested}))

    health = page.one(id="health").text
    assert "GPU 0 is held by several containers at once" in health
    assert "Held by ml/a/main and ml/b/main." in health
    assert "1 device held twice" in card(page, "Needs attention").text
    titles = [dash.attributes["title"] for dash in page.one(id="holders").all("abbr")]
    assert titles.count("not known: another container holds the same device") == 4


@pytest.mark.parametrize("name", ["nvml", "podresources", "processes", "identity", "mapper"])
def test_every_failing_source_has_its_sentence(name) -> None:
    base = snapshot([gpu()], [holder("a")])
    sources = tuple(source for source in base.collectors if source.name != name)
    broken = replace(base.collectors[0], name=name, success=False, message="it is broken")

    page = draw(replace(base, collectors=(*sources, broken)))

    assert "It is broken." in page.one(id="health").text
    assert [item.text for item in page.one(of="sources").all("li") if "failing" in item.text]


def test_a_healthy_node_has_no_health_section() -> None:
    page = draw(snapshot([gpu()], [holder("a")]))

    assert not page.all(id="health")
    assert card(page, "Needs attention").one(of="figure").text == "nothing"


def test_demo_data_is_called_so() -> None:
    assert "Demo data" in draw(scenario("t4-timeslicing")).one(of="demo").text
    assert not draw(snapshot([gpu()])).all(of="demo")


@pytest.mark.parametrize(
    ("age", "text", "old"), [(3, "3 s", False), (-5, "0 s", False), (200, "3 min", True)]
)
def test_the_age_of_the_data_is_shown(age, text, old) -> None:
    page = draw(snapshot([gpu()]), now=NOW + age)

    polled = page.one("time")
    assert polled.text == f"polled {text} ago"
    assert bool(page.all("p", of="old")) == old


async def test_the_age_grows_while_no_poll_comes(monkeypatch) -> None:
    shown = snapshot([gpu()])
    pages = PageCache(lambda: shown)
    texts = []
    for age in (1, 90):
        monkeypatch.setattr(caches.time, "time", lambda age=age: NOW + age)
        texts.append((await pages.html(Place())).decode())

    assert "polled 1 s ago" in texts[0]
    assert "polled 1 min ago" in texts[1]


def test_unknown_is_a_dash_with_a_reason_and_never_a_zero() -> None:
    identity = GpuIdentity(uuid="GPU-0", index=3)
    device = mig("m").device
    bare = snapshot(
        [GpuRow(identity=identity, reading=GpuReading(identity=identity, mig_enabled=True))],
        [ContainerRow(holder=holder("b").holder, device=device)],
        [MigRow(device=device, reading=MigReading(uuid="m", gi=1, ci=0))],
        node={"gpu_count": None, "process_view": False},
    )

    page = draw(bare)

    row = page.one("tbody").one("tr")
    assert [cell.text for cell in row.all("td")][-2:] == [
        f"{UNKNOWN} / {UNKNOWN} GiB",
        f"{UNKNOWN} / {UNKNOWN} GPU",
    ]
    assert "unknown" in row.text
    assert all(dash.attributes["title"] for dash in page.all("abbr") if dash.text == UNKNOWN)
    assert not re.search(r"\b0(\.0+)?\b", row.text)
    for name in ("Memory", "Compute", "Slices"):
        assert card(page, name).one(of="figure").text.startswith(UNKNOWN)
    for drawn in page.all("svg", of="bar"):
        assert drawn.all("rect", of="f-unmeasured")


def test_an_observed_zero_is_a_zero() -> None:
    row = draw(snapshot([gpu()], [holder("a", memory_used=0, compute_used=0.0)])).one("tbody")

    assert "0.0 / 16.0 GiB" in row.text
    assert "0.00 / 1.00 GPU" in row.text
    assert not row.all(of="fill")


def test_states_have_a_word_an_icon_and_a_colour() -> None:
    rows = [
        holder("a"),
        holder("b", memory_used=20 * GIB),
        holder("c", memory_used=20 * GIB, isolation="none"),
        holder("d", slices=0),
        holder("e", compute_used=None),
    ]

    cells = draw(snapshot([gpu()], rows)).one("tbody").all("td", of="state")

    words = ["active", "over its share", "over its notional share", "uses without holding", "unknown"]
    looks = ["active", "over-share", "over-notional", "unheld", "unknown"]
    assert [cell.text for cell in cells] == words
    assert [cell.one("use").attributes["href"] for cell in cells] == [f"#i-{look}" for look in looks]
    assert all(f"c-{look}" in cell.classes for look, cell in zip(looks, cells, strict=True))


@pytest.mark.parametrize(
    ("facts", "degraded"),
    [
        ({}, False),
        ({"failing": {"identity": "x"}}, True),
        ({"node": {"process_view": False}}, True),
        ({"node": {"blind": {"hami": "x"}}}, True),
        ({"node": {"released": "of the file x"}, "failing": {"nvml": "given up"}}, False),
    ],
)
def test_the_head_leads_to_the_doctor_and_marks_it(facts, degraded) -> None:
    link = draw(snapshot([gpu()], [holder("a")], **facts)).one(of="sources").one("a")

    assert link.attributes["href"] == "doctor"
    assert link.text == ("something is degraded" if degraded else "doctor")


def test_problems_come_before_notes() -> None:
    page = draw(scenario("sick-gpus"))
    looks = ["is-bad" in line.classes for line in page.one(id="health").all("li")]

    assert looks == sorted(looks, reverse=True)
    assert any(looks)
    assert not all(looks)


def test_many_notices_leave_room_for_the_gpus() -> None:
    unresolved = {f"acme.io/{number}": 1 for number in range(9)}
    health = draw(snapshot([gpu()], node={"unresolved": unresolved})).one(id="health")

    assert len(health.all("li")) == 9
    assert len(health.one("details").all("li")) == 3
    assert health.one("summary").text == "3 more"


def test_a_notice_leads_to_the_gpu_that_it_is_of() -> None:
    lost = gpu(1, reading=None)
    (link,) = draw(snapshot([gpu(), lost], [holder("a")])).one(id="health").all("a")

    assert link.attributes["href"] == "gpu/GPU-1"


def test_the_pods_that_a_fault_may_have_hit_are_named() -> None:
    refs = tuple(holder(f"p{number}").holder for number in range(6))
    fault = EventRow(event=DeviceEvent(at=NOW - 60, kind="xid", uuid="GPU-0", xid=31), holders=refs)

    text = draw(snapshot([gpu()], events=(fault,))).one(id="health").text

    assert "XID 31 on GPU 0, 1 min ago." in text
    assert "Held by ml/p0, ml/p1, ml/p2 and 3 others at the time; all may be affected." in text


def test_gpus_without_offer_and_holder_are_not_called_broken() -> None:
    panel = draw(snapshot([gpu(sharing="none", slices=(), holders=0)])).one(id="holders").text

    assert "No pod holds a GPU" in panel
    assert "DRA" in panel


def test_the_totals_add_up() -> None:
    rows = [holder("a"), holder("b", "GPU-1", compute_used=None)]
    page = draw(snapshot([gpu(), gpu(1, unattributed_utilization=None, used=None)], rows))

    assert card(page, "Slices").one(of="figure").text == "2 held of 2"
    assert card(page, "Memory").one(of="figure").text == "≥ 8.0 GiB used of ≥ 16.0"
    assert card(page, "Compute").one(of="figure").text == "≥ 0.60 GPUs used of 2"
    assert "state of 1 of 2 holders unknown" in card(page, "Needs attention").text


def test_findings_are_counted_by_kind() -> None:
    rows = [holder("a", slices=0), holder("b", memory_used=20 * GIB)]
    page = draw(
        snapshot(
            [gpu(), gpu(1, reading=None)], rows, failing={"identity": "x"}, node={"unresolved": {"r": 1}}
        )
    )

    texts = [item.text for item in card(page, "Needs attention").all("li")]
    assert texts == [
        "1 GPU not answering",
        "1 allocated device not found",
        "1 over its share ml/ b",
        "1 without a slice ml/ a",
        "1 source failing",
    ]
