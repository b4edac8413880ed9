"""The memory slices of a GPU in MIG mode, and what of them lies free side by side."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.mig_geometry import Span, free_spans
from tests.core.attribution.build import gpu, join, mig, mig_gpu


def cut(*places, **facts):
    """Join a GPU whose instances lie at these (start, size); give used, free, and adjacent free slices."""
    parts = [
        mig(uuid=f"MIG-{name}", gi=name, gi_start=start, gi_size=size)
        for name, (start, size) in enumerate(places)
    ]
    return counted(mig_gpu(parts, **facts))


def counted(reading):
    """Join a GPU; give its used, free, and adjacent free memory slices."""
    (row,) = join(reading).gpus
    return row.mig_memory_used, row.mig_memory_free, row.mig_memory_adjacent


def test_free_slices_apart_from_each_other_are_no_run():
    assert cut((0, 1), (2, 1), (5, 1)) == (3, 5, 2)


def test_a_gpu_in_mig_mode_without_instances_is_free_as_a_whole():
    assert cut() == (0, 8, 8)


def test_a_full_gpu_has_no_free_run():
    """The zero was observed."""
    assert cut((0, 4), (4, 4)) == (8, 0, 0)


def test_compute_instances_of_one_gpu_instance_take_its_place_once():
    inside = {"gi": 1, "gi_start": 0, "gi_size": 4}
    parts = [mig(uuid=f"MIG-{ci}", ci=ci, **inside) for ci in (0, 1)]
    assert counted(mig_gpu(parts)) == (4, 4, 4)


def test_a_gpu_of_four_compute_slices_has_four_of_memory():
    """As an A30 has."""
    part = mig(gi_start=1, gi_size=1)
    assert counted(gpu(None, mig_enabled=True, mig_slices=4, mig=(part,))) == (1, 3, 2)


@pytest.mark.parametrize(
    "places", [[(None, None), (0, 1)], [(0, None)], [(0, 4), (2, 2)], [(6, 4)], [(-1, 2)]]
)
def test_unknown_or_impossible_places_leave_free_slices_unknown(places):
    assert cut(*places) == (None, None, None)


@pytest.mark.parametrize("facts", [{"mig_complete": False}, {"up": False}])
def test_missing_instances_leave_free_slices_unknown(facts):
    assert cut((0, 4), **facts) == (None, None, None)


def test_a_gpu_without_mig_has_no_memory_slices():
    assert counted(gpu()) == (None, None, None)


# Compute slices of each instance, its memory slices, and where those begin.
LAYOUTS = {
    "no instance": ([], 7),
    "seven of one slice": ([(1, 1, place) for place in range(7)], 0),
    "four 1g with a quarter of the memory each": ([(1, 2, place) for place in (0, 2, 4, 6)], 0),
    "three of these": ([(1, 2, place) for place in (0, 2, 4)], 1),
    "two 3g": ([(3, 4, 0), (3, 4, 4)], 0),
    "one 3g at the start": ([(3, 4, 0)], 3),
    "one 3g at the end": ([(3, 4, 4)], 4),
    "only the last memory slice is free": ([(3, 4, 0), *((1, 1, place) for place in (4, 5, 6))], 0),
    "2g, 1g with double memory": ([(2, 2, 0), (1, 2, 2)], 3),
    "scattered": ([(1, 1, place) for place in (1, 3, 5)], 4),
}


@pytest.mark.parametrize(("parts", "free"), LAYOUTS.values(), ids=LAYOUTS)
def test_a_free_compute_slice_has_memory_for_a_new_instance(parts, free):
    placed = [
        mig(uuid=f"MIG-{gi}", gi=gi, slices=slices, memory_slices=size, gi_start=start, gi_size=size)
        for gi, (slices, size, start) in enumerate(parts)
    ]
    (row,) = join(mig_gpu(placed)).gpus
    used = sum(slices for slices, _, _ in parts)
    assert (row.mig_slices_used, row.mig_slices_free) == (used, free)


@pytest.mark.parametrize(
    ("parts", "free"),
    [
        ([], 7),
        ([(1, 1)] * 3, 4),
        ([(2, 2), (1, 1)], 4),
        ([(1, 2)] * 4, 0),
        ([(3, 4)] * 2, 0),
        ([(4, 4), (3, 4)], 0),
        ([(1, 2)] * 3, None),
        ([(3, 4)], None),
        ([(1, None)], None),
        ([(7, None)], 0),
    ],
)
def test_without_placements_free_compute_slices_are_known_if_every_placement_leaves_as_many(parts, free):
    placed = [
        mig(uuid=f"MIG-{gi}", gi=gi, slices=slices, memory_slices=size)
        for gi, (slices, size) in enumerate(parts)
    ]
    (row,) = join(mig_gpu(placed)).gpus
    assert row.mig_slices_free == free


def test_partitions_without_memory_slices_leave_none_free():
    """As those of an AMD GPU, which are all there are."""
    parts = [mig(uuid=f"xcp-{gi}", gi=gi, slices=1, memory_slices=None) for gi in range(8)]
    (row,) = join(gpu(None, mig_enabled=True, mig_slices=8, mig=tuple(parts))).gpus
    assert (row.mig_slices_used, row.mig_slices_free) == (8, 0)


@given(st.sets(st.integers(0, 7)))
def test_occupied_and_free_slices_are_all_slices(taken):
    found = free_spans([Span(start, 1) for start in taken], 8)

    free = [place for span in found for place in range(span.start, span.start + span.size)]
    assert sorted([*free, *taken]) == list(range(8))
    assert all(one.start + one.size < other.start for one, other in pairwise(found))
