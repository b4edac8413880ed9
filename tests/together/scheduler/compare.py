"""Comparison of our verdicts with a real scheduler, pod by pod of random clusters.

No pod is made before the scheduler has seen all objects: a probe pod needs the last one of each kind. Pods
are made one after the other, so that the state that each finds is known. The message is that of the pod's
condition, which is never cut or merged with others, as that of an event can be.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import count

from exporter.kubernetes.device_claims import read_claim, read_class, read_slice
from exporter.kubernetes.scheduling import read_cluster_node, read_placed_pod, read_waiting_pod
from exporter.waiting.objects import Objects, PlacedPod, WaitingPod
from exporter.waiting.verdict import Judge, PodVerdicts
from tests.together.scheduler.clusters import NAMESPACES, make, probe_pod
from tests.together.scheduler.control_plane import Api, Json, Outcomes
from tests.together.scheduler.pods import ENDING
from tests.together.scheduler.ways import carry_out

_DAY = 86_400
KINDS = ("ResourceClaim", "ResourceSlice", "DeviceClass", "Node")


@dataclass(slots=True)
class Tally:
    """What was compared, and each disagreement as text."""

    clusters: int = 0
    nodes: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    by_filter: Counter[str] = field(default_factory=Counter)
    unjudged: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)  # that were carried out, by kind
    disagreements: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Return the tally in a few lines."""
        return "\n".join(
            (
                f"{self.clusters} clusters, {self.nodes} nodes, {len(self.disagreements)} disagreements",
                *(f"  {name}: {count}" for name, count in sorted(self.counts.items())),
                f"  nodes that are out, by filter: {dict(self.by_filter.most_common())}",
                f"  ways after which the pod was placed: {dict(self.ways.most_common())}",
                f"  pods by what is not judged: {dict(self.unjudged.most_common())}",
                *self.disagreements,
            )
        )


