"""What Prometheus knows of GPUs that may help a waiting pod: idle pods, MIG layouts, sick and shared GPUs.

Nodes are named as in the Kubernetes API. A node name that several clusters have is left out, as it is not
known which of them the objects are of.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final, TypeVar

from exporter.fleet.cluster_advice import ClusterAdvice
from exporter.fleet.model import Node
from exporter.fleet.prometheus import Prometheus, PrometheusError, Sample
from exporter.fleet.queries import Answers, ask, selector_or_all
from exporter.fleet.targets import MissingSeriesError, query_targets, read_clock
from exporter.model.mig_geometry import Span
from exporter.waiting.gpu_facts import GpuFacts, IdlePod, MigGpu, SharedGpu, SickDevice, SmallerRequest
from exporter.waiting.objects import PodKey
from exporter.waiting.ways_by_gpus import MIG

_POD, _GPU = "cluster, node, namespace, pod", "cluster, node, uuid"
_IDLE, _SICK, _SHARED, _PROFILES = "idle pods", "unhealthy slices", "shared GPUs", "MIG profiles"
_ROOM, _UNHELD = "free memory slices of MIG", "MIG GPUs without holders"
_LAYOUT, _USED, _MODELS = "MIG devices", "used memory slices of MIG", "models of GPUs"
_OFFERED, _CONDITIONS = "slices of GPUs", "conditions of GPUs"
_FREE_SLICES: Final = 'gpuslice_gpu_mig_memory_slices{state="free"}'
_NO_HOLDER: Final = f"gpuslice_gpu_holders == 0 and on ({_GPU}) {_FREE_SLICES}"
QUESTIONS: Final = {
    # A pod is idle if it is on all that it holds, and that is measured.
    _IDLE: f"min by ({_POD}) (container:gpuslice_idle_seconds:max)"
    f" and on ({_POD}) min by ({_POD}) (container:gpuslice_idle_holder:bool) == 1"
    f" unless on ({_POD}) (container:gpuslice_held_slices:max > 0"
    " unless container:gpuslice_idle_holder:bool)",
    _SICK: "max by (cluster, node, gpu, uuid, resource) (gpuslice_gpu_slices_unhealthy) > 0",
    _SHARED: "count by (cluster, node, resource, sharing) (max by (cluster, node, uuid, resource)"
    f" (gpuslice_gpu_slices) * on ({_GPU}) group_left (sharing)"
    f' max by ({_GPU}, sharing) (gpuslice_gpu_info{{sharing=~"time-slicing|mps"}}))',
}
# Only if a pod waits for a MIG device.
MIG_QUESTIONS: Final = {
    _PROFILES: "max by (cluster, model, profile) (gpuslice_node_mig_profile_instances)",
    _ROOM: f"max by (cluster, node, gpu, uuid) ({_FREE_SLICES} > 0)",
    _UNHELD: f"max by (cluster, node, gpu, uuid) ({_NO_HOLDER})",
}
# Of GPUs that may have room.
_DETAILS: Final = {
    _LAYOUT: "gpuslice_mig_info",
    _USED: "gpuslice_gpu_mig_memory_slices",
    _MODELS: "gpuslice_gpu_info",
    _OFFERED: "gpuslice_gpu_slices",
    _CONDITIONS: "gpu:gpuslice_raised_condition:bool",
}
_MOST_DIGITS: Final = 3
Value = TypeVar("Value")
_SMALLER_VERDICTS: Final = frozenset({"mig_profile", "smaller_profile"})


async def read_gpu_facts(
    prometheus: Prometheus | None, resources: Collection[str], at: float | None = None
) -> GpuFacts:
    """Return what is known now, or at a Unix time; ``resources`` are those that pods wait for.

    What fails is among its problems.
    """
    if prometheus is None:
        return GpuFacts(at=0.0, problems=("GPUs: no Prometheus is set: set --prometheus-url",))
    try:
        at = await read_clock(prometheus) if at is None else at
        targets = await query_targets(prometheus, at)
    except (PrometheusError, MissingSeriesError) as error:
        return GpuFacts(at=0.0, problems=(f"GPUs: {error}",))
    wants_mig = any(resource.startswith(MIG) for resource in resources)
    answers = await ask(prometheus, QUESTIONS | (MIG_QUESTIONS if wants_mig else {}), at)
    details = await ask(prometheus, detail_questions(answers), at)
    return read_facts(answers, details, targets.nodes, at)


def detail_questions(answers: Answers) -> dict[str, str]:
    """Return the queries for the layout and the condition of the GPUs that matter."""
    mig = {sample.text("uuid") for name in (_ROOM, _UNHELD) for sample in answers.samples(name)}
    sick = {sample.text("uuid") for sample in answers.samples(_SICK)}
    questions = {}
    if mig:
        questions = {name: selector_or_all(family, "uuid", mig) for name, family in _DETAILS.items()}
    if mig or sick:
        questions[_CONDITIONS] = selector_or_all(_DETAILS[_CONDITIONS], "uuid", mig | sick)
    return questions


def read_facts(answers: Answers, details: Answers, nodes: Sequence[Node], at: float) -> GpuFacts:
    """Return what the answers say; None for what failed."""
    names = Counter(node.key.name for node in nodes)
    facts = _Facts(answers, details, frozenset(name for name, count in names.items() if count == 1))
    several = [name for name, count in names.items() if count > 1]
    problems = [f"{name}: {why}" for each in (answers, details) for name, why in each.problems.items()]
    if several:
        problems.append(f"GPUs of nodes whose names several clusters have, such as {several[0]}")
    return GpuFacts(
        at=at,
        idle=facts.unless_failed(_IDLE, facts.idle()),
        sick=facts.unless_failed(_SICK, facts.sick()),
        shared=facts.unless_failed(_SHARED, facts.shared()),
        mig=facts.mig(),
        instances=facts.instances(),
        silent={node.key.name: node.silent for node in nodes if node.silent},
        problems=tuple(problems),
    )


def with_advice(facts: GpuFacts, advice: ClusterAdvice | None) -> GpuFacts:
    """Return the facts with the smaller requests that the advice has for workloads."""
    if advice is None:
        return facts
    smaller = tuple(
        SmallerRequest(each.window.namespace, each.window.workload, each.options[0].target, each.confidence)
        for each in advice.advices
        if each.options and each.confidence and each.options[0].verdict in _SMALLER_VERDICTS
    )
    return replace(facts, smaller=smaller)


class _Facts:
    def __init__(self, answers: Answers, details: Answers, names: frozenset[str]) -> None:
        self._answers, self._details, self._names = answers, details, names
        self._conditions: dict[str, str] = {}
        for sample in details.samples(_CONDITIONS):
            # A newer exporter may have conditions that this program does not know.
            self._conditions.setdefault(sample.text("uuid"), sample.text("condition").replace("_", " "))

    def unless_failed(self, name: str, values: Iterator[Value]) -> tuple[Value, ...] | None:
        """Return values, None if their query failed."""
        return None if name in self._answers.problems else tuple(values)

    def _samples(self, name: str) -> Iterator[Sample]:
        """Yield the samples of nodes whose name is that of one node."""
        for answers in (self._answers, self._details):
            for sample in answers.samples(name):
                if sample.text("node") in self._names:
                    yield sample

    def idle(self) -> Iterator[IdlePod]:
        for sample in self._samples(_IDLE):
            key = PodKey(sample.text("namespace"), sample.text("pod"))
            if all(key):
                yield IdlePod(key, sample.text("node"), sample.value)

    def sick(self) -> Iterator[SickDevice]:
        slices: defaultdict[tuple[str, ...], dict[str, int]] = defaultdict(dict)
        for sample in self._samples(_SICK):
            slices[sample.texts("node", "gpu", "uuid")][sample.text("resource")] = int(sample.value)
        for (node, gpu, uuid), unhealthy in slices.items():
            yield SickDevice(node, gpu, uuid, unhealthy, self._conditions.get(uuid, ""))

    def shared(self) -> Iterator[SharedGpu]:
        for sample in self._samples(_SHARED):
            yield SharedGpu(*sample.texts("node", "resource", "sharing"))

    def instances(self) -> Mapping[tuple[str, str], int]:
        """Return how many instances of each profile fit on an empty GPU; of several answers the fewest."""
        found: dict[tuple[str, str], int] = {}
        for sample in self._answers.samples(_PROFILES):
            key, count = (sample.text("model"), sample.text("profile")), int(sample.value)
            found[key] = min(count, found.get(key, count))
        return found

    def mig(self) -> tuple[MigGpu, ...] | None:
        """Return the GPUs in MIG mode that may have room; None if any of the queries failed."""
        asked = (_ROOM, _UNHELD, *_DETAILS)
        if any(name in each.problems for each in (self._answers, self._details) for name in asked):
            return None
        unheld = {sample.text("uuid") for sample in self._samples(_UNHELD)}
        layouts, models, used = self._layouts(), self._labels(_MODELS, "model"), self._used()
        found = {}
        for name in (_ROOM, _UNHELD):
            for sample in self._samples(name):
                node, gpu, uuid = sample.texts("node", "gpu", "uuid")
                layout = layouts.get(uuid, frozenset())
                # Without the places of all its instances nothing is known of a GPU.
                known = layout is not None and sum(span.size for span in layout) == used.get(uuid)
                if layout is not None and known and uuid in models and uuid not in self._conditions:
                    offered = self._offered.get(uuid, {})
                    places = tuple(sorted(layout))
                    found[uuid] = MigGpu(node, gpu, uuid, models[uuid], places, uuid not in unheld, offered)
        return tuple(found[uuid] for uuid in sorted(found))

    def _layouts(self) -> Mapping[str, frozenset[Span] | None]:
        """Return the places of the GPU instances of each GPU, None if that of one is unknown."""
        found: dict[str, frozenset[Span] | None] = {}
        for sample in self._samples(_LAYOUT):
            uuid, place = sample.text("uuid"), _span(sample.text("placement"))
            known = found.get(uuid, frozenset())
            found[uuid] = None if place is None or known is None else known | {place}
        return found

    def _used(self) -> Mapping[str, float]:
        return {
            sample.text("uuid"): sample.value
            for sample in self._samples(_USED)
            if sample.text("state") == "used"
        }

    def _labels(self, name: str, label: str) -> Mapping[str, str]:
        return {sample.text("uuid"): sample.text(label) for sample in self._samples(name)}

    @cached_property
    def _offered(self) -> Mapping[str, Mapping[str, int]]:
        found: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for sample in self._samples(_OFFERED):
            found[sample.text("uuid")][sample.text("resource")] = int(sample.value)
        return found


def _span(placement: str) -> Span | None:
    """Return a placement such as 4:4."""
    start, _, size = placement.partition(":")
    if not (_is_small(start) and _is_small(size)):
        return None
    return Span(int(start), int(size))


def _is_small(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
