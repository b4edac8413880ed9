"""The pods of the cluster that wait for a device, each with its answer, and what could not be seen."""

import math
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from exporter.concurrency import in_thread
from exporter.fleet.cluster_advice import ClusterAdvice
from exporter.fleet.cluster_view import ClusterView
from exporter.fleet.gpu_facts import read_gpu_facts, with_advice
from exporter.fleet.prometheus import Prometheus
from exporter.fleet.targets import some_names
from exporter.waiting.answer import Answer, Answering, asks_for_devices, unjudged_answer
from exporter.waiting.gpu_facts import GpuFacts
from exporter.waiting.lack import devices_of
from exporter.waiting.objects import PodKey, WaitingPod
from exporter.waiting.verdict import DEFAULT_SCHEDULER

Reason = Literal[
    "gated",
    "scheduler",
    "claim",
    "unknown",
    "fits",
    "not_judged",
    "not_allowed",
    "not_offered",
    "held",
    "scattered",
    "rest",
]
REASONS: Final[Mapping[Reason, str]] = {
    "gated": "a scheduling gate holds it back",
    "scheduler": "another scheduler places it",
    "claim": "a claim or its device class is missing",
    "unknown": "nodes or pods are not known",
    "fits": "it fits a node, and is not placed yet",
    "not_judged": "it may fit a node; not all is judged",
    "not_allowed": "no node is allowed by selectors, taints and cordons",
    "not_offered": "no allowed node offers it",
    "held": "all of it is held on allowed nodes",
    "scattered": "too little of it is free on each allowed node",
    "rest": "no allowed node has all that it requests free",
}
"""Why a pod waits, in one word for a label, and in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The pods that wait for a device, the longest first; texts have no full stop."""

    at: float  # Unix time
    view: ClusterView
    facts: GpuFacts
    answers: tuple[Answer, ...] | None  # None: the pods are not known
    others: int = 0  # pods that wait and ask for no device
    only: tuple[str, ...] = ()  # the namespaces of the pods, () for all

    @property
    def unseen(self) -> tuple[str, ...]:
        """What could not be seen, each with why."""
        silent = sorted(self.facts.silent)
        nodes = (f"GPUs of {some_names(silent)}, which do not answer",) if silent else ()
        return (*self.view.failures, *self.view.unseen, *self.facts.problems, *nodes)

    def ages(self, now: float | None = None) -> Mapping[str, float]:
        """Return the age in seconds of each kind of fact that is known, by its name; of now or then."""
        passed = 0.0 if now is None else max(now - self.at, 0.0)
        ages = {kind: age + passed for kind, age in self.view.ages.items()}
        if self.facts.at:
            ages["GPUs"] = max(self.at - self.facts.at, 0.0) + passed
        return ages


def answer_all(view: ClusterView, facts: GpuFacts, now: float) -> Waiting:
    """Return the answer for each pod that waits for a device."""
    if view.waiting is None:
        return Waiting(at=now, view=view, facts=facts, answers=None)
    asking = [pod for pod in view.waiting if asks_for_devices(pod)]
    answers = sorted(_answers(view, facts, now, asking), key=_longest_first)
    others = len(view.waiting) - len(asking)
    return Waiting(at=now, view=view, facts=facts, answers=tuple(answers), others=others)


def _longest_first(answer: Answer) -> tuple[float, PodKey]:
    # A pod that waits since an unknown time may wait for longest.
    return (-math.inf if answer.seconds is None else -answer.seconds, answer.pod.key)


def answer_one(view: ClusterView, facts: GpuFacts, now: float, key: PodKey) -> Waiting:
    """Return the answer for one pod; ``answers`` is empty if it does not wait."""
    if view.waiting is None:
        return Waiting(at=now, view=view, facts=facts, answers=None)
    pods = [pod for pod in view.waiting if pod.key == key]
    return Waiting(at=now, view=view, facts=facts, answers=tuple(_answers(view, facts, now, pods)))


def _answers(view: ClusterView, facts: GpuFacts, now: float, pods: Iterable[WaitingPod]) -> list[Answer]:
    if view.objects is None:
        return [unjudged_answer(pod, now) for pod in pods]
    answering = Answering(view.objects, facts, now)
    return [answering.answer(pod) for pod in pods]


