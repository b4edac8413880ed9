"""The page of one holder: what it holds and uses, and its neighbours."""

from dataclasses import replace

import pytest

from exporter.model import ContainerRef, DeviceEvent, DeviceKey, EventRow, Memory, PodRow, ProcessRow, Totals
from exporter.web.kit.html import page
from exporter.web.node.pages.layout import holder_drawing
from exporter.web.node.pages.scene import Scene
from tests.page.web.views_reading import GIB, NOW, SCENARIOS, UUID, gpu, holder, mig, read, scenario, snapshot

ROOT = "../../../"
HOSTILE = '"><img src=x onerror=alert(1)>'

DMEM = {"limit_backend": "dmem"}


def draw(shown, *names, **options):
    """Return the parsed page of a container, three seconds after the poll, or None."""
    scene = Scene(shown, **({"now": shown.timestamp + 3, "root": ROOT} | options))
    drawing = holder_drawing(scene, *(names or ("ml", "train", "main")))
    return None if drawing is None else read(page(drawing, ROOT))


def answers(shown, *names) -> list[str]:
    """Return the answers to the questions."""
    return [
        " ".join(line.text for line in answer.all("p"))
        for answer in draw(shown, *names).one("section", id="answers").all("div")
    ]


def life(shown) -> dict[str, str]:
    """Return what adds up over a holder's life, by name."""
    lines = draw(shown).one("dl", of="life").all("div")
    return {line.one("dt").text: line.one("dd").text for line in lines}


def shared(name="train", device=UUID, **facts):
    """Return a container that holds a replica of which nothing enforces the share."""
    values = {
        "sharing": "time-slicing",
        "isolation": "none",
        "memory_entitled": 4 * GIB,
        "compute_entitled": 0.25,
    }
    return holder(name, device, **(values | {"memory_used": 2 * GIB, "compute_used": 0.2} | facts))


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_holder_of_every_scenario_has_a_page(name) -> None:
    shown = scenario(name)
    for ref in {row.holder for row in shown.containers}:
        drawn = draw(shown, ref.namespace, ref.pod, ref.container)
        ids = [element.attributes["id"] for element in drawn.all() if "id" in element.attributes]
        assert len(ids) == len(set(ids))
        assert ref.pod in drawn.one("h1").text
        assert len(drawn.all("section", of="on")) == sum(row.holder == ref for row in shown.containers)
        for element in drawn.all():
            address = element.attributes.get("href") or ""
            assert address.startswith(("#", "?", "../../../")) or not address


def test_a_holder_that_is_gone_has_no_page() -> None:
    shown = snapshot([gpu()], [holder("train")])

    assert draw(shown, "ml", "train", "main") is not None
    assert draw(shown, "ml", "train", "other") is None
    assert draw(shown, "ml", "train", "") is None
    assert draw(shown, "ml", "gone", "main") is None


def test_a_pod_whose_containers_cannot_be_told_apart_has_a_page() -> None:
    row = replace(holder("train"), holder=ContainerRef("ml", "train", ""))
    beside = shared("other")

    assert "any container" in draw(snapshot([gpu()], [row]), "ml", "train", "").one("h1").text
    links = draw(snapshot([gpu()], [row, beside]), "ml", "other", "main").one(of="other-holders").all("a")
    assert [link.attributes["href"] for link in links] == [f"{ROOT}holder/ml/train/"]


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({}, "Yes: it uses 0.60 of the 1.00 GPU it is entitled to."),
        ({"compute_entitled": 0.25}, "Yes: it uses 0.60 of a GPU now, beyond its share of 0.25."),
        (
            {"compute_used": 0.0},
            "Not at this moment: it last computed 30 s ago, and keeps 7.0 GiB of memory.",
        ),
        (
            {
                "compute_used": 0.0,
                "totals": Totals(first_seen=NOW - 9000, last_active=NOW - 7200, seen_computing=True),
            },
            "No: it has not computed for 2 h 0 min, and keeps 7.0 GiB of memory.",
        ),
        (
            {"compute_used": 0.0, "totals": Totals(first_seen=NOW - 7200, last_active=NOW - 7200)},
            "No: it has not computed since monitoring began 2 h 0 min ago, and keeps 7.0 GiB of memory.",
        ),
        (
            {"compute_used": None, "processes": 2},
            "Not known: the driver does not report the compute of its processes. It has 2",
        ),
        (
            {"slices": 0, "compute_entitled": None},
            "It uses this device without holding a slice of it.",
        ),
    ],
)
def test_whether_a_slice_is_used_is_said_in_a_sentence(facts, text) -> None:
    assert answers(snapshot([gpu()], [holder("train", **facts)]))[0].startswith(text)


