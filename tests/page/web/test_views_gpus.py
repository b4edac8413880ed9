"""The picture of the GPUs: boxes where the hardware parts them, pools where it does not."""

import re

import pytest

from exporter.model import DeviceKey, SliceCount
from exporter.wording import TIMES
from tests.page.web.views_reading import GIB, NOW, draw, gpu, holder, mig, scenario, snapshot

REPLICAS = (SliceCount("nvidia.com/gpu", 4, 2),)


def looks(element) -> list:
    """Return the looks of what is drawn in a bar."""
    fills = element.all("rect", of="fill")
    return [name.removeprefix("f-") for rect in fills for name in rect.classes if name.startswith("f-")]


def widths(element) -> list:
    """Return the widths of what is drawn in a bar, in percent."""
    # What is in a drawing of its own fills it, and that is as wide as the part.
    outer = [child for child in element.children if child.tag == "svg" or "fill" in child.classes]
    return [float(part.attributes["width"].removesuffix("%")) for part in outer]


def growth(cell) -> int:
    """Return how wide a cell is beside the others of its GPU."""
    return next(int(name[1:]) for name in cell.classes if re.fullmatch(r"w\d+", name))


def shared(name, **facts):
    """Return a container that holds a replica of four."""
    values = {"sharing": "time-slicing", "isolation": "none", "memory_entitled": 4 * GIB}
    return holder(name, **(values | {"compute_entitled": 0.25, "memory_used": 2 * GIB} | facts))


def test_mig_devices_are_boxes_as_wide_as_their_slices() -> None:
    cut = gpu(sharing="mig", mig_enabled=True, mig_slices=7, utilization_percent=None)
    migs = [mig("a", slices=4), mig("b", slices=3, held=0)]
    rows = [holder("train", DeviceKey("GPU-0", "a"), memory_entitled=5 * GIB, memory_used=GIB)]

    cells = draw(snapshot([cut], rows, migs)).one(id="gpu-0").all(of="cell")

    assert [growth(cell) for cell in cells] == [57, 43]
    assert [len(cell.all("svg", of="bar")) for cell in cells] == [2, 2]
    assert "4g.5gb" in cells[0].text
    assert "ml/ train" in cells[0].text
    assert "free" in cells[1].text
    assert all("dashed" in drawn.classes for drawn in cells[1].all("svg", of="bar"))


def test_unpartitioned_slices_are_shown() -> None:
    cut = gpu(sharing="mig", mig_enabled=True, mig_slices=7, mig_slices_free=4)

    cells = draw(snapshot([cut], migs=[mig("a", slices=3, held=0)])).one(id="gpu-0").all(of="cell")

    assert [growth(cell) for cell in cells] == [43, 57]
    assert "4 of 7 slices free" in cells[1].text
    assert "not partitioned" in cells[1].text


def test_replicas_share_one_pool_of_memory_and_one_of_compute() -> None:
    one = gpu(sharing="time-slicing", slices=REPLICAS, used=5 * GIB)

    cell = draw(snapshot([one], [shared("a"), shared("b")])).one(id="gpu-0").one(of="cell")

    memory, compute = cell.all("svg", of="bar")
    assert looks(memory) == ["active", "active", "unattributed"]
    assert widths(memory) == pytest.approx([12.5, 12.5, 6.25], abs=0.05)
    assert looks(compute) == ["active", "active"]
    assert [mark.text for mark in cell.one("ol").all("li")] == ["1 a", "2 b", "", ""]


def test_each_holder_is_marked_once_for_each_replica() -> None:
    one = gpu(sharing="mps", slices=(SliceCount("nvidia.com/gpu", 5, 4),))
    rows = [shared("a", slices=3), shared("b"), shared("thief", slices=0)]

    cell = draw(snapshot([one], rows)).one(id="gpu-0").one(of="cell")

    assert [mark.text[:1] for mark in cell.one("ol").all("li")] == ["1", "1", "1", "2", ""]
    assert "5 replicas, 4 held, 1 free" in cell.text


def test_very_many_replicas_are_drawn_as_runs() -> None:
    one = gpu(sharing="time-slicing", slices=(SliceCount("nvidia.com/gpu", 1000, 250),))

    marks = draw(snapshot([one], [shared("a", slices=250)])).one(id="gpu-0").one("ol").all("li")

    assert [growth(mark) for mark in marks] == [25, 75]


def test_a_mig_device_in_replicas_is_a_box_with_a_pool() -> None:
    cells = draw(scenario("mig-timeslicing")).one(id="gpu-0").all(of="cell")

    assert [len(cell.one("ol").all("li")) for cell in cells] == [3, 3]
    assert all("unmeasured" in looks(cell.all("svg", of="bar")[1]) for cell in cells)


