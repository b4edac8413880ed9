"""The page of one holder: what it holds and uses, its neighbours, and its events."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from exporter.formats.holder_answers import AnsweredQuestion, efficiency_of
from exporter.formats.holder_text import energy, gpu_time
from exporter.formats.memory_limits import limits_text
from exporter.model import ContainerRef, ContainerRow, GpuRow, HeldClaim, MigRow, Totals
from exporter.model.pod_labels import Labels
from exporter.web.kit.elements import Figure, Pair, figure_of
from exporter.web.node.pages.answers import answers_of
from exporter.web.node.pages.event_list import EventView, hits_of
from exporter.web.node.pages.holder_cells import row_id, state_text
from exporter.web.node.pages.picture.cells import UNATTRIBUTED, Amounts, Gauge, memory_amounts, use_gauges
from exporter.web.node.pages.process_table import ProcessTable, place_of, processes_of_holder
from exporter.web.node.pages.scene import Scene, name_of
from exporter.web.node.pages.slice_words import isolation_text, isolation_word, slice_of
from exporter.wording import decimal, duration, gibibytes, mode_word

_NOT_YET = "not enough data yet"
_NEVER = "not measured yet"
_SOURCES = {
    "process": "sum over its processes, from the driver",
    "instance": "total of the MIG device: no other container uses it",
    "device": "total of the GPU: no other container uses it",
    "cgroup": "charged to its cgroup, as its processes are not visible",
    "server": "total of the MPS server: all of its clients belong to this container",
    "dcgm": "total of the device, by a DCGM profiling metric: no other container uses it",
}


class Measure(NamedTuple):
    """A use with its entitlement, and the source of the number in words."""

    gauge: Gauge
    source: str


class Fact(NamedTuple):
    """A total over a holder's life."""

    name: str
    figure: Figure
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Another container on the same device."""

    holder: ContainerRef
    state: str
    state_word: str
    memory: Pair
    compute: Pair


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldView:
    """One device of a holder."""

    id: str
    gpu: str  # "" if the driver does not list it
    row: ContainerRow
    uuid: str
    slice: Figure
    claims: tuple[tuple[str, str], ...]  # "namespace/name", and "request R, device D of pool P"
    mode: str
    isolation: str
    isolation_text: str
    state: str
    state_word: str
    since: str  # how long it has been in its state
    measures: tuple[Measure, ...]
    facts: tuple[Fact, ...]
    neighbours: tuple[Neighbour, ...]
    rest: str  # unattributed memory of the device, as a sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderPage:
    """The page of a holder."""

    holder: ContainerRef
    labels: Labels  # of its pod
    facts: tuple[str, ...]  # shown under its name
    answers: tuple[AnsweredQuestion, ...]
    devices: tuple[HeldView, ...]
    processes: ProcessTable
    hits: tuple[EventView, ...]


def holder_page(scene: Scene, ref: ContainerRef) -> HolderPage | None:
    """Return the page of a holder; None if no such container holds or uses a device now."""
    held = [row for row in scene.snapshot.containers if row.holder == ref]
    rows = sorted(held, key=lambda row: place_of(scene, row.device))
    if not rows:
        return None
    devices = tuple(_held(scene, row) for row in rows)
    hits = tuple(hits_of(scene, ref))
    names = [f"{device.gpu or 'an unlisted device'}: {device.slice.text}" for device in devices]
    unseen = next((why for row in rows if (why := scene.why_processes(row))), "")
    return HolderPage(
        holder=ref,
        labels=scene.labels.of(rows[0]),
        facts=tuple(_facts_of_all(scene, rows)),
        answers=tuple(answers_of(scene, rows, names, hits)),
        devices=devices,
        processes=processes_of_holder(scene, ref, unseen),
        hits=hits,
    )


def _facts_of_all(scene: Scene, rows: Sequence[ContainerRow]) -> Iterator[str]:
    if not rows[0].holder.container:
        yield "the containers of this pod cannot be distinguished"
    seen = [row.totals.first_seen for row in rows if row.totals is not None]
    if seen:
        yield f"seen for {duration(scene.snapshot.timestamp - min(seen))}, since {date_of(min(seen))}"
    uids = {row.pod_uid for row in rows if row.pod_uid}
    if len(uids) == 1:
        yield f"pod uid {uids.pop()}"
    earlier = scene.ended.find(rows[0].holder)
    if earlier is not None:
        yield f"an earlier pod of this name was here until {date_of(earlier.last_seen)}"


def _held(scene: Scene, row: ContainerRow) -> HeldView:
    gpu = scene.gpus.get(row.device.uuid)
    state = scene.state(row)
    return HeldView(
        id=f"on-{row_id(row.holder, row.device)}",
        gpu="" if gpu is None else name_of(gpu),
        row=row,
        uuid=row.device.mig_uuid or row.device.uuid,
        slice=slice_of(scene, row),
        claims=tuple(map(_claim, row.claims)),
        mode=mode_word(row.sharing),
        isolation=isolation_word(row.isolation),
        isolation_text=isolation_text(row),
        state=state,
        state_word=state_text(scene.judged(row)),
        since=_since(scene, row, state),
        measures=_measures(scene, row),
        facts=tuple(_facts(scene, row)),
        neighbours=tuple(_neighbours(scene, row)),
        rest=_rest(scene, row),
    )


def _claim(claim: HeldClaim) -> tuple[str, str]:
    request = f"request {claim.request}, " if claim.request else ""
    return f"{claim.namespace}/{claim.name}", f"{request}device {claim.device} of pool {claim.pool}"


def _since(scene: Scene, row: ContainerRow, state: str) -> str:
    if row.compute_used is None:
        return scene.why_compute(row)
    totals, seconds = row.totals, scene.judged(row).not_computed_for
    if totals is None or totals.last_active is None or seconds is None:
        return ""
    if row.compute_used:
        return "computing now"
    lasted = duration(seconds)
    if state in ("quiet", "idle", "idle-memory"):
        return f"for {lasted}, since {date_of(totals.last_active)}"
    return f"last computed {lasted} ago" if totals.seen_computing else f"not seen computing in {lasted}"


def date_of(moment: float, *, seconds: bool = False) -> str:
    """Return a Unix time as a date, to the minute or the second."""
    return time.strftime(f"%Y-%m-%d %H:%M{':%S' if seconds else ''} UTC", time.gmtime(moment))


def _measures(scene: Scene, row: ContainerRow) -> tuple[Measure, ...]:
    sizes = memory_amounts(scene.device_memory(row), None), Amounts(1, None, None)
    memory, compute = use_gauges(scene, row, *sizes)
    return (
        Measure(memory, "; ".join(filter(None, (_source(row.memory_source, memory.pair), limits_text(row))))),
        Measure(compute, _source(row.compute_source, compute.pair)),
    )


def _source(name: str, pair: Pair) -> str:
    """Return the source of a number, or why there is none."""
    return pair.used.why or _SOURCES.get(name, f"measured by {mode_word(name)}")


def _facts(scene: Scene, row: ContainerRow) -> Iterator[Fact]:
    why_held = scene.why_entitled(row) if row.compute_entitled is None else _NOT_YET
    why_used = scene.why_compute(row) if row.compute_used is None else _NEVER
    why_memory = scene.why_memory(row) if row.memory_used is None else _NEVER
    yield from totals_of(row, why_held, why_used, why_memory)
    yield Fact(
        "processes",
        figure_of(row.processes, str, scene.why_processes(row) or "the driver does not list them"),
        "with a context on the device",
    )


def totals_of(row: ContainerRow, why_held: str, why_used: str, why_memory: str) -> Iterator[Fact]:
    """Yield the totals over a holder's life, each with a reason if it is unknown."""
    totals = row.totals or Totals(first_seen=0.0)
    held = figure_of(totals.entitled_gpu_seconds, gpu_time, why_held)
    used = figure_of(totals.used_gpu_seconds, gpu_time, why_used)
    share = efficiency_of(row)
    yield Fact("GPU time held", held, "entitled share of the GPU, summed since it was first seen")
    yield Fact("GPU time used", used, "used share of the GPU, summed since it was first seen")
    yield Fact(
        "efficiency",
        figure_of(share, lambda value: f"{decimal(100 * value, 0)} %", held.why or used.why or _NOT_YET),
        "GPU time used / held, while its use was measured",
    )
    peak = figure_of(totals.memory_peak, lambda size: f"{gibibytes(size)} GiB", why_memory)
    yield Fact("memory peak", peak, "the most memory of all polls since it was first seen")
    yield Fact(
        "energy",
        figure_of(totals.energy_joules, energy, "its part of the GPU's energy is not known"),
        "its part of the GPU's energy since it was first seen",
    )


def _neighbours(scene: Scene, row: ContainerRow) -> Iterator[Neighbour]:
    for other in scene.rows(row.device):
        if other is not row:
            state = scene.state(other)
            yield Neighbour(
                holder=other.holder,
                state=state,
                state_word=state_text(scene.judged(other)),
                memory=scene.memory(other),
                compute=scene.compute(other),
            )


def _rest(scene: Scene, row: ContainerRow) -> str:
    """Return the device's unattributed memory as a sentence, "" if it is 0 or unknown."""
    part: MigRow | GpuRow | None = scene.gpus.get(row.device.uuid)
    if row.device.mig_uuid:
        part = scene.migs.get(row.device)
    rest = part.unattributed_memory if part is not None else None
    return f"{gibibytes(rest)} GiB are {UNATTRIBUTED}." if rest else ""
