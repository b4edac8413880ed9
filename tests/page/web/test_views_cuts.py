"""The MIG devices of a GPU at their places, and the gaps between them."""

import re

import pytest

from exporter.model import DeviceKey
from exporter.web.node.pages.picture.mig_cells import partitioning_of
from tests.page.web.views_reading import UUID, draw, gpu, holder, mig, scenario, snapshot


def part(name, start, size, slices, **facts):
    """Return a MIG device without a holder, in its own GPU instance at a place."""
    values = {"gi": name, "gi_start": start, "gi_size": size, "instance_slices": slices, "held": 0}
    return mig(name, slices=slices, **(values | facts))


def board(compute=7, **facts):
    """Return a GPU in MIG mode."""
    return gpu(sharing="mig", mig_enabled=True, mig_slices=compute, **facts)


def picture(parts, **facts):
    """Return the columns and captions of each stretch of a GPU with these parts."""
    row = draw(snapshot([board(**facts)], migs=parts)).one(id="gpu-0")
    return [
        (columns(each), [cell.one(of="caption").text for cell in each.all(of="cell")])
        for each in row.all(of="stretch")
    ]


def columns(element) -> int:
    """Return how many memory slices an element takes."""
    return next(int(name[1:]) for name in element.classes if re.fullmatch(r"s\d", name))


def test_mig_devices_are_drawn_at_their_places() -> None:
    assert picture([part("high", 4, 4, 3), part("low", 0, 1, 1)]) == [
        (1, ["1g.5gb"]),
        (3, ["3 of 7 slices free"]),
        (4, ["3g.5gb"]),
    ]


def test_gaps_are_shown_separately() -> None:
    """Three free slices that lie apart are no place for a 3g."""
    found = picture([part("a", 0, 1, 1), part("b", 2, 1, 1), part("c", 4, 2, 2)])

    assert [caption for _, (caption,) in found] == [
        "1g.5gb",
        "1 of 7 slices free",
        "1g.5gb",
        "1 of 7 slices free",
        "2g.5gb",
        "1 of 7 slices free",
    ]
    assert sum(size for size, _ in found) == 8


def test_the_last_memory_slice_of_seven_has_no_compute() -> None:
    *devices, (size, (caption,)) = picture([part(f"m{place}", place, 1, 1) for place in range(7)])

    assert len(devices) == 7
    assert (size, caption) == (1, "memory only")


def test_compute_without_memory_is_not_called_free() -> None:
    row = draw(snapshot([board()], migs=[part(f"m{at}", at, 2, 1) for at in (0, 2, 4, 6)])).one(id="gpu-0")

    assert [columns(each) for each in row.all(of="stretch")] == [2, 2, 2, 2]
    assert "3 compute slices left without memory" in row.text
    assert "without memory" not in draw(snapshot([board()], migs=[part("a", 0, 8, 7)])).text


@pytest.mark.parametrize(
    ("free", "caption", "note"),
    [
        (4, "4 of 7 slices free", "not partitioned"),
        (0, "4 of 7 slices left", "no memory slice left for it"),
        (None, "4 of 7 slices left", "not known whether it is free"),
    ],
)
def test_without_places_compute_is_called_free_if_it_is_for_certain(free, caption, note) -> None:
    shown = snapshot([board(mig_slices_free=free)], migs=[part("a", None, None, 3)])
    rest = draw(shown).one(id="gpu-0").all(of="cell")[-1]

    assert caption in rest.text
    assert note in rest.text


def test_a_gpu_of_four_slices_has_four_columns() -> None:
    assert picture([part("a", 2, 2, 2)], compute=4) == [(2, ["2 of 4 slices free"]), (2, ["2g.5gb"])]


def test_compute_instances_stand_inside_their_gpu_instance() -> None:
    inside = {"gi": 2, "instance_slices": 3, "memory_shared": True}
    parts = [part("one", 4, 4, 1, ci=0, **inside), part("two", 4, 4, 1, ci=1, **inside)]

    row = draw(snapshot([board()], migs=parts)).one(id="gpu-0")
    free, instance = row.all(of="stretch")
    growths = [
        next(name for name in cell.classes if re.fullmatch(r"w\d+", name)) for cell in instance.all(of="cell")
    ]

    assert "4 of 7 slices free" in free.text
    assert [cell.one(of="caption").text for cell in instance.all(of="cell")] == [
        "1g.5gb",
        "1g.5gb",
        "1 of 3 slices free",
    ]
    assert len(set(growths)) == 1


@pytest.mark.parametrize(
    "parts",
    [
        [part("a", None, None, 3), part("b", 0, 1, 1)],
        [part("a", 0, 4, 3), part("b", 2, 2, 2)],
        [part("a", 6, 4, 3)],
        [],
    ],
)
def test_unknown_or_impossible_places_are_not_drawn(parts) -> None:
    """Devices are ordered by their compute slices then."""
    row = draw(snapshot([board()], migs=parts)).one(id="gpu-0")

    assert not row.all(of="stretch")
    assert len(row.all(of="cell")) == len(parts) + 1


def test_a_held_device_without_a_place_leaves_nothing_called_free() -> None:
    shown = snapshot([board()], [holder("train", DeviceKey(UUID, "MIG-gone"))], migs=[part("a", 0, 1, 1)])

    assert not draw(shown).one(id="gpu-0").all(of="stretch")


def test_gaps_are_not_called_free_while_parts_may_be_missing() -> None:
    row = draw(snapshot([board(mig_complete=False)], migs=[part("a", 0, 4, 3)])).one(id="gpu-0")

    assert "free" not in row.all(of="cell")[1].text
    assert "not known" in row.all(of="cell")[1].text


def test_places_and_compute_of_mig_devices_add_up() -> None:
    laid = 0
    for name in ("a100-mig-mixed", "a100-mig-single", "h100-mixed", "hami-mig", "mig-timeslicing"):
        shown = scenario(name)
        for row in shown.gpus:
            rows = [mig for mig in shown.migs if mig.device.uuid == row.identity.uuid]
            found = partitioning_of(row.reading, rows) if row.reading.mig_enabled else None
            if found is None:
                continue
            laid += 1
            assert [part.start for part in found.parts] == [
                sum(part.size for part in found.parts[:place]) for place in range(len(found.parts))
            ]
            assert sum(part.size for part in found.parts) == found.size
            compute = sum(part.slices for part in found.parts) + found.stranded
            assert compute == row.reading.mig_slices
    assert laid == 13
