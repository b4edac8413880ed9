"""Where a GPU instance fits, against an independent enumeration of all layouts of each recorded model."""

import re
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from exporter.model.mig_geometry import Span
from exporter.model.mig_placements import memory_size, placements, places_for, profile_size

LINE = re.compile(r"GPU +0 Profile ID +(\d+) Placements? *: \{([\d,]+)\}:(\d+)")
# Compute slices of a GPU with so many parts of memory.
COMPUTE = {8: 7, 4: 4, 12: 4}


class Recorded(NamedTuple):
    """What the driver of one model lists."""

    model: str
    masks: dict[str, list[int]]  # by profile: the parts of memory that each of its placements takes
    size: int

    def instances(self, profile: str) -> int:
        """Return how many instances of a profile fit on an empty GPU, by trying."""
        return max(chosen.bit_count() for chosen in _disjoint(self.masks[profile]))


def _disjoint(masks: Sequence[int]) -> Iterator[int]:
    """Yield all choices of placements, as bits, that do not overlap."""
    for chosen in range(1 << len(masks)):
        picked = [mask for number, mask in enumerate(masks) if chosen >> number & 1]
        if sum(picked) == _union(picked):
            yield chosen


def _union(masks: Sequence[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


@cache
def recordings() -> tuple[Recorded, ...]:
    """Return what each recorded driver lists."""
    document = tomllib.loads((Path(__file__).parent / "driver_placements.toml").read_text())
    found = []
    for listing in document["listings"]:
        masks: dict[str, list[int]] = {}
        for number, starts, size in LINE.findall(listing["text"]):
            name = listing["profiles"][number]
            masks[name] = [((1 << int(size)) - 1) << int(start) for start in starts.split(",")]
        assert masks.keys() == set(listing["profiles"].values())
        whole = max(mask.bit_length() for each in masks.values() for mask in each)
        found += [Recorded(model, masks, whole) for model, _ in listing["models"]]
    return tuple(found)


def layouts(recorded: Recorded) -> set[frozenset[int]]:
    """Return all layouts that plain profiles can make, each as the masks of its instances."""
    every = sorted({mask for name, masks in recorded.masks.items() if "+" not in name for mask in masks})
    found: set[frozenset[int]] = set()

    def extend(layout: frozenset[int], taken: int, first: int) -> None:
        found.add(layout)
        for number in range(first, len(every)):
            if not taken & every[number]:
                extend(layout | {every[number]}, taken | every[number], number + 1)

    extend(frozenset(), 0, 0)
    return found


def span(mask: int) -> Span:
    """Return a mask of adjacent parts as a span."""
    start = (mask & -mask).bit_length() - 1
    return Span(start, mask.bit_length() - start)


@pytest.mark.parametrize("recorded", recordings(), ids=lambda each: each.model)
def test_in_every_layout_an_instance_fits_exactly_where_the_driver_has_a_free_placement(recorded: Recorded):
    cases = 0
    for layout in layouts(recorded):
        used = [span(mask) for mask in layout]
        for profile, masks in recorded.masks.items():
            possible = placements(recorded.model, profile, recorded.instances(profile))
            if profile_size(profile) is None:
                assert possible is None
                continue
            free = [mask for mask in masks if not mask & _union(list(layout))]
            for count in range(1, len(masks) + 2):
                places = places_for(possible or (), used, count)
                assert (places is not None) == (len(free) >= count), (layout, profile, count)
                assert {span(mask) for mask in free}.issuperset(places or ())
                cases += 1
    assert cases > 30


@pytest.mark.parametrize("recorded", recordings(), ids=lambda each: each.model)
def test_no_layout_needs_more_compute_slices_than_the_gpu_has(recorded: Recorded):
    """So that free memory slices at a placement are all that an instance needs."""
    compute = {
        mask: max(
            size.compute
            for name, masks in recorded.masks.items()
            if mask in masks and (size := profile_size(name))
        )
        for masks in recorded.masks.values()
        for mask in masks
    }

    # The largest profile of a placement may not be that of the layout: then less is needed.
    needed = max(sum(compute[mask] for mask in layout) for layout in layouts(recorded))

    assert needed <= COMPUTE[recorded.size]


@pytest.mark.parametrize("recorded", recordings(), ids=lambda each: each.model)
def test_the_size_of_the_memory_is_that_of_the_recording(recorded: Recorded):
    assert memory_size(recorded.model) == recorded.size


@pytest.mark.parametrize("model", ["NVIDIA B200", "NVIDIA A100X", "NVIDIA A10", "", "A3", "NVIDIA L40S"])
def test_nothing_is_said_of_a_model_without_a_listing(model: str):
    assert placements(model, "1g.10gb", 7) is None
    assert memory_size(model) is None


def test_profiles_of_one_name_are_told_apart_by_their_number():
    seven = placements("NVIDIA A100-SXM4-80GB", "1g.10gb", 7)
    four = placements("NVIDIA A100-SXM4-40GB", "1g.10gb", 4)

    assert seven == tuple(Span(start, 1) for start in range(7))
    assert four == tuple(Span(start, 2) for start in (0, 2, 4, 6))
    assert placements("NVIDIA A100-SXM4-40GB", "1g.10gb", 5) is None


def test_four_adjacent_free_slices_in_the_middle_are_no_place_for_3g():
    used = [Span(0, 1), Span(1, 1), Span(6, 1)]

    assert places_for(placements("NVIDIA H100 80GB HBM3", "3g.40gb", 2) or (), used, 1) is None
