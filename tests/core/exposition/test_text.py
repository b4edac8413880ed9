"""A snapshot as text for a terminal."""

from dataclasses import replace
from pathlib import Path

import pytest

from exporter.formats.text import snapshot_text
from exporter.model import ContainerRef, DeviceKey, Raised, SliceCount
from exporter.wording import UNKNOWN, duration, gibibytes, printable, total_text

NOW = 1_700_000_003.0


def test_the_text_of_a_node_is_the_reviewed_one(full) -> None:
    expected = (Path(__file__).parent / "node.txt").read_text(encoding="utf-8")

    assert snapshot_text(full, now=NOW) == expected


def test_unknown_is_a_dash_and_never_a_zero(bare) -> None:
    text = snapshot_text(bare, now=NOW).replace(UNKNOWN, "_")

    assert "memory _ / _ GiB · utilization _ % · _ W · _ °C · slices _ · _ holders" in text
    assert "a/b/c" in text
    assert "_ / _ GiB" in text
    assert "_ / _ GPU" in text
    assert text.count("unknown") == 3  # its model, how it is shared, and the state of the holder
    assert "unattributed: _ GiB · _ % utilization" in text
    assert (
        "Total: slices _ · memory _ GiB held · _ GiB used of _ GiB · compute _ GPUs held · _ GPUs used of _"
        in text
    )
    assert "No per-process usage: host processes are not visible" in text
    assert "! nvml fails: no reason reported" in text
    assert " 0.0 " not in text


def test_a_lost_gpu_has_no_old_numbers_and_keeps_its_holders(full) -> None:
    """Also those on MIG devices that are gone."""
    gpus = tuple(replace(gpu, reading=None, raised={}) for gpu in full.gpus)

    text = snapshot_text(replace(full, gpus=gpus, migs=()), now=NOW)

    assert "GPU 0 · NVIDIA A100-SXM4-40GB · time-slicing · not answering\n" in text
    assert "  MIG MIG-a · not listed by the driver\n    ml/train-0/main" in text


def test_conditions_of_a_gpu_are_on_its_line(full) -> None:
    """Not answering is there once."""
    raised = {name: Raised(since=NOW, causes=("why",)) for name in ("lost", "needs_reboot")}
    lost = replace(full.gpus[0], reading=None, raised=raised)

    text = snapshot_text(replace(full, gpus=(lost, *full.gpus[1:])), now=NOW)

    assert "time-slicing · not answering · needs a reboot of its node\n" in text


@pytest.mark.parametrize(("health", "shown"), [("Unhealthy", 1), ("Healthy", 0), ("Unknown", 0), ("", 0)])
def test_a_holder_of_a_device_reported_unhealthy_says_so(full, health: str, shown: int) -> None:
    first, *others = full.containers
    text = snapshot_text(replace(full, containers=(replace(first, health=health), *others)), now=NOW)

    assert text.count(", slice reported unhealthy") == text.count("reported") == shown


def test_holders_of_an_unlisted_gpu_are_shown(full) -> None:
    text = snapshot_text(replace(full, gpus=full.gpus[1:]), now=NOW)

    assert "GPU-shared · not listed by the driver\n    ml/nb-anna/main" in text


def test_a_sum_with_an_unknown_part_is_a_lower_bound(full) -> None:
    gpus = (replace(full.gpus[0], reading=None, slices=(SliceCount("r", None, 1),)), full.gpus[1])

    text = snapshot_text(replace(full, gpus=gpus), now=NOW)

    assert "slices 2 held of 10, 1 more without a fixed total" in text
    assert "≥ 10.0 GiB used of ≥ 40.0 GiB" in text


def test_units_of_several_resources_are_not_added_up(full) -> None:
    """The node then counts its GPUs, as its page does."""
    kinds = (SliceCount("a/core", 100, 60), SliceCount("a/memory", None, 8192))
    shared = replace(full.gpus[0], sharing="mgpu", holders=2, slices=kinds)
    free = replace(shared, holders=0, slices=(SliceCount("a/core", 100, 0), SliceCount("a/memory", None, 0)))

    text = snapshot_text(replace(full, gpus=(shared, free), migs=()), now=NOW)

    assert "60 of 100 core, 8192 memory held · 2 holders" in text
    assert "0 of 100 core, 0 memory held · 0 holders" in text
    assert "Total: 1 held of 2 GPUs, mGPU 60 of 200 core, 8192 memory · memory" in text