def test_where_nothing_enforces_shares_the_neighbours_explain_the_memory() -> None:
    rows = [shared(memory_used=5 * GIB), shared("small"), shared("thief", memory_used=6 * GIB)]
    board = gpu(memory=Memory(total=16 * GIB, used=14 * GIB, free=2 * GIB))

    assert answers(snapshot([board], rows))[1] == (
        "It uses 5.0 GiB; its share of 4.0 GiB is not enforced. "
        "Its 2 neighbours use 8.0 GiB, the largest of them ml/thief with 6.0 GiB, beyond its share of 4.0. "
        "2.0 of the device's 16.0 GiB are free, first come, first served."
    )


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"isolation": "hard"}, "It uses 7.0 of 16.0 GiB, which no other container can take."),
        (
            {"isolation": "hard", "memory_used": 16 * GIB - 1},
            "Only <0.1 GiB are left: the next allocation",
        ),
        ({"isolation": "soft", "sharing": "hami"}, "of the 16.0 GiB that HAMi allows it. Allocations above"),
        (
            {"isolation": "soft", "memory_used": 17 * GIB},
            "1.0 GiB over the limit: the limit is not enforced.",
        ),
        (
            {"memory_guaranteed": 4 * GIB, "memory_limit": 8 * GIB, "memory_charged": 7 * GIB, **DMEM},
            "hard limit 8.0 GiB, by the kernel (dmem); 7.0 GiB charged, borrowing: it may be evicted under",
        ),
        (
            {"memory_guaranteed": 4 * GIB, "memory_charged": 3 * GIB, **DMEM},
            "no hard limit, by the kernel (dmem); 3.0 GiB charged, within its soft limit. 1.0 GiB more are",
        ),
        (
            {"memory_guaranteed": 0, "memory_limit": 7 * GIB, **DMEM},
            "hard limit 7.0 GiB, by the kernel (dmem); what is charged is not known.",
        ),
        ({"memory_used": None}, "Its memory use is not known: the driver does not report"),
        ({"memory_entitled": None, "slices": 0}, "has no known entitlement: it holds nothing here."),
    ],
)
def test_the_memory_that_is_left_depends_on_what_enforces_it(facts, text) -> None:
    assert text in answers(snapshot([gpu()], [holder("train", **facts)]))[1]


@pytest.mark.parametrize(
    ("above", "entitled", "said"),
    [(False, 16 * GIB, True), (True, 8 * GIB, True), (True, 16 * GIB, False)],
)
def test_what_is_left_of_a_limit_for_several_containers_is_not_known(above, entitled, said) -> None:
    facts = {"memory_guaranteed": 0, "memory_limit": 8 * GIB, "memory_charged": 3 * GIB}
    row = holder("train", memory_limit_above=above, memory_entitled=entitled, **facts, **DMEM)
    assert ("It can allocate 5.0 GiB more" in answers(snapshot([gpu()], [row]))[1]) == said


def test_several_devices_are_summed_and_idle_or_full_ones_named() -> None:
    quiet = Totals(first_seen=NOW - 9000, last_active=NOW - 7200)
    rows = [
        holder("train", "GPU-1", compute_used=0.0, totals=quiet),
        holder("train"),
        holder("train", "GPU-2", memory_used=None),
    ]
    shown = snapshot([gpu(), gpu(1), gpu(2)], rows)
    used, memory, *_ = answers(shown)

    assert used.startswith(
        "On 3 devices it uses 1.20 of the 3.00 GPUs it is entitled to. GPU 1: whole GPU. No:"
    )
    assert memory.startswith(
        "On 3 devices it uses ≥ 14.0 of the 48.0 GiB it is entitled to. GPU 2: whole GPU."
    )
    sections = draw(shown).all("section", of="on")
    assert [each.one("h3").text[:5] for each in sections] == ["GPU 0", "GPU 1", "GPU 2"]


