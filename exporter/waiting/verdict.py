"""Whether a waiting pod fits each node of the cluster, as the default scheduler decides, and if not, why.

Of each node: "no", with the filter that fails and its reasons; "not judged", with what is not judged here; or
"fits". A "no" of a filter holds whatever is not judged, but then another filter may come first.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal, NamedTuple

from exporter.waiting import filters
from exporter.waiting.affinity import named_nodes
from exporter.waiting.alike import Findings, Split
from exporter.waiting.devices import Devices
from exporter.waiting.filters import ClusterState, Filter, Reason
from exporter.waiting.objects import UNJUDGED, Objects, PodKey, WaitingPod

DEFAULT_SCHEDULER: Final = "default-scheduler"
# The kubelet refuses a pod for these, whichever scheduler has chosen the node.
_OF_ALL_SCHEDULERS: Final = ("NodeAffinity", "NodeResourcesFit")
# What these filters decide may end the attempt of the scheduler before it looks at single nodes.
_EARLY: Final = ("", "GangScheduling", "VolumeBinding")
ORDER: Final = (
    *_EARLY,
    *("NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit"),
    *("PodTopologySpread", "InterPodAffinity", "DynamicResources", "NodeDeclaredFeatures"),
)
"""The filters of the default scheduler, in the order in which they may reject a node."""
ABORTS: Final = "whether an error ends the attempt of the scheduler"
Answer = Literal["no", "not judged", "fits"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a pod fits some nodes."""

    answer: Answer
    filter: str = ""  # of "no": the filter of the scheduler, such as NodeResourcesFit
    reasons: tuple[Reason, ...] = ()
    first: bool = True  # of "no": whether this is surely the first filter that fails, with these reasons only
    unjudged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PodVerdicts:
    """The verdicts of a pod on all nodes."""

    pod: PodKey
    # Each with its nodes, which are in the order of their names, as is the first node of each.
    groups: tuple[tuple[Verdict, Sequence[str]], ...]
    # What holds for the pod as a whole: its scheduler is another one, gates hold it back.
    remarks: tuple[str, ...] = ()
    # Why the scheduler looks at no single node, such as a device class that does not exist.
    before: Reason | None = None

    @property
    def by_node(self) -> Mapping[str, Verdict]:
        """The verdict on each node, in the order of the nodes' names."""
        found = {node: verdict for verdict, nodes in self.groups for node in nodes}
        return dict(sorted(found.items()))

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return sum(len(nodes) for _, nodes in self.groups)

    def count(self, answer: Answer) -> int:
        """Return the number of nodes with an answer."""
        return sum(len(nodes) for verdict, nodes in self.groups if verdict.answer == answer)

    def message(self) -> str | None:
        """Return the scheduler's message about this pod, without its sentences about preemption.

        None if the scheduler has no such message, or if it depends on what is not judged.
        """
        if self.remarks or not all(each.answer == "no" and each.first for each, _ in self.groups):
            return None
        if not self.groups:
            return "no nodes available to schedule pods"
        counts: Counter[str] = Counter()
        for verdict, nodes in self.groups:
            for reason in verdict.reasons:
                counts[reason.message] += len(nodes)
        if not all(counts):
            return None
        texts = sorted(f"{count} {message}" for message, count in counts.items())
        why = ", ".join(texts) if self.before is None else self.before.message
        return f"0/{self.nodes} nodes are available: {why}."


class _Stage(NamedTuple):
    """One filter of the scheduler: what of it is not judged, and the function if there is one."""

    name: str
    unjudged: tuple[str, ...]
    judged: Filter | None


