"""Faults of the files of sharing systems, and what each may cost.

The files are those that a poll is seen to open.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from exporter.demo.scenario import Scenario, catalog
from tests.together.faults.cells import Cell, Claim, Result
from tests.together.faults.compare import failures_of
from tests.together.faults.harness import Watch, watched
from tests.together.faults.layout_moments import OPENINGS
from tests.together.faults.pages import Page, labels_of, name_of
from tests.together.faults.sharing_spoil import AT_FILES, AT_FOLDERS, THREAD, WHILE_READ, Spoil, spoiled

NODES: Final = (
    "hami",
    "hami-dra",
    "hami-vendors",
    "dra",
    "vgpu-manager-dra",
    "amd-dra",
    "intel-dra",
    "cgpu",
    "gpu-manager",
    "vgpu-manager",
    "runai",
    "mps-daemon",
)
"""The nodes whose systems keep files."""
# What is entitled may be known from the plan of a scheduler too, which is less exact.
ENTITLED = frozenset(
    {
        "gpuslice_gpu_memory_entitled_bytes",
        "gpuslice_container_memory_entitled_bytes",
        "gpuslice_container_compute_entitled_ratio",
        "gpuslice_container_entitled_gpu_seconds_total",
    }
)
USED = frozenset({"gpuslice_container_memory_used_bytes", "gpuslice_container_compute_used_ratio"})
# Without the file there is no such system, and other sources are used.
ABSENT = frozenset({"removed", "a link to nothing"})
# Nothing else on the node shows an MPS daemon.
ALONE = ("nvidia/mps",)
# Only its file shows that a planned limit of this container is not in force.
LEFT_OUT = frozenset({"rank-1"})
# A number in digits that is cut short is another number.
DIGITS = ("cgpu_km", "metrics/gpu")
Planned = tuple[Cell, Path, Spoil]
Select = Callable[[Iterable[Planned]], Sequence[Planned]]


WHEN = ("before", "at opening", "in reading")
OF_FOLDERS = ("folder, before", "folder, at opening")


@dataclass(frozen=True, slots=True)
class Found:
    """What a poll opens of a node, below its root: folders and regular files."""

    folders: tuple[Path, ...]
    files: tuple[Path, ...]


def node(name: str) -> Scenario:
    """Return a node whose containers are also known without their files, if less exactly."""
    found = catalog.load(name)
    return replace(found, pods=tuple(pod for pod in found.pods if pod.name not in LEFT_OUT))


async def opened_by(watch: Watch) -> Found:
    """Poll once and see what the reader of sharing systems' files opens."""
    seen: dict[Path, None] = {}
    await watch.before()

    def note() -> None:
        if threading.current_thread().name == THREAD:
            seen[OPENINGS.path] = None

    with OPENINGS.below(watch.node._root, note):
        await watch.poll()
    return Found(
        folders=tuple(path for path in seen if path.is_dir()),
        files=tuple(path for path in seen if path.is_file()),
    )


def cells_of(name: str, found: Found, root: Path) -> Iterator[Planned]:
    """Yield every cell of a node, with its path and what is done to that."""
    for path in found.files:
        for when in WHEN:
            for how, spoil in (AT_FILES if when != "in reading" else WHILE_READ).items():
                if how == "cut short" and any(each in str(path) for each in DIGITS):
                    continue
                yield _cell(name, path, root, how, when), path, spoil
    for path in found.folders:
        for how, spoil in AT_FOLDERS.items():
            yield _cell(name, path, root, how, OF_FOLDERS[0]), path, spoil
            if how == "removed":
                yield _cell(name, path, root, how, OF_FOLDERS[1]), path, spoil


def _cell(name: str, path: Path, root: Path, how: str, when: str) -> Cell:
    return Cell(source=name, what=str(path.relative_to(root)), how=how, where=when)


# What follows from what a system's files say of containers, of the devices that they are on.
OF_DEVICES = (
    "gpuslice_gpu_info",
    "gpuslice_mig_info",
    "gpuslice_mig_holders",
    "gpuslice_mig_slices",
    "gpuslice_allocations_unresolved",
    "gpuslice_gpu_unattributed",
    "gpuslice_mig_unattributed",
    "gpuslice_gpu_memory_entitled",
    "gpuslice_gpu_slices",
    "gpuslice_gpu_holders",
    "gpuslice_gpu_sharing",
)


async def claim_of(watch: Watch, cell: Cell, path: Path) -> Claim:
    """Only rows of the file's container, and the unattributed use of its devices, may leave."""
    pods = _about(watch.node.scenario, str(path))

    def own(series: str) -> bool:
        name = name_of(series)
        pod = labels_of(series).get("pod", "")
        of_pod = name.startswith(("gpuslice_container_", "gpuslice_pod_")) and (pod in pods or not pods)
        return of_pod or (not pod and name.startswith(OF_DEVICES))

    def health(before: Page, page: Page) -> Iterator[str]:
        failed = failures_of(before, page)
        if {key[0] for key in failed} - {THREAD}:
            yield f"is counted as {failed}"
        if page.value("gpuslice_collector_success", collector=THREAD) != 1:
            yield "one file takes all files of sharing systems down"
        if any(reason.endswith("_files") for _, reason in failed):
            yield "one file ends the reading of all files of its system"

    states = ENTITLED | {"gpuslice_allocations_unresolved"}
    if cell.where in OF_FOLDERS or cell.how in ABSENT or any(each in str(path) for each in ALONE):
        page = (await watch.before()).page
        states |= {name_of(series) for series in page.samples if own(series)} - USED
    return Claim(own=own, health=health, states=states)


def _about(scenario: Scenario, path: str) -> set[str]:
    """Return the pods in a path by uid, container or claim; none if it is of all of them."""
    return {
        pod.name
        for pod in scenario.pods
        for container in pod.containers
        if pod.uid in path
        or (container.container_id and container.container_id[:12] in path)
        or any(claim.uid in path for claim in container.claims)
    }


def outcome(before: Page, page: Page) -> str:
    """Return the reasons under which it was counted, and how many containers' use is unknown."""
    reasons = sorted({key[1] for key in failures_of(before, page)})
    used = "gpuslice_container_memory_used_bytes"
    left = len(list(before.series(used))) - len(list(page.series(used)))
    return ", ".join([*reasons, *([f"use of {left} unknown"] if left else [])]) or "nothing lost"


async def try_cell(watch: Watch, cell: Cell, path: Path, spoil: Spoil) -> Result:
    """Spoil a file for one poll."""
    claim = await claim_of(watch, cell, path)
    return await watch.under(cell, spoiled(watch, path, spoil, cell.where), claim, outcome)


async def run_node(
    name: str, select: Callable[[Iterable[Planned]], Sequence[Planned]] = list
) -> list[Result]:
    """Try the selected cells of a node one after the other."""
    async with watched(node(name)) as watch:
        found = await opened_by(watch)
        planned = select(cells_of(name, found, watch.node._root))
        return [await try_cell(watch, *plan) for plan in planned]