def test_faults_of_the_holder_are_shown_with_their_meaning() -> None:
    """Those of others are not."""
    hit, other = (ContainerRef("ml", pod, "main") for pod in ("train", "other"))
    events = tuple(
        EventRow(event=DeviceEvent(at=NOW - ago, uuid=UUID, kind="xid", xid=code), holders=(ref,))
        for ago, code, ref in ((500, 13, hit), (120, 31, hit), (60, 79, other))
    )
    shown = snapshot([gpu(watched=True)], [holder("train")], events=events)

    assert answers(shown)[2].startswith("XID 31, 2 min ago, while it was on the device. ")
    assert [row.all("td")[1].text for row in draw(shown).one(id="events").one("tbody").all("tr")] == [
        "XID 31",
        "XID 13",
    ]
    assert "the driver has reported none" in answers(replace(shown, events=()))[2]
    unwatched = snapshot([gpu()], [holder("train")])
    assert answers(unwatched)[2].startswith("Events of its device are not reported here")


def test_a_lost_gpu_is_mentioned_first() -> None:
    shown = snapshot([gpu(up=False)], [holder("train", memory_used=None, compute_used=None)])

    assert answers(shown)[2].startswith("GPU 0 does not answer.")
    assert "the GPU does not answer" in answers(shown)[0]


def test_sums_over_its_life_are_shown_and_what_is_not_known_is_a_dash() -> None:
    totals = Totals(
        first_seen=NOW - 7200,
        entitled_gpu_seconds=7200.0,
        measured_gpu_seconds=3600.0,
        measured_use_gpu_seconds=1800.0,
        used_gpu_seconds=1800.0,
        energy_joules=720_000.0,
        memory_peak=9 * GIB,
    )
    known = life(snapshot([gpu()], [holder("train", totals=totals, processes=2)]))
    unknown = life(snapshot([gpu()], [holder("train", compute_used=None, totals=Totals(first_seen=NOW))]))

    assert known == {
        "GPU time held": "2.0 GPU hours",
        "GPU time used": "30.0 GPU minutes",
        "efficiency": "50 %",
        "memory peak": "9.0 GiB",
        "energy": "0.20 kWh",
        "processes": "2",
    }
    assert set(unknown.values()) == {"–"}  # noqa: RUF001 - the dash of what is not known


def test_unmeasured_time_is_not_called_unused() -> None:
    totals = Totals(
        first_seen=NOW - 7200,
        entitled_gpu_seconds=7200.0,
        measured_gpu_seconds=3600.0,
        measured_use_gpu_seconds=1800.0,
        used_gpu_seconds=1800.0,
    )
    (partly, *_) = answers(snapshot([gpu()], [holder("train", totals=totals)]))
    whole = replace(totals, measured_gpu_seconds=7200.0)
    (wholly, *_) = answers(snapshot([gpu()], [holder("train", totals=whole)]))

    assert "it has used 50 % of the GPU time it was entitled to while that was measured." in partly
    assert "it has used 25 % of the GPU time it was entitled to." in wholly


def test_sources_of_numbers_are_named() -> None:
    facts = {"memory_source": "hami", "compute_source": "process"}
    lines = draw(snapshot([gpu()], [holder("train", **facts)])).all("p", of="source")

    assert [line.text for line in lines] == [
        "measured by HAMi",
        "sum over its processes, from the driver",
    ]
    served = draw(snapshot([gpu()], [holder("train", compute_source="server")])).all("p", of="source")
    assert served[1].text == "total of the MPS server: all of its clients belong to this container"


def test_neighbours_on_the_same_device_are_linked() -> None:
    cut = gpu(1, sharing="mig", mig_enabled=True, mig_slices=7)
    part, other = DeviceKey("GPU-1", "MIG-a"), DeviceKey("GPU-1", "MIG-b")
    migs = [mig(key.mig_uuid, gpu_uuid="GPU-1") for key in (part, other)]
    rows = [shared(device=part), shared("near", part), shared("far", other), shared("away")]
    beside = draw(snapshot([gpu(), cut], rows, migs)).one(of="other-holders")

    assert [link.text for link in beside.all("a")] == ["ml/ near"]
    assert beside.one("a").attributes["href"] == f"{ROOT}holder/ml/near/main"


def test_its_processes_are_those_of_its_container() -> None:
    mine, other = (ContainerRef("ml", pod, "main") for pod in ("train", "other"))
    processes = tuple(
        ProcessRow(device=DeviceKey(UUID), pid=pid, holder=ref, command="vllm", place="pod")
        for pid, ref in ((1, mine), (2, other))
    )
    shown = snapshot([gpu()], [holder("train")], processes=processes)
    blind = snapshot(
        [gpu()], [holder("train")], node={"process_view": False, "process_view_reason": "set hostPID: true"}
    )

    assert [row.all("td")[0].text for row in draw(shown).one(id="processes").one("tbody").all("tr")] == ["1"]
    assert "cannot be shown: set hostPID: true." in draw(blind).one(id="processes").text


