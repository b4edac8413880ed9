"""GPUs that a sharing system partitions into parts of any size."""

from dataclasses import replace

import pytest

from exporter.model import DeviceKey, SliceCount
from exporter.wording import TIMES, UNKNOWN, mode_word
from tests.page.web.test_views_gpus import growth, widths
from tests.page.web.views_reading import GIB, draw, gpu, holder, mig, scenario, snapshot

UNITS = (SliceCount("aliyun.com/gpu-mem", 16, 6),)


def part(name, **facts):
    """Return a container with a part of 4 GiB and a quarter of a GPU that HAMi gave it."""
    values = {"sharing": "hami", "isolation": "soft", "memory_entitled": 4 * GIB, "compute_entitled": 0.25}
    return holder(name, **(values | {"memory_used": 2 * GIB} | facts))


def slices(page) -> list[str]:
    """Return the text for the slices of each holder."""
    return [row.all("td")[3].text for row in page.one("section", id="holders").one("tbody").all("tr")]


def captions(page) -> list[str]:
    """Return the line above each device."""
    return [line.text for line in page.all("p", of="caption")]


def test_marks_are_as_wide_as_the_memory_that_was_given() -> None:
    one = gpu(sharing="gpushare", slices=UNITS)
    rows = [part("a", slices=4, sharing="gpushare"), part("b", slices=2, memory_entitled=2 * GIB)]

    page = draw(snapshot([one], rows))

    marks = page.one("ol").all("li")
    assert [mark.text for mark in marks] == ["1 a", "2 b", ""]
    assert [growth(mark) for mark in marks] == [25, 12, 62]
    assert "m-free" in marks[-1].classes
    assert captions(page) == ["whole GPU · 6 of 16 held, with 6.0 of 16.0 GiB"]


def test_cordoned_slices_are_not_shown_as_free() -> None:
    units = (SliceCount("nvidia.com/gpu", 10, 1, cordoned=10),)
    other = gpu(1, "hami", slices=(SliceCount("nvidia.com/gpu", 10, 0, cordoned=0),), holders=0)

    page = draw(snapshot([gpu(sharing="hami", slices=units), other], [part("a")]))

    marks = page.one(id="gpu-0").one("ol").all("li")
    assert ["m-withheld" in mark.classes for mark in marks] == [False, True]
    assert marks[1].attributes["title"] == "cordoned: 12.0 GiB"
    assert captions(page)[0] == "whole GPU · 1 of 10 held, with 4.0 of 16.0 GiB, 10 cordoned"
    (notice,) = page.one(id="health").all("li")
    assert "GPU 0 is cordoned" in notice.text
    total = next(card for card in page.all(of="card") if card.one("h2").text == "Slices")
    assert "10 free" in total.text
    assert "10 cordoned" in total.text


def test_marks_of_equal_slices_are_withheld_one_by_one() -> None:
    units = (SliceCount("nvidia.com/gpu", 4, 1, cordoned=4),)
    rows = [part("a", memory_entitled=None)]

    marks = draw(snapshot([gpu(sharing="hami", slices=units)], rows)).one(id="gpu-0").one("ol").all("li")

    assert ["m-withheld" in mark.classes for mark in marks] == [False, True, True, True]


def test_one_holder_of_a_part_does_not_fill_the_gpu() -> None:
    page = draw(snapshot([gpu(sharing="hami", slices=(SliceCount("nvidia.com/gpu", 10, 1),))], [part("a")]))

    memory = page.one(id="gpu-0").all("svg", of="bar")[0]
    assert widths(memory) == pytest.approx([12.5, 6.25], abs=0.05)
    assert [growth(mark) for mark in page.one("ol").all("li")] == [25, 75]


def test_entitlements_may_exceed_the_memory() -> None:
    page = draw(snapshot([gpu(sharing="hami")], [part(name, memory_entitled=10 * GIB) for name in "ab"]))

    assert [growth(mark) for mark in page.one("ol").all("li")] == [50, 50]
    assert captions(page) == ["whole GPU · 1 of 1 held, with 20.0 of 16.0 GiB"]


