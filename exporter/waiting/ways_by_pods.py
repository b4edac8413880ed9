"""Ways that need a pod to leave: one that is ending, or one that holds slices without using them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from exporter.waiting.device_changes import released
from exporter.waiting.filters import Reason, is_device
from exporter.waiting.lack import MOST_FOUND, Search, listed, names_as_text, spared
from exporter.waiting.objects import PlacedPod, PodKey
from exporter.waiting.trial import Change
from exporter.waiting.verdict import Verdict
from exporter.waiting.way import Found, NotHelping, Way
from exporter.wording import duration

STUCK: Final = "on-call: it does not end"
# A kubelet that answers ends a pod soon after its grace period.
_LATE: Final = 300.0


def ending(search: Search) -> Found:
    """Return the nodes that pods are leaving now, if what they free suffices."""
    ways: list[Way] = []
    for node, ending_pods in search.trials.ending.items():
        pods = tuple(sorted(each.key for each in ending_pods if _frees(search, each)))
        if not pods or len(ways) >= MOST_FOUND:
            continue
        verdict = search.try_change(Change(node=node, gone=frozenset(pods)))
        if verdict.answer != "no":
            late = max(
                (search.now - each.ends for each in ending_pods if each.key in pods and each.ends),
                default=0.0,
            )
            ways.append(_wait_for(node, pods, late, search.unjudged(verdict)))
    return Found(sorted(ways, key=_soonest), [])


def _wait_for(node: str, pods: tuple[PodKey, ...], late: float, unjudged: tuple[str, ...]) -> Way:
    """Return the way that pods end; ``late``: for how many seconds one of them should have ended."""
    several = len(pods) > 1
    stuck = late > _LATE
    since = f"; {'one of them' if several else 'it'} should have ended {duration(late)} ago" if stuck else ""
    return Way(
        kind="ending",
        node=node,
        what=f"wait for {listed(pods)} on {node}, which {'are' if several else 'is'} ending{since}",
        asked=STUCK if stuck else "none: wait",
        source="objects",
        pods=pods,
        unjudged=unjudged,
    )


def _soonest(way: Way) -> tuple[object, ...]:
    return bool(way.unjudged), way.asked == STUCK, len(way.pods), way.node


class _Holder(NamedTuple):
    """An idle pod on a node."""

    pod: PlacedPod
    seconds: float  # for which it has been idle


def idle(search: Search) -> Found:
    """Return the idle pods without which the pod would fit, the longest idle first."""
    found: list[tuple[tuple[object, ...], Way]] = []
    not_helping: list[NotHelping] = []
    for node, holders in _idle_by_node(search).items():
        if len(found) >= MOST_FOUND:
            break
        together = _of_node(search, node, holders)
        for each, verdict in together:
            way = _without(search, node, each, verdict)
            shortest = min(holder.seconds for holder in each)
            found.append(((bool(way.unjudged), len(each), -shortest, node), way))
        if not together and len(not_helping) < MOST_FOUND:
            not_helping.append(_useless(search, node, holders))
    return Found([way for _, way in sorted(found, key=lambda each: each[0])], not_helping)


def _idle_by_node(search: Search) -> Mapping[str, list[_Holder]]:
    """Return the idle pods that hold what is missing, by node; those that are idle for longest come first."""
    found: defaultdict[str, list[_Holder]] = defaultdict(list)
    for each in sorted(search.facts.idle or (), key=lambda pod: -pod.seconds):
        pod = search.trials.pod(each.node, each.key) if each.node in search.lacking else None
        if pod is not None and not pod.ending and _holds(search, pod):
            found[each.node].append(_Holder(pod, each.seconds))
    return found


def _of_node(
    search: Search, node: str, holders: Sequence[_Holder]
) -> list[tuple[Sequence[_Holder], Verdict]]:
    """Return each idle pod of a node that suffices alone; if none does, some that do together.

    Each with the verdict without it.
    """

    def without(some: Sequence[_Holder]) -> Verdict | None:
        return _fits_without(search, node, some)

    single = [([each], verdict) for each in holders if (verdict := without([each])) is not None]
    if single or len(holders) == 1 or without(holders) is None:
        return [*single]
    # The shortest idle ones are spared first.
    few = spared(holders, lambda some: without(some) is not None)
    return [(few, search.try_change(_gone(node, few)))]


def _fits_without(search: Search, node: str, holders: Sequence[_Holder]) -> Verdict | None:
    """Return the verdict on a node without some pods, None if the pod would still not fit there."""
    # Most often this is not enough, and there is nothing to try.
    if any(_held(name, holders) < missing for name, missing in search.missing(node).items()):
        return None
    verdict = search.try_change(_gone(node, holders))
    return None if verdict.answer == "no" else verdict


def _gone(node: str, holders: Sequence[_Holder]) -> Change:
    return Change(node=node, gone=frozenset(each.pod.key for each in holders))


def _without(search: Search, node: str, holders: Sequence[_Holder], verdict: Verdict) -> Way:
    pods = tuple(each.pod.key for each in holders)
    times = " and ".join(dict.fromkeys(duration(each.seconds) for each in holders))
    return Way(
        kind="idle",
        node=node,
        what=f"scale down {listed(pods)} on {node}, idle for {times}",
        asked="their owners" if pods[1:] else "its owner",
        source="GPUs",
        pods=pods,
        unjudged=search.unjudged(verdict),
    )


def _useless(search: Search, node: str, holders: Sequence[_Holder]) -> NotHelping:
    names = listed(tuple(each.pod.key for each in holders))
    several = len(holders) > 1
    idle_words = f"{names} on {node} {'are' if several else 'is'} idle"
    if shared := _shared_claims(search, holders):
        return NotHelping(node, f"{idle_words}, but {shared}")
    reasons = search.try_change(_gone(node, holders)).reasons
    left = "; ".join(_left(search, node, reason, holders) for reason in reasons)
    return NotHelping(node, f"{idle_words}, but without {'them' if several else 'it'} {left}")


def _shared_claims(search: Search, holders: Sequence[_Holder]) -> str:
    """Return which claims of idle pods others use too, so that these give no device back."""
    gone = {each.pod.key for each in holders}
    claims = {claim.name: claim for key in gone for claim in search.trials.devices.held(key)}
    shared = [claim for _, claim in sorted(claims.items()) if not released(claim, gone)]
    return names_as_text([f"claim {claim.name} has other users" for claim in shared])


def _left(search: Search, node: str, reason: Reason, holders: Sequence[_Holder]) -> str:
    """Return why a node would still be out without its idle pods."""
    name = reason.resource
    if not name:
        return f"the node is still out: {reason.words}"
    free = max(search.free(node, name) + _held(name, holders), 0)
    return f"{free} of {search.capacity(node, name)} {name} free, {search.pod.requests[name]} requested"


def _held(resource: str, holders: Sequence[_Holder]) -> int:
    return sum(each.pod.requests.get(resource, 0) for each in holders)


def _holds(search: Search, pod: PlacedPod) -> bool:
    """Return whether a pod holds devices of a kind that is missing on its node."""
    missing = search.lacking.get(pod.node, frozenset())
    counted = any(pod.requests.get(name, 0) > 0 for name in missing if is_device(name))
    return counted or _has_devices(search, pod)


def _frees(search: Search, pod: PlacedPod) -> bool:
    """Return whether a pod takes any of what is missing on its node."""
    missing = search.lacking.get(pod.node, frozenset())
    return any(pod.requests.get(name, 0) > 0 for name in missing) or _has_devices(search, pod)


def _has_devices(search: Search, pod: PlacedPod) -> bool:
    """Return whether a pod has devices by claims (DRA), while such are missing on its node."""
    return bool(search.trials.devices.held(pod.key)) and search.lacks_devices(pod.node)
