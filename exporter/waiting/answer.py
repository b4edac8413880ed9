"""The answer to why a pod waits: what it asks for, why nodes are out, and what is nearest to help."""

from collections import Counter
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from exporter.waiting.filters import Reason, is_device
from exporter.waiting.gpu_facts import GpuFacts
from exporter.waiting.lack import RESOURCES, Search, devices_of
from exporter.waiting.objects import Objects, WaitingPod
from exporter.waiting.trial import Trials
from exporter.waiting.verdict import DEFAULT_SCHEDULER, Judge, PodVerdicts, Verdict
from exporter.waiting.way import NotHelping, Way
from exporter.waiting.ways import find_ways
from exporter.waiting.ways_by_requests import advised


class Offer(NamedTuple):
    """One resource that the pod asks for, on the nodes that nothing but resources keeps it from."""

    resource: str
    requested: int
    nodes: int  # that offer it
    slices: int  # offered there
    free: int
    most_free: int  # on one node


class DraDevices(NamedTuple):
    """What there is for claims of a pod on the nodes that nothing but resources keeps it from."""

    offered: bool  # whether one has the devices, be they free or not
    free: bool  # whether one has them free


class Out(NamedTuple):
    """Nodes that are out for one reason."""

    nodes: int
    words: str
    example: str  # one of the nodes
    held: bool  # whether these offer what the pod asks for, and lack nothing else


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Why one pod waits."""

    pod: WaitingPod
    seconds: float | None  # for which it has waited, None if it is not known since when
    nodes: int | None  # of the cluster; None: nodes or pods are not known, so that it is not judged
    near: int = 0  # nodes that nothing but resources or devices keeps it from
    offers: tuple[Offer, ...] = ()
    devices: DraDevices | None = None  # None: it asks for none, or some node may have room
    out: tuple[Out, ...] = ()  # the most nodes first
    fits: int = 0  # nodes that pass all filters
    passes: int = 0  # nodes that pass all that is judged, but not all is
    # What is not judged of the pod on any node, and what holds for it as a whole.
    unjudged: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    before: str = ""  # why the scheduler looks at no node, "" if it does
    ahead: int | None = None  # pods that wait for the same and come first; None: it is not known
    ways: tuple[Way, ...] = ()
    not_helping: tuple[NotHelping, ...] = ()


class Answering:
    """Answers for the pods of one cluster at one time."""

    def __init__(self, objects: Objects, facts: GpuFacts, now: float) -> None:
        self._objects, self._facts, self._now = objects, facts, now
        self._judge = Judge(objects)
        self._trials = Trials(self._judge.state)
        self._asking = [(pod, devices_of(pod)) for pod in objects.waiting if _in_queue(pod)]
        # Pods that ask for the same have the same answer, except for the advice on their workload.
        self._known: dict[Any, Answer] = {}

    def answer(self, pod: WaitingPod) -> Answer:
        """Return the answer for a pod."""
        # Ways may name one of several claims.
        claims = pod.claims if pod.claims[1:] else ()
        alike = (self._judge.asked(pod), bool(pod.gates), claims, *advised(self._facts, pod))
        if alike not in self._known:
            self._known[alike] = self._answer(pod)
        return replace(self._known[alike], pod=pod, seconds=_waits(pod, self._now), ahead=self._ahead(pod))

    def _ahead(self, pod: WaitingPod) -> int | None:
        """Return how many pods that wait for the same device come first: by priority, then by age.

        None if that is not known: it asks for no device, has no known priority or age, or its scheduler has
        an order of its own.
        """
        devices = devices_of(pod).keys()
        known = pod.priority is not None and pod.created is not None
        if not devices or not known or pod.scheduler != DEFAULT_SCHEDULER:
            return None
        return sum(
            _before(each, pod) and each.uid != pod.uid and not devices.isdisjoint(asked)
            for each, asked in self._asking
        )

    def _answer(self, pod: WaitingPod) -> Answer:
        verdicts = self._judge.judge(pod)
        search = Search(
            pod=pod,
            verdicts=verdicts,
            judge=self._judge,
            trials=self._trials,
            facts=self._facts,
            now=self._now,
        )
        ways, not_helping = find_ways(search)
        near = {node for verdict, nodes in verdicts.groups if _near(verdict) for node in nodes}
        by_classes = self._judge.state.classes_of_resources
        unjudged = {words for verdict, _ in verdicts.groups for words in verdict.unjudged}
        return Answer(
            pod=pod,
            seconds=None,
            nodes=verdicts.nodes,
            near=len(near),
            offers=tuple(
                offer
                for name, count in sorted(devices_of(pod).items())
                # Of devices (DRA) nodes have no number.
                if (offer := _offer(search, near, name, count)).slices or name not in by_classes
            ),
            devices=_dra_devices(search, near),
            out=() if verdicts.before else _out(verdicts),
            fits=verdicts.count("fits"),
            passes=verdicts.count("not judged"),
            unjudged=tuple(sorted(unjudged.difference(verdicts.remarks))),
            remarks=verdicts.remarks,
            before=verdicts.before.words if verdicts.before else "",
            ways=ways,
            not_helping=not_helping,
        )


def unjudged_answer(pod: WaitingPod, now: float) -> Answer:
    """Return the answer for a pod while nodes or pods are not known."""
    return Answer(pod=pod, seconds=_waits(pod, now), nodes=None)


def asks_for_devices(pod: WaitingPod) -> bool:
    """Return whether a pod waits for a device: an extended resource, or a claim."""
    return bool(devices_of(pod) or pod.claims)


def _offer(search: Search, near: AbstractSet[str], resource: str, count: int) -> Offer:
    """Return what there is of a resource on nodes that the pod may go to."""
    offered = [each for each in search.offers(resource) if each.node in near]
    free = [max(each.free, 0) for each in offered]
    slices = sum(each.capacity for each in offered)
    return Offer(resource, count, len(offered), slices, sum(free), max(free, default=0))


def _dra_devices(search: Search, near: AbstractSet[str]) -> DraDevices | None:
    pod, verdicts = search.pod, search.verdicts
    asks = pod.claims or not search.judge.state.classes_of_resources.keys().isdisjoint(devices_of(pod))
    if not asks or verdicts.before or any(verdict.answer != "no" for verdict, _ in verdicts.groups):
        return None
    if any(not search.lacks_devices(node) for node in near):
        return DraDevices(offered=True, free=True)
    return DraDevices(offered=search.judge.offers_devices(pod, near), free=False)


def _near(verdict: Verdict) -> bool:
    return verdict.answer != "no" or verdict.filter in {RESOURCES, "DynamicResources"}


def _out(verdicts: PodVerdicts) -> tuple[Out, ...]:
    """Return the reasons by which nodes are out, each node counted once."""
    counts: Counter[str] = Counter()
    examples: dict[str, tuple[Verdict, str]] = {}
    for verdict, nodes in verdicts.groups:
        if verdict.answer == "no":
            words = _words(verdict)
            counts[words] += len(nodes)
            examples.setdefault(words, (verdict, nodes[0]))
    return tuple(
        Out(count, words, examples[words][1], _held(examples[words][0]))
        for words, count in counts.most_common()
    )


def _held(verdict: Verdict) -> bool:
    """Return whether a node only lacks devices that it offers."""
    return verdict.filter == RESOURCES and all(
        is_device(reason.resource) and reason.offered for reason in verdict.reasons
    )


def _words(verdict: Verdict) -> str:
    """Return why a node is out, alike for all nodes on which the same resources are missing."""
    if verdict.filter != RESOURCES:
        return "; ".join(reason.words for reason in verdict.reasons)
    absent = sorted(each.resource for each in verdict.reasons if _not_offered(each))
    if absent:
        # More of another resource would not help on such a node.
        return f"without {' and '.join(absent)}"
    short = sorted(each.resource for each in verdict.reasons if each.resource)
    words = [f"short of {' and '.join(short)}"] if short else []
    return "; ".join([*words, *(each.words for each in verdict.reasons if not each.resource)])


def _not_offered(reason: Reason) -> bool:
    return is_device(reason.resource) and not reason.offered


def _waits(pod: WaitingPod, now: float) -> float | None:
    return None if pod.since is None else max(now - pod.since, 0.0)


def _in_queue(pod: WaitingPod) -> bool:
    """Return whether a pod waits in the queue of the default scheduler."""
    return not pod.gates and pod.scheduler == DEFAULT_SCHEDULER


def _before(other: WaitingPod, pod: WaitingPod) -> bool:
    """Return whether another pod comes first; one without an age does by its priority only."""
    higher = (other.priority or 0) - (pod.priority or 0)
    if higher or other.created is None or pod.created is None:
        return higher > 0
    return other.created < pod.created