def test_parts_of_unknown_size_are_marked_by_their_number() -> None:
    one = gpu(sharing="nvshare", slices=(SliceCount("nvshare.com/gpu", 4, 1),))

    page = draw(snapshot([one], [part("a", memory_entitled=None)]))

    assert len(page.one("ol").all("li")) == 4
    assert captions(page) == ["whole GPU · 1 of 4 held"]


def test_slices_without_a_fixed_number_have_no_total() -> None:
    fractions = gpu(sharing="kai", slices=(SliceCount("nvidia.com/gpu", None, 2),))
    page = draw(snapshot([fractions, gpu(1)], [part("a"), part("b"), holder("whole", "GPU-1")]))

    card = page.all(of="card")[0].text
    assert card.startswith("Slices 2 held of 2 GPUs 0 free by 3 containers · KAI fractions 2 · slices 1 of 1")
    assert slices(page) == ["1 slice", "1 slice", "whole GPU"]
    assert captions(page)[0] == "whole GPU · 2 held, with 8.0 of 16.0 GiB"
    assert "2 slices held" in page.one(id="gpu-0").text


def test_units_of_several_resources_are_not_added_up() -> None:
    counts = (SliceCount("tencent.com/vcuda-core", 100, 30), SliceCount("tencent.com/vcuda-memory", None, 8))
    row = part("a", slices=38, resource="tencent.com/vcuda-core,tencent.com/vcuda-memory")
    page = draw(snapshot([gpu(sharing="gpu-manager", slices=counts)], [row]))

    assert slices(page) == ["38 units"]
    assert captions(page) == ["whole GPU · 4.0 of 16.0 GiB held"]
    assert "30 of 100 vcuda-core, 8 vcuda-memory held" in page.one(id="gpu-0").text
    assert f"{TIMES}38" not in page.text


def test_a_part_enforced_by_the_kernel_is_not_a_whole_gpu() -> None:
    one = gpu(sharing="cgpu", slices=UNITS)
    row = part("a", sharing="cgpu", isolation="hard", slices=6, resource="aliyun.com/gpu-mem")

    assert slices(draw(snapshot([one], [row]))) == ["6 of 16"]


def test_unknown_isolation_is_a_dash_with_its_reason() -> None:
    page = draw(snapshot([gpu(sharing="runai")], [part("a", isolation="")]))

    cell = page.one("tbody").all("td")[4]
    assert cell.text == UNKNOWN
    assert "not known" in cell.one("abbr").attributes["title"]


def test_a_compute_limit_that_is_not_set_is_not_blamed_on_the_kubelet() -> None:
    page = draw(snapshot([gpu(sharing="hami")], [part("a", compute_entitled=None)]))

    dash = page.one("tbody").all("td")[-1].one("abbr")
    assert dash.attributes["title"] == "not known: no limit is set or reported"


def test_claimed_devices_are_free_without_an_offer() -> None:
    cut = gpu(sharing="mig", mig_enabled=True, mig_slices=4, slices=())
    parts = [mig("a"), replace(mig("b"), slices=(), holders=0)]
    texts = []
    for resource in ("gpu.nvidia.com", "nvidia.com/mig-2g.5gb"):
        row = holder("a", DeviceKey("GPU-0", "a"), resource=resource, sharing="mig")
        texts.append(draw(snapshot([cut], [row], parts)).one("p", of="vacant").text)

    assert texts == ["free", "not held"]


def test_a_node_of_unread_devices_has_no_sums() -> None:
    cards = {card.all("h2")[0].text: card for card in draw(scenario("intel-shared")).all(of="card")}

    for name in ("Memory", "Compute"):
        assert cards[name].one(of="figure").text == UNKNOWN
        assert "reads no device" in cards[name].one("abbr").attributes["title"]


@pytest.mark.parametrize(
    ("sharing", "word"),
    [
        ("hami", "HAMi"),
        ("hami-ascend", "HAMi"),
        ("cgpu", "cGPU"),
        ("kai", "KAI fractions"),
        ("gpushare", "gpushare"),
        ("time-slicing", "time-sliced"),
        ("a-system-to-come", "a-system-to-come"),
    ],
)
def test_ways_of_sharing_have_names_for_people(sharing, word) -> None:
    assert mode_word(sharing) == word