def test_names_stay_text_and_links_quote_them() -> None:
    rows = [shared(), shared(f"{HOSTILE}/../?#")]
    shown = snapshot([gpu()], rows)
    link = draw(shown).one(of="other-holders").one("a").attributes["href"]

    assert not draw(shown).all("img")
    assert not draw(shown, "ml", f"{HOSTILE}/../?#", "main").all("img")
    assert link.count("/") == ROOT.count("/") + len(("holder", "ml", "pod"))
    assert not {"?", "#", '"', "<"} & set(link)


def test_pieces_keep_their_names_from_poll_to_poll() -> None:
    """A live page finds every piece again."""
    first = snapshot([gpu()], [holder("train")])
    later = replace(first, timestamp=NOW + 5, containers=(holder("train", compute_used=0.1),))
    drawn = [
        holder_drawing(Scene(each, now=NOW + 5, root=ROOT), "ml", "train", "main") for each in (first, later)
    ]

    assert drawn[0].pieces.keys() == drawn[1].pieces.keys()
    assert drawn[0].lists == drawn[1].lists


def test_a_device_used_without_a_slice_adds_no_entitlement() -> None:
    elsewhere = holder("train", "GPU-1", slices=0, memory_entitled=None, compute_entitled=None)
    used, memory, *_ = answers(snapshot([gpu(), gpu(1)], [holder("train"), elsewhere]))

    assert "On 2 devices it uses 1.20 of the 1.00 GPUs it is entitled to." in used
    assert "On 2 devices it uses 14.0 of the 16.0 GiB it is entitled to." in memory


def test_unknown_use_of_several_devices_is_a_sentence() -> None:
    rows = [holder("train", f"GPU-{at}", compute_used=None, memory_used=None) for at in range(2)]
    used, memory, *_ = answers(snapshot([gpu(), gpu(1)], rows))

    assert used.startswith("Its use of its 2 devices is not known.")
    assert memory.startswith("Its use of its 2 devices is not known.")


def test_an_unmeasured_neighbour_is_mentioned() -> None:
    _, memory, *_ = answers(snapshot([gpu()], [shared(), shared("other", memory_used=None)]))

    assert "The use of its neighbour is not known." in memory


def test_amd_partitions_are_not_called_mig() -> None:
    part = DeviceKey(UUID, "partition-0")
    used, *_ = answers(snapshot([gpu()], [holder("train", part, compute_used=None)]))

    assert "the driver does not measure per-process compute inside partitions" in used


def test_an_unmeasured_holder_has_no_last_use() -> None:
    """An earlier measurement says nothing about the time since."""
    row = holder("train", compute_used=None, memory_used=20 * GIB)
    (device,) = draw(snapshot([gpu()], [row])).all("section", of="on")

    assert "ago" not in device.one(of="about").text
    assert "the driver does not report the compute of its processes" in device.one(of="about").text


def test_unattributed_memory_of_a_gpu_is_not_shown_for_an_unlisted_mig_device() -> None:
    row = holder("train", DeviceKey(UUID, "MIG-lost"))

    assert "used by no known container" not in draw(snapshot([gpu()], [row])).one(of="other-holders").text


@pytest.mark.parametrize(
    ("slices", "words"),
    [
        (1, "Not known: seen for less than 5 minutes."),
        (None, "Not known: its allocation is not known."),
        (0, "None: it holds no slice."),
    ],
)
def test_without_advice_it_says_why(slices, words) -> None:
    assert answers(snapshot([gpu()], [shared(slices=slices)]))[3] == words


def test_labels_of_its_pod_are_shown_in_full() -> None:
    labels = (("app.kubernetes.io/name", "x" * 63), (HOSTILE, "é\u202e"))
    pods = (PodRow(namespace="ml", name="train", uid="", labels=labels),)
    shown = draw(snapshot([gpu()], [holder("train")], pods=pods)).one("ul", of="pod-labels").all("li")

    assert [each.text for each in shown] == [
        f"app.kubernetes.io/name= {'x' * 63}",
        f"{HOSTILE}= é\\u202e",
    ]
    assert not draw(snapshot([gpu()], [holder("train")])).all("ul", of="pod-labels")


def test_the_isolation_of_a_limit_is_that_of_memory() -> None:
    row = holder("train", sharing="time-slicing", memory_guaranteed=0, memory_limit=8 * GIB, **DMEM)

    (device,) = draw(snapshot([gpu()], [row])).all("section", of="on")

    assert "the kernel or the driver keeps its memory within its limit, not its compute" in device.text
