"""What the page says while the driver is given up: why, that it is meant so, and what is still known."""

from dataclasses import replace

from exporter.formats.text import snapshot_text
from exporter.model import GpuIdentity
from tests.page.web.views_reading import NOW, draw, gpu, holder, snapshot

REASON = "the file /run/gpuslice/release exists"
MESSAGE = f"the driver is released because {REASON}"


def given_up(*gpus, rows=()):
    """Return the snapshot of a node whose driver is given up."""
    return snapshot(list(gpus), list(rows), node={"released": REASON}, failing={"nvml": MESSAGE})


def test_a_released_driver_is_a_note_with_its_reason() -> None:
    page = draw(given_up(gpu(up=False), gpu(1, up=False), rows=[holder("a")]))
    (notice,) = page.one(id="health").all("li")

    assert "is-note" in notice.classes
    assert f"The driver is released because {REASON}." in notice.text
    assert "does not answer" not in page.text


def test_a_gpu_of_a_released_driver_names_its_holders() -> None:
    problem = draw(given_up(gpu(up=False), rows=[holder("a")])).one(id="gpu-0").one(of="problem")

    assert "is-note" in problem.classes
    assert "The driver is released, so this GPU is not read" in problem.text
    assert "XID" not in problem.text
    assert "Held by" in problem.text


def test_missing_numbers_name_the_released_driver() -> None:
    row = holder("a", memory_used=None, compute_used=None)
    page = draw(given_up(gpu(up=False), rows=[row]))
    titles = {each.attributes.get("title") for each in page.one(id="holders").all("abbr")}

    assert "not known: the driver is released" in titles


def test_the_source_of_a_released_driver_is_not_failing() -> None:
    sources = draw(given_up(gpu(up=False))).one(of="sources").text

    assert "driver released" in sources
    assert "failing" not in sources


def test_a_gpu_of_another_vendor_is_not_released() -> None:
    lost = gpu(up=False)
    amd = replace(lost, identity=GpuIdentity(uuid=lost.identity.uuid, index=0, vendor="amd"))
    problem = draw(given_up(amd)).one(id="gpu-0").one(of="problem")

    assert "is-bad" in problem.classes
    assert "does not answer" in problem.text


def test_without_a_gpu_the_panel_names_the_released_driver() -> None:
    panel = draw(snapshot(node={"released": REASON, "gpu_count": None}, failing={"nvml": MESSAGE})).one(
        of="panel"
    )

    assert "No GPU is read" in panel.text
    assert REASON in panel.text
    assert not panel.all("code")


def test_only_a_hanging_driver_is_shown_as_last_read() -> None:
    errors = {"nvml": "the driver answers Uninitialized"}

    silent = draw(snapshot([gpu(up=False)], failing=errors)).one(id="health").text
    hanging = draw(snapshot([gpu()], failing=errors)).one(id="health").text

    assert "The driver does not answer." in silent
    assert "shown as last read" not in silent
    assert "shown as last read" in hanging


def test_the_text_names_the_released_driver() -> None:
    lines = snapshot_text(given_up(gpu(up=False), rows=[holder("a")]), now=NOW).splitlines()

    assert any(line.startswith("GPU 0") and line.endswith("not read") for line in lines)
    assert lines[-1] == f"! {MESSAGE}"