def test_resources_that_differ_only_in_their_domain_have_their_full_names(full) -> None:
    kinds = (SliceCount("a/memory", 15, 8), SliceCount("b/memory", 15, 1))
    shared = replace(full.gpus[0], sharing="gpushare", holders=2, slices=kinds)

    text = snapshot_text(replace(full, gpus=(shared,), migs=()), now=NOW)

    assert "8 of 15 a/memory, 1 of 15 b/memory held" in text
    assert "Total: 1 held of 1 GPU, gpushare 8 of 15 a/memory, 1 of 15 b/memory · memory" in text


@pytest.mark.parametrize(("sharing", "word"), [("mps", "mps"), ("unknown", "sharing unknown")])
def test_an_unknown_sharing_mode_has_its_noun(full, sharing, word) -> None:
    gpus = (replace(full.gpus[0], sharing=sharing), *full.gpus[1:])

    first = next(
        line for line in snapshot_text(replace(full, gpus=gpus), now=NOW).splitlines() if "GPU 0" in line
    )

    assert first.split(" · ")[2] == word


def test_a_node_without_gpus_has_no_totals(full) -> None:
    text = snapshot_text(replace(full, gpus=(), migs=(), containers=()), now=NOW)

    assert "Total" not in text
    assert "HOLDER" not in text


@pytest.mark.parametrize(
    "name", ["\x1b[31mred", "a\nb", "a\rb", "\x9b2J", "\u202eevil", "\udc80", "\u2028", "\x07"]
)
def test_names_never_control_the_terminal(full, container, name) -> None:
    """Control, bidi and separator characters are escaped."""
    row = replace(
        container("x", full.containers[0].device), holder=ContainerRef(name, name, name), resource=name
    )
    broken = replace(full.collectors[1], message=name)
    gpu = replace(full.gpus[0], identity=replace(full.gpus[0].identity, model=name))

    text = snapshot_text(
        replace(full, containers=(row,), collectors=(broken,), gpus=(gpu, full.gpus[1])), now=NOW
    )

    assert all(line.isprintable() for line in text.split("\n"))
    assert name not in text.replace("\n", "") or name == "a\nb"
    assert printable(name) in text


def test_a_demo_is_labelled_as_such(full) -> None:
    assert "\nDEMO: " in snapshot_text(replace(full, demo=True), now=NOW)


def test_a_container_without_slices_has_none_and_one_with_unknown_slices_a_dash(full, container) -> None:
    device = DeviceKey("GPU-shared")
    rows = (container("thief", device, slices=0), container("maybe", device, slices=None))

    lines = snapshot_text(replace(full, containers=rows), now=NOW).splitlines()

    thief, maybe = (next(line for line in lines if name in line) for name in ("thief", "maybe"))
    assert thief.split()[1] == "none"
    assert thief.endswith("uses without holding")
    assert maybe.split()[1] == UNKNOWN


def test_without_a_time_the_age_is_that_of_the_wall_clock(full) -> None:
    assert " d " in snapshot_text(full).splitlines()[0]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0 s"), (59.9, "59 s"), (60, "1 min"), (3661, "1 h 1 min"), (90_000, "1 d 1 h")],
)
def test_durations_have_two_units(seconds, text) -> None:
    assert text == duration(seconds)


@pytest.mark.parametrize(
    ("size", "text"), [(None, UNKNOWN), (0, "0.0"), (1, "<0.1"), (1024**3, "1.0"), (80 * 1024**3, "80.0")]
)
def test_a_little_memory_is_not_zero(size, text) -> None:
    assert text == gibibytes(size)


def test_a_total_of_unknown_parts_is_unknown_and_of_no_parts_zero() -> None:
    assert total_text([None, None], str) == UNKNOWN
    assert total_text([], str) == "0"
    assert total_text([1, None], str) == "≥ 1"