def narrowed(waiting: Waiting, only: Sequence[str]) -> Waiting:
    """Return the pods in these namespaces; all without names."""
    if not only or waiting.answers is None:
        return waiting
    answers = tuple(each for each in waiting.answers if each.pod.key.namespace in only)
    others = sum(
        pod.key.namespace in only and not asks_for_devices(pod) for pod in waiting.view.waiting or ()
    )
    return replace(waiting, answers=answers, others=others, only=tuple(only))


def resources_of(view: ClusterView) -> frozenset[str]:
    """Return the extended resources that pods wait for."""
    return frozenset(name for pod in view.waiting or () for name in devices_of(pod))


async def read_waiting(
    prometheus: Prometheus | None,
    view: ClusterView,
    advice: ClusterAdvice | None,
    key: PodKey | None = None,
) -> Waiting:
    """Return the answers for a view of the cluster, or that for one pod; failed queries are unseen."""
    facts = GpuFacts(at=0.0)
    if any(map(asks_for_devices, view.waiting or ())):
        facts = with_advice(await read_gpu_facts(prometheus, resources_of(view)), advice)
    now = time.time()

    def make() -> Waiting:
        return answer_all(view, facts, now) if key is None else answer_one(view, facts, now, key)

    # For a large cluster this is too much work for the event loop.
    return await in_thread(make)


def reason_of(answer: Answer) -> Reason:
    """Return why a pod waits, as a key of REASONS: the first that holds."""
    offers, devices = answer.offers, answer.devices
    holds: tuple[tuple[Reason, bool], ...] = (
        ("gated", bool(answer.pod.gates)),
        ("scheduler", answer.pod.scheduler != DEFAULT_SCHEDULER),
        ("unknown", answer.nodes is None),
        ("claim", bool(answer.before)),
        ("fits", answer.fits > 0),
        ("not_judged", answer.passes > 0),
        ("not_allowed", answer.near == 0 and answer.nodes != 0),
        (
            "not_offered",
            not answer.nodes
            or any(not offer.slices for offer in offers)
            or (devices is not None and not devices.offered),
        ),
        ("held", any(not offer.free for offer in offers) or (devices is not None and not devices.free)),
        ("scattered", any(offer.most_free < offer.requested for offer in offers)),
    )
    return next((reason for reason, true in holds if true), "rest")


@dataclass(frozen=True, slots=True)
class Counts:
    """How many pods wait, by resource and reason, and how many of them an idle holder keeps waiting."""

    by_reason: Mapping[tuple[str, Reason], int] = field(default_factory=dict)
    by_idle: Mapping[str, int] = field(default_factory=dict)


# Users choose the names of resources that they ask for.
_MOST_RESOURCES: Final = 50
OTHER: Final = "other"
CLAIM: Final = "claim"


def count(waiting: Waiting) -> Counts:
    """Return the numbers for series. A resource that no node offers is counted as ``other``.

    A resource that pods could wait for, and none does, has a 0 for idle holders if those are known.
    """
    offered = _offered(waiting.view)
    by_reason: Counter[tuple[str, Reason]] = Counter()
    by_idle: dict[str, int] = {} if waiting.facts.idle is None else dict.fromkeys(offered, 0)
    for answer in waiting.answers or ():
        resource = _label(answer, offered)
        by_reason[resource, reason_of(answer)] += 1
        if waiting.facts.idle is not None and any(way.kind == "idle" for way in answer.ways):
            by_idle[resource] = by_idle.get(resource, 0) + 1
    return Counts(by_reason, by_idle)


def _offered(view: ClusterView) -> tuple[str, ...]:
    if view.objects is None:
        return ()
    asked = resources_of(view)
    found = {name for node in view.objects.nodes.values() for name in node.allocatable if name in asked}
    return tuple(sorted(found)[:_MOST_RESOURCES])


def _label(answer: Answer, offered: Collection[str]) -> str:
    devices = sorted(devices_of(answer.pod))
    if not devices:
        return CLAIM
    return next((name for name in devices if name in offered), OTHER)
