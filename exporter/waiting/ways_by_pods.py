"""Ways that need a pod to leave: one that is ending, or one that holds slices without using them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from exporter.waiting.gpu_facts import IdlePod
from exporter.waiting.lack import MOST_FOUND, Search, is_device, listed
from exporter.waiting.objects import PlacedPod
from exporter.waiting.trial import Change
from exporter.waiting.way import Found, NotHelping, Way
from exporter.wording import duration


def ending(search: Search) -> Found:
    """Return the nodes that pods are leaving now, if what they free suffices."""
    ways: list[Way] = []
    for node, missing in search.lacking():
        leaving = [each for each in search.trials.ending.get(node, ()) if _holds(each, missing)]
        pods = tuple(sorted(each.key for each in leaving))
        if not pods or len(ways) >= MOST_FOUND:
            continue
        verdict = search.try_change(Change(node=node, gone=frozenset(pods)))
        if verdict.answer != "no":
            ways.append(
                Way(
                    kind="ending",
                    node=node,
                    what=f"wait for {listed(pods)} on {node}, which {'are' if pods[1:] else 'is'} ending",
                    asked="nobody",
                    source="objects",
                    pods=pods,
                    unjudged=search.unjudged(verdict),
                )
            )
    return Found(sorted(ways, key=lambda way: (bool(way.unjudged), len(way.pods), way.node)), [])


def idle(search: Search) -> Found:
    """Return the idle pods without which the pod would fit, the longest idle first."""
    by_node: defaultdict[str, list[IdlePod]] = defaultdict(list)
    for each in sorted(search.facts.idle or (), key=lambda pod: -pod.seconds):
        by_node[each.node].append(each)
    found: list[tuple[tuple[object, ...], Way]] = []
    not_helping: list[NotHelping] = []
    for node, missing in search.lacking():
        if len(found) >= MOST_FOUND:
            break
        if node not in by_node:
            continue
        placed = {each.key: each for each in search.trials.pods_of(node)}
        holders = [
            each
            for each in by_node.get(node, ())
            if each.key in placed and not placed[each.key].ending and _holds(placed[each.key], missing)
        ]
        if not holders:
            continue
        way, why_not = _of_node(search, node, holders, missing)
        found += [((len(each.pods), -_shortest(each, holders), each.node), each) for each in way]
        not_helping += why_not
    ways = [way for _, way in sorted(found, key=lambda each: (bool(each[1].unjudged), each[0]))]
    return Found(ways, not_helping)


def _of_node(
    search: Search,
    node: str,
    holders: Sequence[IdlePod],
    missing: Mapping[str, int],
) -> tuple[list[Way], list[NotHelping]]:
    """Return each idle pod of a node that suffices alone; if none does, the fewest that do together."""
    single = [way for each in holders if (way := _without(search, node, [each])) is not None]
    if single:
        return single, []
    together: list[IdlePod] = []
    for each in holders:
        together.append(each)
        if _without(search, node, together) is not None:
            for spare in tuple(together):
                fewer = [pod for pod in together if pod is not spare]
                together = fewer if _without(search, node, fewer) is not None else together
            way = _without(search, node, together)
            return ([way] if way else []), []
    if not any(is_device(name) for name in missing):
        return [], []
    verdict = search.try_change(Change(node=node, gone=frozenset(each.key for each in holders)))
    left = "; ".join(reason.words for reason in verdict.reasons)
    pods = tuple(each.key for each in holders)
    freed = f"{listed(pods)} on {node} {'are' if pods[1:] else 'is'} idle, but without"
    return [], [NotHelping(node, f"{freed} {'them' if pods[1:] else 'it'} {left}")]


def _without(search: Search, node: str, holders: Sequence[IdlePod]) -> Way | None:
    pods = tuple(each.key for each in holders)
    verdict = search.try_change(Change(node=node, gone=frozenset(pods)))
    if verdict.answer == "no" or not pods:
        return None
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


def _shortest(way: Way, holders: Sequence[IdlePod]) -> float:
    return min(each.seconds for each in holders if each.key in way.pods)


def _holds(pod: PlacedPod, missing: Mapping[str, int]) -> bool:
    return any(pod.requests.get(name, 0) > 0 for name in missing)
