"""One fleet in three forms, side by side: labels joined, labels copied, and pages as they are by default."""

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.fleet_growth import all_scraped, samples
from benchmarks.simulated.copied import copied, without_dcgm
from benchmarks.simulated.frames import Frame, frame
from benchmarks.simulated.nodes import Fleet, packed, served
from benchmarks.simulated.prometheus import Prometheus, prometheus

JOINED, COPIED, BOTH = "joined", "copied", "both"
"""Our own series; the same with copied labels; ours and those with DCGM's names, which is the default."""

_FORMS: Mapping[str, Callable[[Sequence[str]], list[str]]] = {
    JOINED: without_dcgm,
    COPIED: lambda page: copied(without_dcgm(page)),
    BOTH: list,
}
_GPU = "on (instance, uuid) group_left (gpu, model) gpuslice_gpu_info"
_NODE = "on (instance) group_left (node) gpuslice_node_info"
_TEAM = "on (namespace, pod) group_left (label_team) gpuslice_pod_labels"
_HELD = "gpuslice_container_info * on (instance, uuid) group_left ()"
_IDLE = "topk(10, time() - gpuslice_container_last_active_timestamp_seconds)"
_MEMORY = "gpuslice_container_memory_used_bytes{POD}"
_COMPUTE = "sum by (label_team, model) (gpuslice_container_compute_used_ratio"
QUESTIONS: Mapping[str, tuple[str, str]] = {
    "utilization by namespace": (
        f"avg by (namespace) ({_HELD} gpuslice_gpu_utilization_ratio)",
        "avg by (namespace) (gpuslice_gpu_utilization_ratio)",
    ),
    "memory of one pod": (_MEMORY, _MEMORY),
    "ten longest idle, with GPU and node": (f"{_IDLE} * {_GPU} * {_NODE}", _IDLE),
    "compute by team and model": (f"{_COMPUTE} * {_GPU} * {_TEAM})", f"{_COMPUTE})"),
}
"""What is asked, with joins and of copied labels; both are answered with the same figures."""

CHANGES = "label", "driver", "pods"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """So many nodes, scraped every ``scrape`` seconds.

    ``windows`` are the scrapes that the processor's time is taken over, ``asked`` is how often each question
    is asked, and ``hours`` how often all pods are replaced.
    """

    nodes: int
    scrape: float
    windows: int
    asked: int
    hours: int


@dataclass(frozen=True, slots=True)
class _Form:
    """A fleet in one form; ``resident`` and ``live`` are what its Prometheus had before it scraped."""

    fleet: Fleet
    server: Prometheus
    joined: bool
    resident: int
    live: int


async def measured(pages: Sequence[Sequence[str]], turns: Turns) -> dict[str, Any]:
    """Scrape nodes in each form, and change them; bytes are of all nodes, ``created`` series of each."""
    frames = {name: [frame(form(page)) for page in pages] for name, form in _FORMS.items()}
    async with AsyncExitStack() as running:
        forms = {name: await _started(running, name, frames[name], turns) for name in _FORMS}
        for form in forms.values():
            await all_scraped(form.server, turns.nodes)
        found = await _scraped(forms, turns.scrape * turns.windows)
        for name, seconds in (await _asked(forms, turns.asked)).items():
            found[name] |= {"questions": seconds, "stored": await forms[name].server.block()}
        for change in (*CHANGES, *["pods"] * (turns.hours - 1)):
            for name, created in (await _changed(forms, change)).items():
                found[name].setdefault("created", {}).setdefault(change, []).append(created / turns.nodes)
        for name, form in forms.items():
            found[name]["live_after"] = await form.server.live() - form.live
            found[name]["series_after"] = await form.server.one("prometheus_tsdb_head_series")
        return {"turns": asdict(turns), "forms": found}


async def _started(running: AsyncExitStack, name: str, frames: Sequence[Frame], turns: Turns) -> _Form:
    fleet = Fleet(frames, turns.nodes, turns.scrape)
    port = await running.enter_async_context(served(fleet))
    server = await running.enter_async_context(prometheus(port, turns.nodes, turns.scrape))
    return _Form(fleet, server, name != COPIED, server.resident(), await server.live())


async def _scraped(forms: Mapping[str, _Form], seconds: float) -> dict[str, dict[str, Any]]:
    start = {name: (form.server.used(), await samples(form.server)) for name, form in forms.items()}
    await asyncio.sleep(seconds)
    found = {}
    for name, form in forms.items():
        used, count = form.server.used() - start[name][0], await samples(form.server) - start[name][1]
        page = form.fleet.page(0)
        found[name] = {
            "series": await form.server.one("prometheus_tsdb_head_series"),
            "page": len(page.encode()),
            "packed": len(packed(page)),
            "cpu_per_sample": used / count,
            "resident": form.server.resident() - form.resident,
            "live": await form.server.live() - form.live,
        }
    return found


async def _asked(forms: Mapping[str, _Form], times: int) -> dict[str, dict[str, float]]:
    """Ask all forms in turns: the least seconds of each answer. RuntimeError where answers are not alike."""
    taken: dict[str, dict[str, float]] = {name: {} for name in forms}
    pod = _a_pod(forms[JOINED].fleet)
    for question, (joining, plain) in QUESTIONS.items():
        sizes = dict.fromkeys(forms, 0)
        for _ in range(times):
            for name, form in forms.items():
                expression = (joining if form.joined else plain).replace("POD", pod)
                seconds, answer = await form.server.query(expression)
                taken[name][question] = min(seconds, taken[name].get(question, seconds))
                # A node whose scrape came too late is missing from an answer for a while.
                sizes[name] = max(sizes[name], len(answer))
        if len({*sizes.values()}) > 1 or 0 in sizes.values():
            raise RuntimeError(f"{question}: so many series in the answers: {sizes}")
    return taken


def _a_pod(fleet: Fleet) -> str:
    """Name a pod of the last node, as a selector."""
    found = re.search(
        r'^gpuslice_container_info\{(namespace="[^"]+",pod="[^"]+")',
        fleet.page(fleet.count - 1),
        re.MULTILINE,
    )
    assert found is not None  # noqa: S101 - each node has holders
    return found[1]


async def _changed(forms: Mapping[str, _Form], change: str) -> dict[str, float]:
    """Change one thing on all nodes, and let each be scraped again: how many series that made."""
    before = {name: await _created(form) for name, form in forms.items()}
    for form in forms.values():
        setattr(form.fleet, change, getattr(form.fleet, change) + 1)
    changed = time.time()
    for form in forms.values():
        await all_scraped(form.server, form.fleet.count, changed)
    return {name: await _created(form) - before[name] for name, form in forms.items()}


async def _created(form: _Form) -> float:
    return await form.server.one("prometheus_tsdb_head_series_created_total")
