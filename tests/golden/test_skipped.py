"""What no chosen series needs is not read, and each chosen series is as if all was read."""

import asyncio
import functools
import re
from typing import get_args

import pytest

from exporter.exposition import Exposition
from exporter.metrics.dcgm import DcgmNames
from exporter.metrics.selection import ALL, NEEDED_BY, SETS, Selection
from exporter.model import Snapshot
from tests.golden.page import MASKED, reviewed
from tests.golden.story import USUAL, scenario, scenes

# Boards with fans and video engines, sick ones, of an NVLink domain, with protected memory, vGPUs, without
# some calls, in MIG mode: the slowest last.
BOARDS = (
    *("l40s", "sick-gpus", "gb200-nvl72", "confidential"),
    *("vgpu-host", "old-driver", "vgpu-guest", "h100-mixed"),
)
# What the exporter itself does.
ABOUT_CALLS = MASKED | {"gpuslice_nvml_calls_total", "gpuslice_nvml_field_read_seconds"}
NOTHING: frozenset[str] = frozenset()
EVERYTHING = Selection(metric_set="full", allow=(re.compile(".*"),))


@functools.cache
def snapshot(name: str, skip: frozenset[str]) -> Snapshot:
    """Act a node out without reading ``skip``."""

    async def act() -> Snapshot:
        [scene] = [scene async for scene in scenes(scenario(name), (USUAL,), skip)]
        assert scene.snapshot is not None
        return scene.snapshot

    return asyncio.run(act())


@functools.cache
def samples(name: str, selection: Selection, skip: frozenset[str]) -> dict[str, list[str]]:
    """Return the samples of a node by family."""
    blocks = Exposition(selection).blocks(snapshot(name, skip))
    return {
        family.name: reviewed(text.decode(), dcgm=True)
        for family, text in blocks
        if family.name not in ABOUT_CALLS
    }


@pytest.mark.slow
@pytest.mark.parametrize("metric_set", SETS)
@pytest.mark.parametrize("name", BOARDS)
def test_a_set_is_as_if_all_was_read(name: str, metric_set: str):
    """Every family of the set is there, with the same values, whichever of DCGM's names are added."""
    for dcgm_names in get_args(DcgmNames):
        selection = Selection(metric_set=metric_set, dcgm_names=dcgm_names)
        served = samples(name, selection, selection.unneeded())
        assert served == samples(name, selection, NOTHING)
        assert served


def alone(family: str) -> Selection:
    """Choose a family by its name, and no other."""
    other = re.compile(f"(?!{re.escape(family)}$).*")
    return Selection(metric_set="core", dcgm_names="off", allow=(re.compile(family),), deny=(other,))


@pytest.mark.slow
@pytest.mark.parametrize("name", BOARDS)
def test_a_family_alone_is_as_if_all_was_read(name: str):
    """Whatever is chosen, what it needs is read."""
    complete = samples(name, EVERYTHING, NOTHING)
    for family in ALL:
        selection = alone(family.name)
        assert [chosen.name for chosen in selection.families()] == [family.name]
        served = samples(name, EVERYTHING, selection.unneeded())
        assert served.get(family.name) == complete.get(family.name)


def test_core_skips_what_it_does_not_need():
    """The default choice has dcgm-exporter's default fields, so the video engines are read."""
    skipped = Selection().unneeded()
    assert skipped == NEEDED_BY.keys() - {"engine_percent.encoder", "engine_percent.decoder"}
    assert Selection(dcgm_names="off").unneeded() == NEEDED_BY.keys()
    assert Selection(allow=(re.compile(".*bar1_used.*"),)).unneeded() == skipped - {"bar1"}
    clocks = Selection(allow=(re.compile("gpuslice_gpu_clock_hertz"),)).unneeded()
    assert skipped - clocks == {"clocks_megahertz.graphics", "clocks_megahertz.video"}


@pytest.mark.slow
@pytest.mark.parametrize("reading", sorted(NEEDED_BY))
def test_a_skipped_reading_is_missing(reading: str):
    """The table has no reading that is read all the same, or that no family needs."""
    skip = frozenset({reading})
    assert any(samples(name, EVERYTHING, NOTHING) != samples(name, EVERYTHING, skip) for name in BOARDS)
