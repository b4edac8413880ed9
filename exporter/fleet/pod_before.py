"""When a pod that has no device last had one, from the last days of Prometheus."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from exporter.fleet.model import Node, NodeKey
from exporter.fleet.pages.links import Links
from exporter.fleet.pod_model import DAYS, PodBefore, PodFound
from exporter.fleet.prometheus import Prometheus, Sample
from exporter.fleet.queries import Answers, HolderKey, ask, earlier, holder_key, selector
from exporter.fleet.targets import MissingSeriesError

_INFO = "gpuslice_container_info"
_LAST, _ANY = "its last containers", "holders of any pod"
# Moments at which to look, by the name of the query: a pod may have been there for less than a minute.
_TIMES = {"times of its last containers": f"{DAYS}d:1m", "times of an hour": "1h:5s"}
_KUBELET, _UNLISTED = "whether the kubelet answers", "pods that the kubelet does not list"
# Containers of one pod end at different times, within its grace period.
_TOGETHER_SECONDS = 300.0
_NO_HOLDERS = (
    f"this Prometheus has no records of holders ({_INFO}): no container held a GPU of a scraped node lately, "
    "or the series is not scraped (--metric-denylist, or relabelling)"
)


async def read_before(
    prometheus: Prometheus, found: PodFound, info: str, nodes: Sequence[Node], links: Links
) -> PodFound:
    """Return what a pod had; ``info`` selects its series.

    Raises MissingSeriesError if no pod is known to have had a device.
    """
    questions = {
        _LAST: f"last_over_time({info}[{DAYS}d])",
        **{name: f"max_over_time(timestamp({info})[{reach}])" for name, reach in _TIMES.items()},
    }
    answers = await ask(prometheus, questions, found.at)
    problems = dict(answers.problems)
    last = answers.samples(_LAST)
    if not last:
        any_holder = await ask(prometheus, {_ANY: f"group({_INFO} or {earlier(_INFO)})"}, found.at)
        problems |= any_holder.problems
        if not any_holder.samples(_ANY) and not problems:
            raise MissingSeriesError(_NO_HOLDERS)
    names = {sample.text("node") for sample in last}
    kubelets = await ask(prometheus, _kubelet_questions(names), found.at)
    problems |= kubelets.problems
    times: dict[HolderKey, float] = defaultdict(float)
    for sample in chain.from_iterable(map(answers.samples, _TIMES)):
        times[holder_key(sample)] = max(times[holder_key(sample)], sample.value)
    before = [
        _before(sample, times, _why_unknown(sample, nodes, kubelets), links)
        for sample in _newest_by_holder(last, times)
    ]
    return replace(
        found,
        before=tuple(sorted(before, key=lambda each: (-(each.until or 0.0), each.holder, each.uuid))),
        problems=tuple(problems.items()),
    )


def _kubelet_questions(names: set[str]) -> dict[str, str]:
    if not names:
        return {}
    success = selector("gpuslice_collector_success", "node", names)
    return {
        _KUBELET: f'{success.removesuffix("}")}, collector="podresources"}}',
        _UNLISTED: selector("gpuslice_unlisted_pods", "node", names),
    }


def _newest_by_holder(samples: Sequence[Sample], times: Mapping[HolderKey, float]) -> Iterator[Sample]:
    """Yield one sample for each container on a device, of those of its last pod."""
    seen: dict[HolderKey, Sample] = {holder_key(sample): sample for sample in samples}
    newest = max((times.get(key, 0.0) for key in seen), default=0.0)
    for key, sample in seen.items():
        # Earlier pods of the same name are not what it held last.
        if not newest or times.get(key, 0.0) >= newest - _TOGETHER_SECONDS:
            yield sample


def _before(sample: Sample, times: Mapping[HolderKey, float], why: str, links: Links) -> PodBefore:
    key = holder_key(sample)
    node = NodeKey(key.cluster, key.node)
    return PodBefore(
        holder=key.holder,
        node=node,
        url=links.holder(node, key.holder),
        uuid=key.uuid,
        mig_uuid=key.mig_uuid,
        gpu=sample.text("gpu"),
        resource=sample.text("resource"),
        model=sample.text("model"),
        until=times.get(key),
        why_unknown=why,
    )


def _why_unknown(sample: Sample, nodes: Sequence[Node], kubelets: Answers) -> str:
    """Return why it is unknown whether a container still has its device, "" if it has not."""
    place = sample.texts("cluster", "node")
    node = next((node for node in nodes if (node.target.cluster, node.key.name) == place), None)
    if node is None:
        return "its node is no longer scraped"
    if node.silent:
        return f"there is no newer data of its node, as {node.silent}"

    def value(name: str) -> float | None:
        return kubelets.by_target(name).get(node.target)

    if value(_KUBELET) != 1:
        return "the kubelet of its node does not answer"
    return "the kubelet of its node does not list all pods yet" if value(_UNLISTED) else ""