def test_use_without_holding_is_seen_on_the_gpu() -> None:
    free = gpu(slices=(SliceCount("nvidia.com/gpu", 1, 0),), holders=0)
    thief = holder("thief", slices=0, memory_entitled=None, compute_entitled=None)

    alone = draw(snapshot([free], [thief])).one(id="gpu-0")
    beside = draw(snapshot([gpu()], [holder("a"), thief])).one(id="gpu-0")

    assert "thief" in alone.text
    assert looks(alone)[0] == "unheld"
    assert looks(beside.all("svg", of="bar")[0]) == ["active", "unheld", "unattributed"]


def test_use_on_a_device_without_containers_is_seen() -> None:
    free = gpu(slices=(SliceCount("nvidia.com/gpu", 1, 0),), holders=0, unattributed_memory=8 * GIB)

    cell = draw(snapshot([free])).one(id="gpu-0").one(of="cell")

    assert looks(cell) == ["unattributed"]
    assert "is-free" in cell.classes


def test_a_lost_gpu_says_so_and_names_its_holders() -> None:
    page = draw(scenario("lost-gpu"))

    lost = page.one(id="gpu-2")
    assert "does not answer" in lost.text
    assert "media/ transcode-2" in lost.text
    assert not lost.all(of="bar")
    assert "GPU 2 does not answer" in page.one(id="health").text


@pytest.mark.parametrize("reading", [None, "down"])
def test_nothing_is_shown_of_a_gpu_without_a_fresh_reading(reading) -> None:
    one = gpu()
    one = gpu(reading=None) if reading is None else gpu(up=False, memory=None, utilization_percent=None)

    assert not re.search(r"GiB|°C|GPU \d+\.", draw(snapshot([one])).one(id="gpu-0").text)


def test_unlisted_mig_devices_are_not_called_unpartitioned() -> None:
    one = gpu(sharing="mig", mig_enabled=True, mig=None, mig_slices=7)

    row = draw(snapshot([one])).one(id="gpu-0")

    assert "does not list its MIG devices" in row.text
    assert not row.all(of="cell")


def test_a_held_mig_device_that_is_not_seen_keeps_its_holder() -> None:
    cut = gpu(sharing="mig", mig_enabled=True, mig_slices=7)

    row = draw(snapshot([cut], [holder("train", DeviceKey("GPU-0", "gone"))])).one(id="gpu-0")

    (cell,) = row.all(of="cell")
    assert "is-missing" in cell.classes
    assert "train not listed by the driver" in cell.text


def test_without_the_kubelet_nothing_is_called_free() -> None:
    one = gpu(sharing="unknown", slices=(), holders=None, unattributed_memory=None)
    pooled = gpu(1, "time-slicing", slices=(), holders=None)

    page = draw(snapshot([one, pooled], failing={"podresources": "no socket"}))

    assert "unmeasured" in looks(page.one(id="gpu-0"))
    assert "free" not in page.one(id="gpu-0").text + page.one(id="gpu-1").text


def test_gpus_are_drawn_in_order() -> None:
    rows = draw(scenario("sick-gpus")).all("section", of="gpu")

    assert [row.attributes["id"] for row in rows] == [f"gpu-{index}" for index in range(6)]


def test_idle_holders_say_for_how_long() -> None:
    quiet = holder("nb", compute_used=0.0)
    quiet = holder("nb", compute_used=0.0, totals=type(quiet.totals)(first_seen=0, last_active=NOW - 7200))

    row = draw(snapshot([gpu()], [quiet])).one(id="gpu-0")

    assert "idle 2 h 0 min" in row.text
    assert looks(row.all("svg", of="bar")[0])[0] == "idle-memory"


def test_a_vgpu_is_not_called_a_whole_gpu() -> None:
    resource = "nvidia.com/NVIDIA_A40-12Q"
    facts = {"sharing": "vgpu", "resource": resource, "compute_entitled": None}
    row = gpu(sharing="vgpu", slices=(SliceCount(resource, 4, 3),))
    page = draw(snapshot([row], [holder("vm-a", **facts), holder("vm-b", slices=2, **facts)]))

    slices = [line.all("td")[3].text for line in page.one("section", id="holders").one("tbody").all("tr")]
    assert slices == ["vGPU A40-12Q", f"2 {TIMES} vGPU A40-12Q"]
    assert page.all("p", of="caption")[0].text.startswith("vGPUs · 3 of 4 held")
    assert "whole GPU" not in page.text
