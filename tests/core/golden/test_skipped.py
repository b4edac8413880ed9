"""Readings that no chosen series needs are skipped, and each chosen series is as if all was read."""

import asyncio
import functools
import re
from itertools import product
from typing import get_args

import pytest

from exporter.exposition import Exposition
from exporter.metrics.dcgm import DcgmNames
from exporter.metrics.selection import ALL, SETS, SKIPPABLE, Selection
from exporter.model import Snapshot
from tests.core.golden.page import COSTS, MASKED, reviewed
from tests.core.golden.story import USUAL, scenario, scenes
from tests.fake.demo.making import gpu, made

# A board with a fan, and nodes with video engines, protected memory, missing calls, an NVLink domain, sick
# GPUs, vGPUs and MIG mode: the slowest last.
FAN = "fan"
BOARDS = (
    *(FAN, "l40s", "confidential", "old-driver", "gb200-nvl72"),
    *("sick-gpus", "vgpu-host", "vgpu-guest", "h100-mixed"),
)
QUICK = (FAN, "l40s", "old-driver", "gb200-nvl72")
# Costs of the polls.
ABOUT_CALLS = MASKED | {*COSTS, "gpuslice_nvml_field_read_seconds"}
NOTHING: frozenset[str] = frozenset()
EVERYTHING = Selection(metric_set="full", dcgm_version="both", allow=(re.compile(".*"),))


@functools.cache
def snapshot(name: str, skip: frozenset[str]) -> Snapshot:
    """Return the snapshot of a node without reading ``skip``."""

    async def act() -> Snapshot:
        node = made(gpus=[gpu(fan=30)]) if name == FAN else scenario(name)
        [scene] = [scene async for scene in scenes(node, (USUAL,), skip)]
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


@pytest.mark.parametrize("name", QUICK)
def test_a_set_is_as_if_all_was_read(name: str):
    """Every family of a set is there, with the same values, whichever of DCGM's names are added."""
    for metric_set, dcgm_names in product(SETS, get_args(DcgmNames)):
        selection = Selection(metric_set=metric_set, dcgm_names=dcgm_names)
        served = samples(name, selection, selection.unneeded())
        assert served == samples(name, selection, NOTHING)
        assert served


def alone(family: str) -> Selection:
    """Return the selection of one family."""
    other = re.compile(f"(?!{re.escape(family)}$).*")
    return Selection(dcgm_names="off", dcgm_version="both", allow=(re.compile(family),), deny=(other,))


@pytest.mark.slow
@pytest.mark.parametrize("name", BOARDS)
def test_a_family_alone_is_as_if_all_was_read(name: str):
    """All readings that it needs are read."""
    complete = samples(name, EVERYTHING, NOTHING)
    for family in ALL:
        selection = alone(family.name)
        assert [chosen.name for chosen in selection.families()] == [family.name]
        served = samples(name, EVERYTHING, selection.unneeded())
        assert served.get(family.name) == complete.get(family.name)


def test_core_skips_what_it_does_not_need():
    """The default includes dcgm-exporter's default fields, so the video engines are read."""
    skipped = Selection().unneeded()
    assert skipped == SKIPPABLE - {"engine_percent.encoder", "engine_percent.decoder"}
    assert Selection(dcgm_names="off").unneeded() == SKIPPABLE
    assert Selection(allow=(re.compile(".*bar1_used.*"),)).unneeded() == skipped - {"bar1"}
    clocks = Selection(allow=(re.compile("gpuslice_gpu_clock_hertz"),)).unneeded()
    assert skipped - clocks == {"clocks_megahertz.graphics", "clocks_megahertz.video"}


@pytest.mark.parametrize("reading", sorted(SKIPPABLE))
def test_a_skipped_reading_is_missing(reading: str):
    """The table has no reading that is never skipped, or that no family needs."""
    skip = frozenset({reading})
    assert any(samples(name, EVERYTHING, NOTHING) != samples(name, EVERYTHING, skip) for name in BOARDS)
