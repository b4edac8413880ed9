"""The numbers of series in docs/cost.md, and the limits that they are held to."""

import asyncio
import contextlib
import re
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.nodes import NODES as MEASURED
from benchmarks.nodes import load
from exporter.exposition import Exposition, Format
from exporter.metrics import FAMILIES
from exporter.metrics.selection import SETS, Selection
from exporter.model import Snapshot
from tests.golden.story import NODES, golden, scenes, story, times

PAGE = Path(__file__).parents[2] / "docs/cost.md"
LEVELS = {family.name: family.level for family in FAMILIES}
SHOWN = {
    "exclusive": "8 H100, each held whole",
    "mig": "8 H100, each with 7 MIG devices",
    "time-slices": "16 GPUs, each time-sliced by 10",
    "mps": "8 H100, each with 48 MPS clients",
    "l40s": "4 L40S",
    "a100-mig-mixed": "8 A100 in MIG mode",
    "vgpu-host": "A40 with vGPUs",
    "mi300x-cpx": "8 MI300X in CPX mode",
    "hami": "GPUs shared by HAMi",
}
# The most series of one entity in core.
LIMITS = {"gpu": 55, "mig": 13, "vgpu": 8, "container": 17, "mig_profile": 3, "node": 60}
NAMES = {
    "gpu": "GPU",
    "mig": "MIG device",
    "vgpu": "vGPU",
    "container": "holder of a device",
    "mig_profile": "MIG profile of a model",
    "node": "node and exporter",
}
OF_EXPORTER = ("process_", "python_", "gpuslice_build_", "gpuslice_render_")


def page(snapshot: Snapshot, **selected: str) -> list[str]:
    """Return the samples of a page."""
    text = Exposition(Selection(**selected)).page(snapshot).body(Format.TEXT).decode()
    return [line for line in text.splitlines() if not line.startswith("#")]


async def first(name: str) -> Snapshot:
    """Poll a node of the benchmarks until all of its readings have values."""
    async with contextlib.aclosing(scenes(load(name), (10,))) as shown:
        return (await anext(shown)).snapshot


@pytest.fixture(scope="module")
def snapshots() -> dict[str, Snapshot]:
    """Poll each node that the page shows."""
    return {
        name: asyncio.run(first(name)) if name in MEASURED else story(name).scenes[0].snapshot
        for name in SHOWN
    }


def entity(line: str) -> tuple[str, str]:
    """Return the level of a sample with what identifies its entity; the node for what is of no other."""
    name, labels = re.split(r"[{ ]", line)[0], dict(re.findall(r'(\w+)="([^"]*)"', line))
    level = LEVELS.get(name, "node")
    if name.startswith("gpuslice_node_mig_profile_"):
        return "mig_profile", f"{labels['model']} {labels['profile']}"
    if level in ("node", "collector"):
        return "node", ""
    keys = ("uuid", "mig_uuid", "vgpu_uuid", "namespace", "pod", "container")
    return level, " ".join(labels.get(key, "") for key in keys)


def core(snapshot: Snapshot) -> list[str]:
    """Return the samples of the page of core alone."""
    return page(snapshot, dcgm_names="off")


def most(samples: list[str]) -> dict[str, int]:
    """Return the most series that an entity of each level has on a page."""
    found = Counter(map(entity, samples))
    return {level: max((n for (of, _), n in found.items() if of == level), default=0) for level in LIMITS}


def series_table(snapshots: dict[str, Snapshot]) -> str:
    """Return the table of series by node."""
    rows = ["| node | default | core | standard | full | DCGM default | DCGM all |", "| --- |" + " --: |" * 6]
    for name, title in SHOWN.items():
        snapshot = snapshots[name]
        native = [
            sum(
                not line.startswith(OF_EXPORTER) for line in page(snapshot, metric_set=each, dcgm_names="off")
            )
            for each in SETS
        ]
        names = [
            sum(line.startswith("DCGM_") for line in page(snapshot, dcgm_names=each))
            for each in ("default", "all")
        ]
        cells = [len(page(snapshot)), *native, *names]
        rows.append(f"| {title} | " + " | ".join(f"{cell:,}" for cell in cells) + " |")
    return "\n".join(rows)


def entities_table(found: dict[str, int]) -> str:
    """Return the table of the most series by entity."""
    rows = ["| entity | most | limit |", "| --- | --: | --: |"]
    return "\n".join([*rows, *(f"| {NAMES[level]} | {found[level]} | {LIMITS[level]} |" for level in LIMITS)])


@pytest.mark.slow
def test_the_page_has_the_numbers_of_now(snapshots, request) -> None:
    """``pytest tests/golden --update`` writes them."""
    shown = [core(one) for one in snapshots.values()]
    # A reviewed page is that of core without what describes the process, which is the same on every node.
    own = [line for line in shown[0] if line.startswith(OF_EXPORTER)]
    pages = [golden(name, times(name)[0]).read_text().splitlines() for name in NODES]
    each = [most(lines) for lines in (*shown, *(lines + own for lines in pages))]
    largest = {level: max(one[level] for one in each) for level in LIMITS}
    text = PAGE.read_text()
    for mark, table in (("series", series_table(snapshots)), ("entities", entities_table(largest))):
        text = re.sub(
            rf"<!-- {mark} -->.*<!-- /{mark} -->",
            f"<!-- {mark} -->\n{table}\n<!-- /{mark} -->",
            text,
            flags=re.DOTALL,
        )
    if request.config.getoption("--update"):
        PAGE.write_text(text)
    assert PAGE.read_text() == text


@pytest.mark.parametrize("name", NODES)
def test_no_entity_has_more_series_than_its_limit(name) -> None:
    """On every node: a GPU in MIG mode has its free slices on top, and no profiling metrics of its own."""
    found = most(core(story(name).scenes[0].snapshot))
    assert {level: number for level, number in found.items() if number > LIMITS[level]} == {}
