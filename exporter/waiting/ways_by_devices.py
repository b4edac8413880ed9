"""Ways that need devices of DRA drivers: one that is tainted, or a larger one of another device class."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial

from exporter.waiting.device_changes import Size
from exporter.waiting.filters import KEEPS_OUT
from exporter.waiting.lack import MOST_FOUND, Search, fewest, names_as_text
from exporter.waiting.objects import ClaimRequest, OfferedDraDevice, ResourceClaim, Taint
from exporter.waiting.trial import Change
from exporter.waiting.way import Found, Way


def tainted(search: Search) -> Found:
    """Return the nodes with tainted devices, such as sick ones, without whose taints the pod would fit."""
    ways: list[Way] = []
    for node, devices in search.trials.devices.tainted.items():
        if len(ways) >= MOST_FOUND:
            break
        if not search.lacks_devices(node):
            continue
        few = fewest(devices, partial(_fits_without_taints, search, node))
        if few:
            ways.append(_repair(search, node, few))
    return Found(sorted(ways, key=lambda way: (bool(way.unjudged), way.node)), [])


def _change(node: str, devices: Iterable[OfferedDraDevice]) -> Change:
    return Change(node=node, untainted=frozenset(each.name for each in devices))


def _fits_without_taints(search: Search, node: str, devices: Sequence[OfferedDraDevice]) -> bool:
    return search.try_change(_change(node, devices)).answer != "no"


def _repair(search: Search, node: str, devices: Sequence[OfferedDraDevice]) -> Way:
    in_force = [taint for each in devices for taint in each.taints if taint.effect in KEEPS_OUT]
    taints = list(dict.fromkeys(map(_taint_words, in_force)))
    keep = f"taints {names_as_text(taints)} keep" if taints[1:] else f"taint {taints[0]} keeps"
    names = names_as_text([each.name.device for each in devices])
    return Way(
        kind="device",
        node=node,
        what=f"repair {names} of {node}: {keep} new pods away",
        asked="on-call",
        source="objects",
        unjudged=search.unjudged(search.try_change(_change(node, devices))),
    )


def _taint_words(taint: Taint) -> str:
    return f"{taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}"


def larger_device(search: Search) -> Found:
    """Return the device classes with which the pod would fit, whose devices are at least as large.

    That is compared with the devices that the pod's own request means; if there are none in the cluster, it
    is not known how large these are.
    """
    ways: list[Way] = []
    for claim in search.claims:
        for request in claim.requests:
            if not request.unread and request.count is not None:
                ways += _other_classes(search, claim, request)
    return Found(sorted(ways, key=lambda way: (bool(way.unjudged), way.node, way.resource)), [])


def _other_classes(search: Search, claim: ResourceClaim, request: ClaimRequest) -> Iterator[Way]:
    classes = search.judge.state.objects.classes or {}
    if request.device_class not in classes:
        return
    mine = search.trials.devices.sizes((*classes[request.device_class].selectors, *request.selectors))
    of_claim = f" of claim {claim.name}" if search.pod.claims[1:] else ""
    found = 0
    for name in sorted(classes.keys() - {request.device_class}):
        # If its own selectors allow none of these devices, it could ask without them.
        for selectors in dict.fromkeys((request.selectors, ())):
            other = search.trials.devices.sizes((*classes[name].selectors, *selectors))
            instead = replace(request, device_class=name, selectors=selectors)
            requests = tuple(instead if each is request else each for each in claim.requests)
            for node in _nodes_with_larger(search, mine, other):
                if found >= MOST_FOUND:
                    return
                verdict = search.try_change(Change(node=node, claims=(replace(claim, requests=requests),)))
                if verdict.answer != "no":
                    found += 1
                    yield _ask_for(node, request, instead, of_claim, search.unjudged(verdict))


def _nodes_with_larger(
    search: Search, mine: Mapping[str, AbstractSet[Size]], other: Mapping[str, AbstractSet[Size]]
) -> Iterator[str]:
    """Yield the nodes of which all devices of another kind are as large as some of one's own, or larger."""
    own = frozenset[Size]().union(*mine.values())
    larger = {size for size in frozenset[Size]().union(*other.values()) if _as_large(size, own)}
    # Devices for several nodes may be chosen on each of them.
    if other.get("", frozenset()) <= larger:
        for node, sizes in other.items():
            if sizes <= larger and search.lacks_devices(node):
                yield node


def _as_large(size: Size, own: AbstractSet[Size]) -> bool:
    capacity = dict(size.capacity)
    return any(
        each.capacity
        and each.driver == size.driver
        and all(capacity.get(name, 0) >= amount for name, amount in each.capacity)
        for each in own
    )


def _ask_for(
    node: str, request: ClaimRequest, instead: ClaimRequest, of_claim: str, unjudged: tuple[str, ...]
) -> Way:
    dropped = ", without its selectors" if instead.selectors != request.selectors else ""
    where = f"in request {request.name}{of_claim}{dropped}"
    return Way(
        kind="larger",
        node=node,
        what=f"ask for device class {instead.device_class} instead of {request.device_class} {where}: "
        f"its devices on {node} are as large or larger",
        asked="its owner",
        source="objects",
        resource=instead.device_class,
        instead_of=request.device_class,
        unjudged=unjudged,
    )
