"""Ways that need a pod to leave: one that is ending, or one that holds slices without using them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from exporter.waiting.filters import Reason, is_device
from exporter.waiting.lack import MOST_FOUND, Search, listed
from exporter.waiting.objects import PlacedPod
from exporter.waiting.trial import Change
from exporter.waiting.way import Found, NotHelping, Way
from exporter.wording import duration


def ending(search: Search) -> Found:
    """Return the nodes that pods are leaving now, if what they free suffices."""
    ways: list[Way] = []
    for node, ending_pods in search.trials.ending.items():
        missing = search.lacking.get(node, frozenset())
        pods = tuple(sorted(each.key for each in ending_pods if _frees(each, missing)))
        if not pods or len(ways) >= MOST_FOUND:
            continue
        verdict = search.try_change(Change(node=node, gone=frozenset(pods)))
        if verdict.answer != "no":
            ways.append(
                Way(
                    kind="ending",
                    node=node,
                    what=f"wait for {listed(pods)} on {node}, which {'are' if pods[1:] else 'is'} ending",
                    asked="none: wait",
                    source="objects",
                    pods=pods,
                    unjudged=search.unjudged(verdict),
                )
            )
    return Found(sorted(ways, key=lambda way: (bool(way.unjudged), len(way.pods), way.node)), [])


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
        for each in together:
            way = _without(search, node, each)
            if way is not None:
                shortest = min(holder.seconds for holder in each)
                found.append(((bool(way.unjudged), len(each), -shortest, node), way))
        if not together and len(not_helping) < MOST_FOUND:
            not_helping.append(_useless(search, node, holders))
    return Found([way for _, way in sorted(found, key=lambda each: each[0])], not_helping)


def _idle_by_node(search: Search) -> Mapping[str, list[_Holder]]:
    """Return the idle pods that hold what is missing, by node; those that are idle for longest come first."""
    found: defaultdict[str, list[_Holder]] = defaultdict(list)
    for each in sorted(search.facts.idle or (), key=lambda pod: -pod.seconds):
        missing = search.lacking.get(each.node)
        pod = None if missing is None else search.trials.pod(each.node, each.key)
        if missing is not None and pod is not None and not pod.ending and _holds(pod, missing):
            found[each.node].append(_Holder(pod, each.seconds))
    return found


def _of_node(search: Search, node: str, holders: Sequence[_Holder]) -> list[list[_Holder]]:
    """Return each idle pod of a node that suffices alone; if none does, some that do together."""
    single = [[each] for each in holders if _suffice(search, node, [each])]
    if single or not _suffice(search, node, holders):
        return single
    together = list(holders)
    # The shortest idle ones are spared first.
    for spared in reversed(holders):
        fewer = [each for each in together if each is not spared]
        together = fewer if _suffice(search, node, fewer) else together
    return [together]


def _suffice(search: Search, node: str, holders: Sequence[_Holder]) -> bool:
    """Return whether the pod would fit a node without some pods."""
    # Most often this is not enough, and there is nothing to try.
    if any(_held(name, holders) < missing for name, missing in search.missing(node).items()):
        return False
    return search.try_change(_gone(node, holders)).answer != "no"


def _gone(node: str, holders: Sequence[_Holder]) -> Change:
    return Change(node=node, gone=frozenset(each.pod.key for each in holders))


def _without(search: Search, node: str, holders: Sequence[_Holder]) -> Way | None:
    verdict = search.try_change(_gone(node, holders))
    if verdict.answer == "no":
        return None
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
    reasons = search.try_change(_gone(node, holders)).reasons
    left = "; ".join(_left(search, node, reason, holders) for reason in reasons)
    names = listed(tuple(each.pod.key for each in holders))
    several = len(holders) > 1
    idle_words = f"{names} on {node} {'are' if several else 'is'} idle"
    return NotHelping(node, f"{idle_words}, but without {'them' if several else 'it'} {left}")


def _left(search: Search, node: str, reason: Reason, holders: Sequence[_Holder]) -> str:
    """Return why a node would still be out without its idle pods."""
    name = reason.resource
    if not name:
        return reason.words
    free = max(search.free(node, name) + _held(name, holders), 0)
    return f"{free} of {search.capacity(node, name)} {name} free, {search.pod.requests[name]} requested"


def _held(resource: str, holders: Sequence[_Holder]) -> int:
    return sum(each.pod.requests.get(resource, 0) for each in holders)


def _holds(pod: PlacedPod, missing: AbstractSet[str]) -> bool:
    return any(pod.requests.get(name, 0) > 0 for name in missing if is_device(name))


def _frees(pod: PlacedPod, missing: AbstractSet[str]) -> bool:
    return any(pod.requests.get(name, 0) > 0 for name in missing)