class Judge:
    """Judges pods by the objects of a cluster, on all nodes or only on some."""

    def __init__(self, objects: Objects, only: Iterable[str] | None = None) -> None:
        self._state = ClusterState(objects)
        self._devices = Devices(self._state)
        self._nodes = tuple(objects.nodes[name] for name in sorted(objects.nodes if only is None else only))
        self._findings = Findings(self._state, self._devices, self._nodes)
        self._known: dict[Hashable, PodVerdicts] = {}
        self._judged: Mapping[str, Filter] = {
            "NodeUnschedulable": filters.cordon,
            "TaintToleration": filters.taints,
            "NodeAffinity": filters.node_affinity,
            "NodeResourcesFit": filters.resources,
            "InterPodAffinity": filters.anti_affinity,
            "DynamicResources": self._devices.claims,
        }

    @property
    def state(self) -> ClusterState:
        """The objects, arranged for the filters."""
        return self._state

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes, in order."""
        return tuple(node.name for node in self._nodes)

    def with_resources(self, pod: WaitingPod, nodes: Iterable[str]) -> Iterator[str]:
        """Yield those of some nodes that have what a pod requests, as far as is judged."""
        for name in nodes:
            finding = filters.resources(pod, self._state.objects.nodes[name], self._state)
            if finding is None or not finding.reasons:
                yield name

    def lacks_devices(self, pod: WaitingPod, node: str) -> bool:
        """Return whether the claims of a pod cannot be served by devices (DRA) of a node."""
        return self._devices.lack(pod, self._state.objects.nodes[node])

    def offers_devices(self, pod: WaitingPod, nodes: Iterable[str]) -> bool:
        """Return whether one of some nodes could serve the claims of a pod if no other claim had devices."""
        alone = self._devices.for_alone(pod)
        return any(not alone.lack(pod, self._state.objects.nodes[node]) for node in nodes)

    def judge(self, pod: WaitingPod) -> PodVerdicts:
        """Return the verdicts of a pod on all nodes; pods that ask for the same share them."""
        asked = self.asked(pod)
        if asked not in self._known:
            self._known[asked] = self._judge(pod)
        return replace(self._known[asked], pod=pod.key)

    def asked(self, pod: WaitingPod) -> Hashable:
        """Return all of a pod that its verdicts depend on."""
        items = (pod.requests, pod.selector)
        single = (pod.uid, pod.priority) if self._state.nominated else ()
        own = (pod.affinity, pod.tolerations, pod.scheduler, pod.gates, pod.unjudged)
        claims = self._devices.asked(pod)
        return (
            *(frozenset(each.items()) for each in items),
            *single,
            *own,
            self._state.guards.seen_of(pod),
            claims,
        )

    def _judge(self, pod: WaitingPod) -> PodVerdicts:
        if pod.scheduler != DEFAULT_SCHEDULER:
            return self._foreign(pod)
        names = named_nodes(pod.affinity)
        source, before = self._before(pod, names)
        if before is not None:
            first = not _early(pod.unjudged)
            verdict = Verdict("no", source, (before,), first, pod.unjudged)
            return self._grouped(pod, {verdict: list(self._places)}, _gates(pod), before)
        found, may_abort = self._found(pod, self._stages(pod), names)
        doubts = (*((ABORTS,) if may_abort else ()), *_gates(pod))
        return self._grouped(
            pod, {_doubted(each, doubts): nodes for each, nodes in found.items()}, _gates(pod)
        )

    @property
    def _places(self) -> range:
        return range(len(self._nodes))

    def _grouped(
        self,
        pod: WaitingPod,
        found: Mapping[Verdict, list[int]],
        remarks: tuple[str, ...],
        before: Reason | None = None,
    ) -> PodVerdicts:
        """Return verdicts with their nodes by name."""
        groups = sorted((sorted(nodes), verdict) for verdict, nodes in found.items() if nodes)
        named = ((verdict, [self.nodes[node] for node in nodes]) for nodes, verdict in groups)
        return PodVerdicts(pod.key, tuple(named), remarks, before)

    def _found(
        self, pod: WaitingPod, stages: Iterable[_Stage], names: frozenset[str] | None
    ) -> tuple[Mapping[Verdict, list[int]], bool]:
        """Return the nodes of each verdict, and whether the scheduler may meet an error on any of them."""
        found: defaultdict[Verdict, list[int]] = defaultdict(list)
        nodes, may_abort = list(self._places), False
        if names is not None:
            reason = Reason(
                "node(s) didn't satisfy plugin(s) [NodeAffinity]", "node affinity for other nodes"
            )
            other = Verdict("no", "NodeAffinity", (reason,), not _early(pod.unjudged), pod.unjudged)
            found[other] = [place for place in nodes if self.nodes[place] not in names]
            nodes = [place for place in nodes if self.nodes[place] in names]
        # The nodes that are left, by what is not judged of them so far.
        left: dict[tuple[str, ...], list[int]] = {(): nodes}
        for stage in stages:
            passed: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
            for before, places in left.items():
                unjudged = before + stage.unjudged
                findings, rest = self._split(stage, pod, places)
                passed[unjudged] += rest
                for finding, hit in findings:
                    may_abort = may_abort or finding.may_abort
                    words = unjudged + finding.unjudged
                    if finding.reasons:
                        found[Verdict("no", stage.name, finding.reasons, not words, words)] += hit
                    else:
                        passed[words] += hit
            left = passed
        for unjudged, places in left.items():
            found[Verdict("not judged" if unjudged else "fits", unjudged=unjudged)] += places
        return found, may_abort

    def _split(self, stage: _Stage, pod: WaitingPod, nodes: list[int]) -> Split:
        if stage.judged is None or not nodes:
            return [], nodes
        return self._findings.split(stage.name, stage.judged, pod, nodes)

    def _stages(self, pod: WaitingPod) -> tuple[_Stage, ...]:
        """Return the filters that can have anything against a pod, in order."""
        idle = {
            "NodeAffinity": not pod.selector and pod.affinity is None,
            "InterPodAffinity": not self._state.guards,
            "DynamicResources": not pod.claims
            and self._state.classes_of_resources.keys().isdisjoint(pod.requests),
        }
        stages = []
        for name in ORDER:
            unjudged = tuple(words for words in pod.unjudged if UNJUDGED.get(words, "") == name)
            judged = None if idle.get(name) else self._judged.get(name)
            if unjudged or judged is not None:
                stages.append(_Stage(name, unjudged, judged))
        return tuple(stages)

    def _before(self, pod: WaitingPod, names: frozenset[str] | None) -> tuple[str, Reason | None]:
        if names is not None and not names:
            return "NodeAffinity", Reason("pod affinity terms conflict", "node affinity contradicts itself")
        return "DynamicResources", self._devices.before(pod)

    def _foreign(self, pod: WaitingPod) -> PodVerdicts:
        """Return what holds for any scheduler: the kubelet would refuse the pod for it."""
        remark = f"scheduler {pod.scheduler}: its queues are not read here"
        found: defaultdict[Verdict, list[int]] = defaultdict(list)
        left = list(self._places)
        for name in _OF_ALL_SCHEDULERS:
            findings, passed = self._findings.split(name, self._judged[name], pod, left)
            for finding, hit in findings:
                if finding.reasons:
                    verdict = Verdict("no", name, finding.reasons, first=False, unjudged=(remark,))
                    found[verdict] += hit
                else:
                    passed += hit
            left = passed
        found[Verdict("not judged", first=False, unjudged=(remark,))] = left
        return self._grouped(pod, found, (remark, *_gates(pod)))


def _gates(pod: WaitingPod) -> tuple[str, ...]:
    return (f"scheduling gates: {', '.join(pod.gates)}",) if pod.gates else ()


def _early(unjudged: Iterable[str]) -> bool:
    """Return whether something is not judged that may end the attempt before single nodes are looked at."""
    return any(UNJUDGED.get(words, "") in _EARLY for words in unjudged)


def _doubted(verdict: Verdict, doubts: tuple[str, ...]) -> Verdict:
    """Return a verdict with more that is not judged; a "no" stays."""
    if not doubts:
        return verdict
    answer: Answer = "no" if verdict.answer == "no" else "not judged"
    return replace(verdict, answer=answer, first=False, unjudged=(*verdict.unjudged, *doubts))
