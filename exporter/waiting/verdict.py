"""Whether a waiting pod fits each node of the cluster, as the default scheduler decides, and if not, why.

Of each node: "no", with the filter that fails and its reasons; "not judged", with what is not judged here; or
"fits". A "no" of a filter holds whatever is not judged, but then another filter may come first.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from exporter.waiting import filters
from exporter.waiting.affinity import named_nodes
from exporter.waiting.devices import Devices
from exporter.waiting.filters import ClusterState, Filter, Reason
from exporter.waiting.objects import UNJUDGED, ClusterNode, Objects, PodKey, WaitingPod

DEFAULT_SCHEDULER: Final = "default-scheduler"
# The kubelet refuses a pod for these, whichever scheduler has chosen the node.
_OF_ALL_SCHEDULERS: Final = frozenset({"NodeAffinity", "NodeResourcesFit"})
# What these filters decide may end the attempt of the scheduler before it looks at single nodes.
_EARLY: Final = ("", "GangScheduling", "VolumeBinding")
ORDER: Final = (
    *_EARLY,
    *("NodeName", "NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit"),
    *("PodTopologySpread", "InterPodAffinity", "DynamicResources", "NodeDeclaredFeatures"),
)
"""The filters of the default scheduler, in the order in which they may reject a node."""
ABORTS: Final = "whether an error ends the attempt of the scheduler"
Answer = Literal["no", "not judged", "fits"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a pod fits a node."""

    node: str
    answer: Answer
    filter: str = ""  # of "no": the filter of the scheduler, such as NodeResourcesFit
    reasons: tuple[Reason, ...] = ()
    first: bool = True  # of "no": whether this is surely the first filter that fails, with these reasons only
    unjudged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PodVerdicts:
    """The verdicts of a pod on all nodes, in the order of the nodes' names."""

    pod: PodKey
    verdicts: tuple[Verdict, ...]
    # What holds for the pod as a whole: its scheduler is another one, gates hold it back.
    remarks: tuple[str, ...] = ()
    # Why the scheduler looks at no single node, such as a device class that does not exist.
    before: Reason | None = None

    def count(self, answer: Answer) -> int:
        """Return the number of nodes with an answer."""
        return sum(each.answer == answer for each in self.verdicts)

    def by_filter(self) -> Mapping[str, int]:
        """Return the number of nodes that are out, by the filter that fails."""
        return Counter(each.filter for each in self.verdicts if each.answer == "no")

    def message(self) -> str | None:
        """Return the scheduler's message about this pod, without its sentences about preemption.

        None if the scheduler has no such message, or if it depends on what is not judged.
        """
        if self.remarks or not all(each.answer == "no" and each.first for each in self.verdicts):
            return None
        if not self.verdicts:
            return "no nodes available to schedule pods"
        counts = Counter(reason.message for each in self.verdicts for reason in each.reasons)
        if not all(counts):
            return None
        texts = sorted(f"{count} {message}" for message, count in counts.items())
        why = ", ".join(texts) if self.before is None else self.before.message
        return f"0/{len(self.verdicts)} nodes are available: {why}."


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
        names = objects.nodes if only is None else only
        self._nodes = tuple(objects.nodes[name] for name in sorted(names))
        self._known: dict[Hashable, PodVerdicts] = {}
        self._judged: Mapping[str, Filter] = {
            "NodeName": filters.node_name,
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

    def judge(self, pod: WaitingPod) -> PodVerdicts:
        """Return the verdicts of a pod on all nodes; pods that ask for the same share them."""
        asked = self.asked(pod)
        if asked not in self._known:
            self._known[asked] = self._judge(pod)
        return replace(self._known[asked], pod=pod.key)

    def asked(self, pod: WaitingPod) -> Hashable:
        """Return all of a pod that its verdicts depend on."""
        items = (pod.requests, pod.selector, pod.labels if self._state.guards else {})
        single = (pod.uid, pod.priority) if self._state.nominated else ()
        own = (pod.affinity, pod.tolerations, pod.scheduler, pod.node_name, pod.gates, pod.unjudged)
        namespace = pod.key.namespace if pod.claims or self._state.guards else ""
        return (*(frozenset(each.items()) for each in items), *single, *own, namespace, pod.claims)

    def _judge(self, pod: WaitingPod) -> PodVerdicts:
        if pod.scheduler != DEFAULT_SCHEDULER:
            return self._foreign(pod)
        stages, names = self._stages(pod), named_nodes(pod.affinity)
        source, before = self._before(pod, names)
        if before is not None:
            first = all(UNJUDGED.get(words, "") not in _EARLY for words in pod.unjudged)
            verdicts = [
                Verdict(node.name, "no", source, (before,), first, pod.unjudged) for node in self._nodes
            ]
            return PodVerdicts(pod.key, tuple(verdicts), _gates(pod), before)
        answers = [_verdict(pod, node, self._state, stages, names) for node in self._nodes]
        verdicts = [verdict for verdict, _ in answers]
        if any(may_abort for _, may_abort in answers):
            verdicts = [_doubted(each, ABORTS) for each in verdicts]
        for remark in _gates(pod):
            verdicts = [_doubted(each, remark) for each in verdicts]
        return PodVerdicts(pod.key, tuple(verdicts), _gates(pod))

    def _stages(self, pod: WaitingPod) -> tuple[_Stage, ...]:
        """Return the filters that can have anything against a pod, in order."""
        idle = {
            "NodeName": not pod.node_name,
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
        verdicts = []
        for node in self._nodes:
            found = [
                (name, self._judged[name](pod, node, self._state)) for name in sorted(_OF_ALL_SCHEDULERS)
            ]
            no = [
                (name, finding.reasons) for name, finding in found if finding is not None and finding.reasons
            ]
            answer: Answer = "no" if no else "not judged"
            name, reasons = no[0] if no else ("", ())
            verdicts.append(Verdict(node.name, answer, name, reasons, first=False, unjudged=(remark,)))
        return PodVerdicts(pod.key, tuple(verdicts), (remark, *_gates(pod)))


def _gates(pod: WaitingPod) -> tuple[str, ...]:
    return (f"scheduling gates: {', '.join(pod.gates)}",) if pod.gates else ()


def _verdict(
    pod: WaitingPod,
    node: ClusterNode,
    state: ClusterState,
    stages: tuple[_Stage, ...],
    names: frozenset[str] | None,
) -> tuple[Verdict, bool]:
    """Return the verdict on a node, and whether the scheduler may meet an error there."""
    early = any(stage.unjudged and stage.name in _EARLY for stage in stages)
    if names is not None and node.name not in names:
        reason = Reason("node(s) didn't satisfy plugin(s) [NodeAffinity]", "node affinity names other nodes")
        return Verdict(node.name, "no", "NodeAffinity", (reason,), not early, pod.unjudged), False
    unjudged: tuple[str, ...] = ()
    may_abort = False
    for stage in stages:
        unjudged += stage.unjudged
        finding = None if stage.judged is None else stage.judged(pod, node, state)
        if finding is None:
            continue
        unjudged += finding.unjudged
        may_abort = may_abort or finding.may_abort
        if finding.reasons:
            first = not unjudged
            return Verdict(node.name, "no", stage.name, finding.reasons, first, unjudged), may_abort
    return Verdict(node.name, "not judged" if unjudged else "fits", unjudged=unjudged), may_abort


def _doubted(verdict: Verdict, words: str) -> Verdict:
    """Return a verdict with one more thing that is not judged; a "no" stays."""
    answer: Answer = "no" if verdict.answer == "no" else "not judged"
    return replace(verdict, answer=answer, first=False, unjudged=(*verdict.unjudged, words))