class Comparison:
    """Acts out clusters on a control plane, one at a time."""

    def __init__(self, api: Api) -> None:
        self._api, self._outcomes = api, Outcomes(api)
        self.tally = Tally()
        self._unplaced: list[tuple[Json, WaitingPod]] = []
        for name in NAMESPACES:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            api.create(namespace)

    def close(self) -> None:
        """End the watch of pods."""
        self._outcomes.close()

    def run(self, seed: int) -> None:
        """Act out the cluster of a seed, and compare the scheduler's answer about each pod."""
        name = f"c{seed}"
        cluster = make(seed, name)
        # Probes come last of each kind, as objects of one kind are seen in order.
        ordered = [each for each in cluster.objects if "-probe" not in each["metadata"]["name"]]
        probes = [each for each in cluster.objects if "-probe" in each["metadata"]["name"]]
        for kind in ("Node", "Pod", "DeviceClass", "ResourceSlice", "ResourceClaim"):
            self._api.create_all(each for each in ordered if each["kind"] == kind)
        for each in ordered:
            if ENDING in each["metadata"].get("annotations", {}):
                self._api.delete(each, _DAY)
        self._api.create_all(probes)
        self._wait_for_probe(name)
        self._fixed = self._read_fixed()
        for each in cluster.waiting:
            if each["kind"] == "Pod":
                self._compare(seed, each)
            else:
                self._api.create(each)
        self._carry_out(seed, name)
        self.tally.clusters += 1
        self.tally.nodes += len(self._fixed.nodes)
        self._api.delete_all("Pod", NAMESPACES)
        for kind in KINDS:
            self._api.delete_all(kind, NAMESPACES if kind == "ResourceClaim" else ("",))

    def _wait_for_probe(self, name: str) -> None:
        """Make probe pods until one is bound: the scheduler then has seen the objects of the cluster."""
        for number in count():
            probe = self._api.create(probe_pod(name, number))
            node, _ = self._outcomes.of(probe["metadata"]["uid"])
            if node:
                return
            self._api.delete(probe)

    def _read_fixed(self) -> Objects:
        """Return the objects that do not change while pods are made."""
        nodes = [read_cluster_node(each) for each in self._api.items("Node")]
        slices = [read_slice(each) for each in self._api.items("ResourceSlice")]
        classes = [read_class(each) for each in self._api.items("DeviceClass")]
        return Objects(
            nodes={each.name: each for each in nodes if each is not None},
            placed=(),
            waiting=(),
            slices=tuple(each for each in slices if each is not None),
            classes={each.name: each for each in classes if each is not None},
        )

    def _carry_out(self, seed: int, name: str) -> None:
        """Carry out what would help one of the pods that were not placed."""
        claims = [read_claim(each) for each in self._api.items("ResourceClaim")]
        objects = replace(
            self._fixed,
            placed=tuple(filter(None, map(read_placed_pod, self._api.items("Pod")))),
            claims={(each.namespace, each.name): each for each in claims if each is not None},
        )
        problem = carry_out(self._api, self._outcomes, objects, self._unplaced, self.tally.ways, name)
        if problem:
            self.tally.disagreements.append(f"seed {seed}, {problem}")
        self._unplaced.clear()

    def _compare(self, seed: int, pod: Json) -> None:
        placed = [read_placed_pod(each) for each in self._api.items("Pod")]
        claims = [read_claim(each) for each in self._api.items("ResourceClaim")]
        objects = Objects(
            nodes=self._fixed.nodes,
            placed=tuple(each for each in placed if isinstance(each, PlacedPod)),
            waiting=(),
            claims={(each.namespace, each.name): each for each in claims if each is not None},
            slices=self._fixed.slices,
            classes=self._fixed.classes,
        )
        made = self._api.create(pod)
        node, message = self._outcomes.of(made["metadata"]["uid"])
        if not node:
            # A pod that stays could be bound later, to devices that the next comparison takes for free.
            self._api.delete(made)
        # What a pod that waits has, whatever comes of it.
        made["status"]["conditions"] = [{"type": "PodScheduled", "status": "False"}]
        waiting = read_waiting_pod(made)
        assert waiting is not None
        if not node:
            self._unplaced.append((pod, waiting))
        verdicts = Judge(objects).judge(waiting)
        for problem in problems(verdicts, node, message):
            self.tally.disagreements.append(f"seed {seed}, {waiting.key}: {problem}")
        self._count(verdicts, node)

    def _count(self, verdicts: PodVerdicts, node: str) -> None:
        counts = self.tally.counts
        counts["pods"] += 1
        counts["pods bound"] += bool(node)
        counts["pods with the scheduler's message, equal to ours"] += verdicts.message() is not None
        for verdict, nodes in verdicts.groups:
            counts[f"verdicts: {verdict.answer}"] += len(nodes)
        for verdict, nodes in verdicts.groups:
            if verdict.answer == "no":
                self.tally.by_filter[verdict.filter] += len(nodes)
        words = {words for verdict, _ in verdicts.groups for words in verdict.unjudged}
        self.tally.unjudged.update(words or {"nothing"})


def problems(verdicts: PodVerdicts, node: str, message: str) -> list[str]:
    """Return how verdicts and the answer of the scheduler disagree."""
    ours, answers = verdicts.message(), verdicts.by_node
    judged = not any(verdict.unjudged for verdict, _ in verdicts.groups)
    if node:
        there = answers[node]
        wrong = there.answer == "no" or (judged and there.answer != "fits")
        return [f"is bound to {node}, where we say {there}"] if wrong else []
    found = []
    if fits := [each for each, verdict in answers.items() if verdict.answer == "fits"]:
        found.append(f"we say that it fits {fits}, the scheduler says: {message}")
    if ours is None:
        if judged:
            found.append(f"we have no message, the scheduler says: {message}")
    elif message != ours and not message.startswith(f"{ours} "):
        found.append(f"we say: {ours}\n    the scheduler says: {message}")
    return found
