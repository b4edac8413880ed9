"""The numbers of series in docs/cost.md, and their limits. ``pytest --update`` writes them."""

import asyncio
import contextlib
import re
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from benchmarks.nodes import NODES as MEASURED
from benchmarks.nodes import load
from exporter.exposition import Exposition, Format
from exporter.metrics import FAMILIES
from exporter.metrics.dcgm import DcgmVersion
from exporter.metrics.selection import SETS, Selection
from exporter.model import NodeRow, Snapshot
from tests.core.golden.story import NODES, golden, scenes, story, times

PAGE = Path(__file__).parents[3] / "docs/cost.md"
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
# Series of one entity in core.
LIMITS = {"gpu": 67, "mig": 13, "vgpu": 8, "container": 17, "mig_profile": 3, "node": 60}
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


def most(samples: list[str]) -> dict[str, int]:
    """Return the most series that an entity of each level has on a page."""
    counts = Counter(map(entity, samples))
    return {level: max((n for (of, _), n in counts.items() if of == level), default=0) for level in LIMITS}


def most_of_dcgm(samples: list[str], *, instances: bool) -> int:
    """Return the most series that a GPU has under DCGM's names, or a GPU instance of MIG."""
    labels = [dict(re.findall(r'(\w+)="([^"]*)"', line)) for line in samples if line.startswith("DCGM_")]
    counts = Counter((each["UUID"], each.get("GPU_I_ID")) for each in labels)
    return max(count for (_, instance), count in counts.items() if (instance is not None) == instances)


def exceeded(samples: list[str]) -> dict[str, int]:
    """Return the most series of the levels that have more than their limit."""
    return {level: count for level, count in most(samples).items() if count > LIMITS[level]}


def compare(text: str, request: pytest.FixtureRequest) -> None:
    """Compare docs/cost.md with what it should be, or write that with ``--update``."""
    if request.config.getoption("--update"):
        PAGE.write_text(text)
    assert PAGE.read_text() == text, "if this is meant: pytest tests/core/golden --update"


@pytest.mark.parametrize("name", SHOWN)
def test_the_row_of_a_node_has_its_numbers_of_series(name: str, request: pytest.FixtureRequest) -> None:
    snapshot = asyncio.run(first(name)) if name in MEASURED else story(name).scenes[0].snapshot
    native = [
        sum(
            not line.startswith(OF_EXPORTER)
            for line in page(snapshot, metric_set=metric_set, dcgm_names="off")
        )
        for metric_set in SETS
    ]
    dcgm = [
        sum(line.startswith("DCGM_") for line in page(snapshot, dcgm_names=chosen))
        for chosen in ("default", "all")
    ]
    cells = " | ".join(f"{count:,}" for count in (len(page(snapshot)), *native, *dcgm))
    rows, count = re.subn(
        rf"^\| {SHOWN[name]} \|.*$", f"| {SHOWN[name]} | {cells} |", PAGE.read_text(), flags=re.MULTILINE
    )
    assert count == 1
    compare(rows, request)
    assert exceeded(page(snapshot, dcgm_names="off")) == {}


def test_the_table_of_entities_has_the_most_series_of_the_golden_pages(
    request: pytest.FixtureRequest,
) -> None:
    # Series of the process are on no golden page; they are the same on every node.
    of_process = [
        line
        for line in page(Snapshot(timestamp=0, sequence=0, node=NodeRow(name="a")))
        if line.startswith(OF_EXPORTER)
    ]
    pages = [most(golden(name, times(name)[0]).read_text().splitlines() + of_process) for name in NODES]
    rows = [
        f"| {NAMES[level]} | {max(counts[level] for counts in pages)} | {limit} |\n"
        for level, limit in LIMITS.items()
    ]
    table = "| entity | most | limit |\n| --- | --: | --: |\n" + "".join(rows)
    mark = re.compile(r"(<!-- entities -->\n).*(<!-- /entities -->)", re.DOTALL)
    compare(mark.sub(rf"\g<1>{table}\g<2>", PAGE.read_text()), request)


def test_the_table_of_versions_of_dcgm_has_the_series_of_an_h100(request: pytest.FixtureRequest) -> None:
    whole, cut = (asyncio.run(first(name)) for name in ("exclusive", "mig"))
    rows = []
    for version in get_args(DcgmVersion):
        counts = [
            most_of_dcgm(page(snapshot, dcgm_names=names, dcgm_version=version), instances=snapshot is cut)
            for snapshot in (whole, cut)
            for names in ("default", "all")
        ]
        rows.append(f"| {version} | {' | '.join(map(str, counts))} |\n")
    head = "| version | GPU, default | GPU, all | MIG device, default | MIG device, all |\n"
    table = f"{head}| --- | --: | --: | --: | --: |\n{''.join(rows)}"
    mark = re.compile(r"(<!-- dcgm -->\n).*(<!-- /dcgm -->)", re.DOTALL)
    compare(mark.sub(rf"\g<1>{table}\g<2>", PAGE.read_text()), request)


@pytest.mark.parametrize("name", NODES)
def test_no_entity_has_more_series_than_its_limit(name: str) -> None:
    """A GPU in MIG mode has its free slices on top, and no profiling metrics of its own."""
    lines = story(name).scenes[0].default.splitlines()
    assert exceeded([line for line in lines if not line.startswith(("#", "DCGM_"))]) == {}
