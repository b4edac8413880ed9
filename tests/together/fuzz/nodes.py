"""Small nodes of every sharing system, for fuzzing their texts.

A node is the result of one poll of a fake node, reduced to a few pods. Its texts of other programs
(annotations, labels, limits, ids, claims) are its slots: an input is all of them in their order, with marks
between, so that a change of the input changes one of these texts.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import exporter.demo
from exporter.demo.scenario.catalog import load_file
from exporter.model import (
    Allocations,
    ClaimedDevice,
    ContainerRef,
    ContainerSpec,
    GpuReading,
    Holdings,
    PodIdentity,
    Problem,
)
from exporter.model.kubelet import extended_resources
from exporter.poll import snapshot_builder
from exporter.sharing import made
from exporter.sharing.base import System
from exporter.sharing.base.holdings import holdings_of
from exporter.sharing.base.view import NodeFacts, View
from exporter.sharing.nvidia_plugin import Nvidia
from tests.core.poller.bench import polled

MARK = "\x1e"
SCENARIOS = Path(exporter.demo.__file__).parent / "scenarios"
# Scenarios with another name than the system.
SCENARIO_OF = {
    "Amd": "mi300x-cpx",
    "HamiAscend": "hami-vendors",
    "HamiCambricon": "hami-vendors",
    "Intel": "intel-shared",
    "Nvidia": "t4-timeslicing",
    "Vgpu": "vgpu-host",
}
MOST_IDS = 3
PATIENCE, TRIES = 120.0, 5

Told = tuple[Holdings, Sequence[Problem]]


@dataclass(frozen=True, slots=True)
class Node:
    """One poll of a node of a system."""

    gpus: tuple[GpuReading, ...]
    allocations: Allocations
    facts: NodeFacts

    def holdings(self, system: type[System]) -> Told:
        """Return the holdings by a system and the NVIDIA plugin, and the problems."""
        view = View(self.gpus, self.allocations, self.facts)
        systems = (system,) if system is Nvidia else (system, Nvidia)
        return holdings_of(view, list(made(view, systems))), view.problems

    def texts(self, system: type[System]) -> list[str]:
        """Return the texts of its slots."""
        texts: list[str] = []
        self._through(system, lambda text: texts.append(text) or text)
        return texts

    def filled(self, system: type[System], texts: Sequence[str]) -> "Node":
        """Return the node with texts in its slots, in their order; a slot without one keeps its text."""
        left = iter(texts)
        return self._through(system, lambda text: next(left, text))

    def _through(self, system: type[System], change: Callable[[str], str]) -> "Node":
        """Return the node with ``change`` of every slot; records without a change are not copied."""
        pods = {uid: _pod(pod, system, change) for uid, pod in (self.facts.pods or {}).items()}
        node = self.facts.node
        if node is not None:
            labels, annotations = (_notes(told, system, change) for told in (node.labels, node.annotations))
            if (labels, annotations) != (node.labels, node.annotations):
                node = replace(node, labels=labels, annotations=annotations)
        allocations = replace(
            self.allocations,
            allocated=tuple(
                each._replace(device_id=change(each.device_id)) for each in self.allocations.allocated
            ),
            claims=tuple(_claim(each, change) for each in self.allocations.claims),
        )
        facts = replace(self.facts, pods=None if self.facts.pods is None else pods, node=node)
        return Node(self.gpus, allocations, facts)


def _notes(told: Mapping[str, str], system: type[System], change: Callable[[str], str]) -> dict[str, str]:
    return {key: change(text) if _reads(system, key) else text for key, text in told.items()}


def _claim(claim: ClaimedDevice, change: Callable[[str], str]) -> ClaimedDevice:
    return replace(claim, **{name: change(getattr(claim, name)) for name in ("pool", "device", "share_id")})


def _pod(pod: PodIdentity, system: type[System], change: Callable[[str], str]) -> PodIdentity:
    before = pod.details
    if before is None:
        return pod
    annotations, labels = (_notes(told, system, change) for told in (before.annotations, before.labels))
    containers = tuple(_spec(each, system, change) for each in before.containers)
    if (annotations, labels, containers) == (before.annotations, before.labels, before.containers):
        return pod
    details = replace(before, annotations=annotations, labels=labels, containers=containers)
    return replace(pod, details=details)


def _spec(spec: ContainerSpec, system: type[System], change: Callable[[str], str]) -> ContainerSpec:
    texts = {name: str(amount) for name, amount in spec.limits.items()}
    told = _notes(texts, system, change)
    return spec if told == texts else replace(spec, limits=extended_resources(told))


@cache
def _reads(system: type[System], key: str) -> bool:
    return system.reads(key)


def _found(holdings: Holdings) -> bool:
    return bool(holdings.holdings or holdings.unknown_drivers)


@cache
def node_of(system: type[System]) -> Node:
    """Poll the fake node of a system, and keep the fewest pods of which the system finds holdings."""
    name = SCENARIO_OF.get(system.__name__, system.name)
    whole = _polled(name)
    held = {each.holder for each in (*whole.allocations.allocated, *whole.allocations.claims)}
    pods = list(_about(whole, system, held))
    nodes = (_with_pods(whole, dict(pods[:count])) for count in range(1, len(pods) + 1))
    return next(node for node in nodes if _found(node.holdings(system)[0]))


def _with_pods(whole: Node, pods: dict[str, PodIdentity]) -> Node:
    holders = {(pod.namespace, pod.name) for pod in pods.values()}
    kept = [
        each for each in whole.allocations.allocated if (each.holder.namespace, each.holder.pod) in holders
    ]
    allocated = tuple(each for resource in _resources(kept) for each in _few(kept, resource))
    resources = {each.resource for each in kept}
    offered = [each for each in whole.allocations.offered or () if each.resource in resources]
    own = {(each.resource, each.device_id) for each in allocated}
    few = {each for resource in resources for each in _few(offered, resource)}
    claims = whole.allocations.claims
    allocations = replace(
        whole.allocations,
        allocated=allocated,
        offered=tuple(each for each in offered if each in few or (each.resource, each.device_id) in own),
        claims=tuple(each for each in claims if (each.holder.namespace, each.holder.pod) in holders),
    )
    return Node(whole.gpus, allocations, replace(whole.facts, pods=pods))


def _resources(allocated: Sequence[Any]) -> list[str]:
    return list(dict.fromkeys(each.resource for each in allocated))


def _few(entries: Sequence[Any], resource: str) -> Iterator[Any]:
    return islice((each for each in entries if each.resource == resource), MOST_IDS)


def _about(node: Node, system: type[System], held: set[ContainerRef]) -> Iterator[tuple[str, PodIdentity]]:
    """Yield first the pods with texts that the system reads, then other holders."""
    pods = sorted((node.facts.pods or {}).items())
    notes = {
        uid: [key for key in (*pod.details.annotations, *pod.details.labels) if system.reads(key)]
        for uid, pod in pods
        if pod.details is not None
    }
    yield from sorted((each for each in pods if notes.get(each[0])), key=lambda each: -len(notes[each[0]]))
    names = {(holder.namespace, holder.pod) for holder in held}
    yield from ((uid, pod) for uid, pod in pods if not notes.get(uid) and (pod.namespace, pod.name) in names)


@cache
def _polled(scenario: str) -> Node:
    seen: list[Node] = []

    def look(gpus: Any, allocations: Any, facts: Any, objections: Any) -> Any:
        seen.append(Node(tuple(gpus), allocations, facts))
        return resolve(gpus, allocations, facts, objections)

    async def poll() -> None:
        async with polled(load_file(SCENARIOS / f"{scenario}.json"), deadline=PATIENCE) as (_, poller):
            for _ in range(TRIES):
                await poller.poll()
                if seen[-1].allocations is not None:
                    break

    resolve = snapshot_builder.resolve_holdings
    # Only the arguments of the join are recorded.
    with mock.patch.object(snapshot_builder, "resolve_holdings", look):
        asyncio.run(poll())
    return seen[-1]
