"""Devices that the exporter does not read: on the page, as text and in the sums."""

from exporter.formats.text import snapshot_text
from exporter.web.node.pages.scene import Scene
from exporter.web.node.pages.totals import cards
from exporter.wording import TIMES
from tests.page.web.views_reading import NOW, draw, gpu_page, read, scenario

NPU = "a1f04d3b-5c27-4e19-9a1e-70c3b2d8e602"
MLU = "mixed-npu-1-cambricon-mlu-0"


def test_an_unread_device_names_its_holders_and_is_not_called_lost() -> None:
    page = draw(scenario("hami-vendors"))

    npu = page.one(id=f"gpu-{NPU}")
    assert npu.text.startswith("huawei 1 HAMi Ascend910B3 2 of 10 slices held")
    assert "This exporter does not read" in npu.text
    assert "vision/ detect-0" in npu.text
    assert not npu.all(of="bar")
    assert "is-note" in npu.one(of="problem").classes
    assert "does not answer" not in page.text
    assert "not answering" not in page.text


def test_its_holders_lead_to_it() -> None:
    page = draw(scenario("hami-vendors"))

    targets = {link.attributes.get("href") for link in page.all("a")}
    gpus = {target for target in targets if target.startswith("gpu/")}
    assert {f"gpu/{NPU}", f"gpu/{MLU}"} < gpus


def test_unread_devices_add_to_no_sum() -> None:
    scene = Scene(scenario("hami-vendors"), now=NOW + 30, idle_after=300)
    totals = {card.name: card for card in cards(scene)}

    assert (totals["Memory"].figure.text, totals["Memory"].of) == ("2.2 GiB used", "of 22.5")
    assert [text for _, text in totals["Memory"].bars] == ["3.9 held", "used, 56% of held"]
    assert (totals["Compute"].figure.text, totals["Compute"].of) == ("0.18 GPUs used", "of 1")
    assert totals["Needs attention"].figure.text == "nothing"


def test_text_says_that_a_device_is_not_read() -> None:
    text = snapshot_text(scenario("hami-vendors"), now=NOW)

    assert (
        "huawei 1 · Ascend910B3 · hami-ascend · not read by this exporter · slices 2 held of 10 · 2 holders\n"
        in text
    )
    assert f"1 GPU (1 {TIMES} NVIDIA L4) · 2 {TIMES} Ascend910B3, 1 {TIMES} MLU · driver" in text
    assert text.count("unattributed") == 1
    assert "memory 3.9 GiB held" in text
    assert "not answering" not in text


def test_text_has_no_total_without_read_devices() -> None:
    text = snapshot_text(scenario("intel-shared"), now=NOW)

    assert "intel 1 · Intel GPU" in text
    assert "Total" not in text


def test_the_page_of_an_unread_device_has_no_events_and_links() -> None:
    html = gpu_page(scenario("hami-vendors"), NPU, now=NOW + 30)
    page = read(html or "")

    assert "This exporter does not read events of this device" in page.one(id="events").text
    assert not page.all(id="topology")
