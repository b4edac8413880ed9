"""What the page says while the driver is given up: why, that it is meant so, and what is still known."""

from dataclasses import replace

from exporter.formats.text import snapshot_text
from exporter.model import GpuIdentity
from tests.web.views_reading import NOW, draw, gpu, holder, snapshot

REASON = "the file /run/gpuslice/release exists"
MESSAGE = f"the driver is released because {REASON}"


def given_up(*gpus, rows=()):
    """Return the snapshot of a node whose driver is given up."""
    return snapshot(list(gpus), list(rows), node={"released": REASON}, failing={"nvml": MESSAGE})


def test_it_is_a_note_that_names_the_reason() -> None:
    """Nothing is said to be wrong: neither the driver nor a GPU is called silent."""
    page = draw(given_up(gpu(up=False), gpu(1, up=False), rows=[holder("a")]))
    (notice,) = page.one(id="health").all("li")

    assert "is-note" in notice.classes
    assert f"The driver is released because {REASON}." in notice.text
    assert "does not answer" not in page.text


def test_each_gpu_says_so_and_who_holds_it() -> None:
    """In place of the picture stands the reason, and no advice to look for errors."""
    problem = draw(given_up(gpu(up=False), rows=[holder("a")])).one(id="gpu-0").one(of="problem")

    assert "is-note" in problem.classes
    assert "The driver is released, so this GPU is not read" in problem.text
    assert "XID" not in problem.text
    assert "Held by" in problem.text


def test_a_number_that_is_missing_for_it_says_so() -> None:
    """The dash of a holder's use has the window as its reason."""
    row = holder("a", memory_used=None, compute_used=None)
    page = draw(given_up(gpu(up=False), rows=[row]))
    titles = {each.attributes.get("title") for each in page.one(id="holders").all("abbr")}

    assert "not known: the driver is released" in titles


def test_the_source_is_not_called_failing() -> None:
    """In the head the driver is given up."""
    sources = draw(given_up(gpu(up=False))).one(of="sources").text

    assert "driver released" in sources
    assert "failing" not in sources


def test_a_gpu_of_another_vendor_is_looked_at_as_ever() -> None:
    """Only NVIDIA's driver is given up: a lost AMD GPU is as lost as it was."""
    lost = gpu(up=False)
    amd = replace(lost, identity=GpuIdentity(uuid=lost.identity.uuid, index=0, vendor="amd"))
    problem = draw(given_up(amd)).one(id="gpu-0").one(of="problem")

    assert "is-bad" in problem.classes
    assert "does not answer" in problem.text


def test_without_a_gpu_the_panel_says_it() -> None:
    """Started in a window, the page does not send anybody to look for a fault."""
    panel = draw(snapshot(node={"released": REASON, "gpu_count": None}, failing={"nvml": MESSAGE})).one(
        of="panel"
    )

    assert "No GPU is read" in panel.text
    assert REASON in panel.text
    assert not panel.all("code")


def test_a_driver_that_answers_with_an_error_is_not_said_to_be_shown_as_last_seen() -> None:
    """What was read before stands only while it is young, after a driver that hangs."""
    errors = {"nvml": "the driver answers Uninitialized"}

    silent = draw(snapshot([gpu(up=False)], failing=errors)).one(id="health").text
    hanging = draw(snapshot([gpu()], failing=errors)).one(id="health").text

    assert "The driver does not answer." in silent
    assert "shown as last read" not in silent
    assert "shown as last read" in hanging


def test_the_table_of_the_terminal_says_it_too() -> None:
    """A GPU is not read, which is not the same as not answering, and the reason is the last line."""
    lines = snapshot_text(given_up(gpu(up=False), rows=[holder("a")]), now=NOW).splitlines()

    assert any(line.startswith("GPU 0") and line.endswith("not read") for line in lines)
    assert lines[-1] == f"! {MESSAGE}"
