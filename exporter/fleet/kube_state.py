"""The objects of the cluster as far as kube-state-metrics reports them through Prometheus.

It has no node selectors, affinities, volumes and claims of pods, so no pod is ever said to fit: a node may be
out for what is requested, for a taint or because it is cordoned. What a pod requests is a lower bound, as
sidecars and overhead are missing, and so is what is taken: a node that is out by these is out. Formats:
https://github.com/kubernetes/kube-state-metrics/tree/main/docs/metrics
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, Literal

from exporter.fleet.cluster_view import ClusterView
from exporter.fleet.prometheus import Prometheus, Sample
from exporter.fleet.queries import Answers, ask, selector_or_all
from exporter.waiting.objects import ClusterNode, Objects, PlacedPod, PodKey, Taint, Toleration, WaitingPod
from exporter.waiting.verdict import DEFAULT_SCHEDULER
from exporter.wording import printable

UNJUDGED: Final = "node selector, affinity, volumes, claims: kube-state-metrics does not report them"
NO_SERIES: Final = (
    "this Prometheus has no {} of kube-state-metrics: let it scrape kube-state-metrics, or turn"
    " --kubernetes-api on"
)
SEVERAL: Final = (
    "this Prometheus has kube-state-metrics of several clusters ({}): turn --kubernetes-api on, for one"
)
OVERWRITTEN: Final = (
    "the labels of kube-state-metrics are those of its own pod: scrape it with honor_labels: true"
)
NO_TAINTS: Final = "taints and cordons: kube_pod_tolerations and kube_pod_scheduler are missing of some pods"
_POD, _NODE = "cluster, namespace, pod", "cluster, node"
_REQUESTS: Final = "kube_pod_container_resource_requests"
_PLACED: Final = 'kube_pod_info{node!=""}'
_GATED: Final = 'kube_pod_status_reason{reason="SchedulingGated"}'
_ENDED: Final = f'max by ({_POD}) (kube_pod_status_phase{{phase=~"Succeeded|Failed"}}) > 0'


def _once(series: str, by: str) -> str:
    """Return a query that counts a series once that several instances of kube-state-metrics report."""
    return f"max by ({by}) ({series})"


def _requests(unit: str, by: str) -> str:
    """Return a query for what pods request that run, by some labels."""
    each = _once(
        f'{_REQUESTS}{{node!="",{unit}}}', f"{_NODE}, namespace, pod, uid, container, resource, unit"
    )
    return f"sum by ({by}) (({each}) unless on ({_POD}) ({_ENDED}))"


# Which pods wait, and whether there are series at all.
QUESTIONS: Final = {
    "allocatable": _once("kube_node_status_allocatable", f"{_NODE}, resource, unit"),
    "cordons": _once("kube_node_spec_unschedulable", _NODE),
    "age": "max by (cluster) (time() - timestamp(kube_node_spec_unschedulable))",
    "pods": f"count by ({_NODE}) ({_once(_PLACED, f'{_NODE}, namespace, pod, uid')}"
    f" unless on ({_POD}) ({_ENDED}))",
    "waiting": f"{_once('kube_pod_status_unschedulable', f'{_POD}, uid')} > 0",
    "gated": f"{_once(_GATED, f'{_POD}, uid')} > 0",
    "overwritten": 'count(kube_pod_info{exported_pod!=""} or kube_node_info{exported_node!=""})',
}
# What is taken. These read the requests of all pods of the cluster.
PLACED_QUESTIONS: Final = {
    "taints": _once("kube_node_spec_taint", f"{_NODE}, key, value, effect"),
    "amounts": _requests('unit!="integer"', f"{_NODE}, resource, unit"),
    "holders": _requests('unit="integer"', f"{_NODE}, namespace, pod, resource, unit"),
    "ending": f"max by ({_POD}) (kube_pod_deletion_timestamp)",
    "resources": "group by (resource) (node:gpuslice_offered_slices:sum)",
}
# Without an answer to one of these nothing can be said of any node, and of any pod.
_OF_OBJECTS: Final = ("allocatable", "amounts", "holders")
_OF_WAITING: Final = ("overwritten", "pods", "waiting", "gated", "requests", "init requests")


def pod_questions(answers: Answers) -> dict[str, str]:
    """Return queries about the pods that wait, none if no pod does."""
    pods = {each.text("pod") for name in ("waiting", "gated") for each in answers.samples(name)}
    if not pods:
        return {}

    def of(metric: str, by: str) -> str:
        return _once(selector_or_all(metric, "pod", pods), f"{_POD}, {by}")

    return {
        "created": of("kube_pod_created", "uid"),
        "requests": f"sum by ({_POD}, resource, unit) ({of(_REQUESTS, 'uid, container, resource, unit')})",
        "init requests": of("kube_pod_init_container_resource_requests", "resource, unit"),
        "tolerations": of("kube_pod_tolerations", "key, operator, value, effect"),
        "schedulers": of("kube_pod_scheduler", "name"),
        "owners": of("kube_pod_owner", "owner_kind, owner_name, owner_is_controller"),
    }


async def read_kube_state(prometheus: Prometheus, at: float, *, whole: bool = True) -> ClusterView:
    """Return the cluster at a Unix time; what fails is among its failures.

    If not ``whole`` and no pod waits, there are no objects: to read them costs Prometheus the most.
    """
    answers = await ask(prometheus, QUESTIONS, at)
    questions = pod_questions(answers)
    placed = whole or bool(questions)
    more = await ask(prometheus, questions | (PLACED_QUESTIONS if placed else {}), at)
    return view_of(answers, more, at, placed=placed)


def view_of(answers: Answers, more: Answers, at: float, *, placed: bool) -> ClusterView:
    """Return the cluster by the answers to QUESTIONS, and by those about pods that wait and are placed."""
    problems = {**answers.problems, **more.problems}
    wrong = tuple(_wrong(answers))
    state = _State(answers, more)
    waiting = None if wrong or problems.keys() & set(_OF_WAITING) else state.waiting()
    objects = None
    if placed and waiting is not None and not problems.keys() & set(_OF_OBJECTS):
        objects = Objects(nodes=state.nodes(waiting), placed=tuple(state.placed()), waiting=waiting)
    age = next((max(each.value, 0.0) for each in answers.samples("age")), None)
    return ClusterView(
        source="kube-state-metrics",
        at=at,
        objects=objects,
        waiting=waiting,
        ages={} if age is None or wrong else {"pods": age, "nodes": age},
        failures=(*wrong, *(f"kube-state-metrics, {name}: {why}" for name, why in problems.items())),
        unseen=tuple(state.unseen(problems)),
    )


def _wrong(answers: Answers) -> Iterator[str]:
    """Yield why the series cannot be used at all."""
    for name, what in (("allocatable", "nodes"), ("pods", "pods")):
        if not answers.samples(name) and name not in answers.problems:
            yield NO_SERIES.format(what)
    clusters = {each.text("cluster") for name in ("allocatable", "pods") for each in answers.samples(name)}
    if len(clusters) > 1:
        yield SEVERAL.format(", ".join(printable(name or "without a name") for name in sorted(clusters)))
    if answers.samples("overwritten"):
        yield OVERWRITTEN


class _State:
    """What kube-state-metrics reports of one cluster."""

    def __init__(self, answers: Answers, more: Answers) -> None:
        self._answers, self._more = answers, more
        named: defaultdict[str, set[str]] = defaultdict(set)
        for each in more.samples("resources"):
            named[_sanitized(each.text("resource"))].add(each.text("resource"))
        self._names = {short: next(iter(names)) for short, names in named.items() if len(names) == 1}
        self._tolerations, self._schedulers = self._by_pod("tolerations"), self._by_pod("schedulers")
        waiting = {_key(each) for name in ("waiting", "gated") for each in answers.samples(name)}
        # Only the default scheduler is known to respect taints; it gives each pod a few tolerations.
        self._taints_count = waiting <= self._tolerations.keys() & self._schedulers.keys()

    def unseen(self, problems: Mapping[str, str]) -> Iterator[str]:
        """Yield what is not in the objects."""
        yield "node selectors, affinities, volumes, topology spread and claims of pods"
        yield "sidecars, overhead, priorities and nominations of pods"
        yield "resource claims, resource slices and device classes"
        yield "labels of nodes"
        if not self._taints_count:
            yield NO_TAINTS
        else:
            yield from (name for name in ("taints", "cordons") if name in problems)
        if "ending" in problems:
            yield "which pods are being deleted"

    def waiting(self) -> tuple[WaitingPod, ...]:
        """Return the pods that wait."""
        return (
            *(self._waiting(each, "Unschedulable") for each in self._answers.samples("waiting")),
            *(self._waiting(each, "SchedulingGated") for each in self._answers.samples("gated")),
        )

    def _waiting(self, sample: Sample, reason: Literal["Unschedulable", "SchedulingGated"]) -> WaitingPod:
        key, uid = _key(sample), sample.text("uid")
        created = self._created.get((key, uid))
        owners = (each for each in self._owners.get(key, ()) if each.text("owner_is_controller") == "true")
        return WaitingPod(
            key=key,
            uid=uid,
            created=created,
            since=created,
            reason=reason,
            priority=None,
            requests={**self._requests.get(key, {}), "pods": 1},
            scheduler=next((each.text("name") for each in self._schedulers.get(key, ())), DEFAULT_SCHEDULER),
            selector={},
            tolerations=tuple(map(_toleration, self._tolerations.get(key, ()))),
            owner=next((" ".join(each.texts("owner_kind", "owner_name")) for each in owners), ""),
            labels={},
            unjudged=(UNJUDGED,),
        )

    @cached_property
    def _created(self) -> Mapping[tuple[PodKey, str], float]:
        return {(_key(each), each.text("uid")): each.value for each in self._more.samples("created")}

    @cached_property
    def _owners(self) -> Mapping[PodKey, Sequence[Sample]]:
        return self._by_pod("owners")

    @cached_property
    def _requests(self) -> Mapping[PodKey, Mapping[str, int]]:
        """Return what each waiting pod requests at least: containers together, init containers alone."""
        found: defaultdict[PodKey, dict[str, int]] = defaultdict(dict)
        for name in ("requests", "init requests"):
            for sample in self._more.samples(name):
                resource, amount = self._amount(sample)
                amounts = found[_key(sample)]
                amounts[resource] = max(amounts.get(resource, 0), amount)
        return found

    def nodes(self, waiting: Iterable[WaitingPod]) -> Mapping[str, ClusterNode]:
        """Return the nodes."""
        allocatable: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for sample in self._answers.samples("allocatable"):
            resource, amount = self._amount(sample)
            allocatable[sample.text("node")][resource] = amount
        taints: defaultdict[str, list[Taint]] = defaultdict(list)
        for sample in self._more.samples("taints") if self._taints_count else ():
            taints[sample.text("node")].append(Taint(*sample.texts("key", "value", "effect")))
        cordoned = {each.text("node") for each in self._answers.samples("cordons") if each.value}
        # A device class may have these, of which not even the name is known.
        requested = {name for pod in waiting for name in pod.requests}
        foreign = {name for name in requested - _NATIVE if "/" not in name and "-" not in name}
        return {
            name: ClusterNode(
                name=name,
                labels={},
                allocatable=amounts,
                unread=tuple(sorted(name for name in foreign if amounts.get(name, 0) <= 0)),
                taints=tuple(taints[name]),
                cordoned=self._taints_count and name in cordoned,
            )
            for name, amounts in allocatable.items()
        }

    def placed(self) -> Iterator[PlacedPod]:
        """Yield each pod with extended resources, and of each node all else that is taken as one pod."""
        ends = {_key(each): each.value for each in self._more.samples("ending")}
        held: defaultdict[tuple[str, PodKey], dict[str, int]] = defaultdict(dict)
        for sample in self._more.samples("holders"):
            resource, amount = self._amount(sample)
            held[(sample.text("node"), _key(sample))][resource] = amount
        rest: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for sample in self._more.samples("amounts"):
            resource, amount = self._amount(sample)
            rest[sample.text("node")][resource] = amount
        for sample in self._answers.samples("pods"):
            rest[sample.text("node")]["pods"] = int(sample.value)
        for (node, key), amounts in held.items():
            yield PlacedPod(node, amounts, ending=key in ends, key=key, ends=ends.get(key))
        for node, amounts in rest.items():
            if node:
                yield PlacedPod(node, amounts)

    def _amount(self, sample: Sample) -> tuple[str, int]:
        """Return a resource, and an amount of it in the scheduler's unit."""
        resource, unit = sample.texts("resource", "unit")
        name = self._names.get(resource) or _NAMES.get(resource) or _PREFIXES.sub(_restored, resource)
        exact = sample.value * 1000 if unit == "core" else sample.value
        # A sum of thousandths as binary fractions may be a little more than it is.
        return name, math.ceil(round(exact, 6))

    def _by_pod(self, name: str) -> Mapping[PodKey, Sequence[Sample]]:
        found: defaultdict[PodKey, list[Sample]] = defaultdict(list)
        for sample in self._more.samples(name):
            found[_key(sample)].append(sample)
        return found


# kube-state-metrics replaces each character that a label's name cannot have.
_NAMES: Final = {"ephemeral_storage": "ephemeral-storage"}
_NATIVE: Final = frozenset({"cpu", "memory", "ephemeral-storage", "storage", "pods"})
_PREFIXES: Final = re.compile(r"^(hugepages|attachable_volumes)_")


def _restored(match: re.Match[str]) -> str:
    return f"{match[1].replace('_', '-')}-"


def _sanitized(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)


def _key(sample: Sample) -> PodKey:
    return PodKey(*sample.texts("namespace", "pod"))


def _toleration(sample: Sample) -> Toleration:
    return Toleration(*sample.texts("key", "operator", "value", "effect"))
