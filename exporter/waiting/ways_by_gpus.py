"""Ways that need a change of a GPU or node: a re-cut of MIG, more replicas, a repair, the end of a cordon."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from exporter.model.mig_geometry import Span
from exporter.model.mig_placements import memory_size, placements, places_for
from exporter.waiting.gpu_facts import MigGpu
from exporter.waiting.lack import MOST_FOUND, Search
from exporter.waiting.trial import Change
from exporter.waiting.way import Found, NotHelping, Way
from exporter.wording import TIMES

MIG: Final = "nvidia.com/mig-"
_RESTART: Final = "the device plugin has to list its devices again"
_CLIENTS: Final = "clients of the GPU such as dcgm-exporter"


def recut(search: Search) -> Found:
    """Return the GPUs on which instances of the requested MIG profile would fit.

    With holders on the GPU, they must fit beside its instances; without, these may go first.
    """
    found: list[tuple[tuple[object, ...], Way]] = []
    not_helping: list[NotHelping] = []
    for gpu in search.facts.mig or ():
        if len(found) >= MOST_FOUND:
            break
        for resource, count in search.missing(gpu.node).items():
            profile = resource.removeprefix(MIG) if resource.startswith(MIG) else ""
            instances = search.facts.instances.get((gpu.model, profile))
            possible = None if instances is None else placements(gpu.model, profile, instances)
            if not possible:
                continue
            way = _recut(search, gpu, resource, possible, count)
            if way is not None:
                found.append(((bool(way.unjudged), _cost(way), gpu.node, gpu.gpu), way))
            elif (useless := _not_helping(gpu, profile, possible, count)) is not None:
                not_helping.append(useless)
    return Found([way for _, way in sorted(found, key=lambda each: each[0])], not_helping)


def _recut(search: Search, gpu: MigGpu, resource: str, possible: Sequence[Span], count: int) -> Way | None:
    beside = places_for(possible, gpu.used, count)
    unused = not gpu.held and _all_free(search, gpu)
    places = places_for(possible, (), count) if beside is None and unused else beside
    if places is None or not _only_missing(search, gpu.node, {resource: count}):
        return None
    removed = {} if beside is not None else {name: -offered for name, offered in gpu.offered.items()}
    offers = {**removed, resource: removed.get(resource, 0) + count}
    verdict = search.try_change(Change(node=gpu.node, offers=offers))
    if verdict.answer == "no":
        return None
    profile = resource.removeprefix(MIG)
    create = f"{profile}:{f',{profile}:'.join(str(place.start) for place in places)}"
    tool = f"nvidia-smi mig -i {gpu.gpu}"
    if beside is not None:
        where = " and ".join(map(_slices_of, places))
        what = f"add {count} {TIMES} {profile} to GPU {gpu.gpu} of {gpu.node}, at free memory {where}"
        commands: tuple[str, ...] = (f"{tool} -cgi {create} -C",)
        stops = _RESTART
    else:
        what = f"re-cut GPU {gpu.gpu} of {gpu.node}, which has no holder: {count} {TIMES} {profile} fits"
        commands = (f"{tool} -dci", f"{tool} -dgi", f"{tool} -cgi {create} -C")
        stops = f"it loses {_slices(gpu.offered)}; {_CLIENTS} must stop, and {_RESTART}"
    return Way(
        kind="recut",
        node=gpu.node,
        gpu=gpu.gpu,
        what=what,
        asked="who partitions GPUs",
        source="GPUs",
        commands=commands,
        stops=stops,
        unjudged=search.unjudged(verdict),
    )


def _all_free(search: Search, gpu: MigGpu) -> bool:
    """Return whether so many slices of a node are free as a GPU without holders has.

    Else pods came since its holders were read.
    """
    return all(search.free(gpu.node, name) >= offered for name, offered in gpu.offered.items())


def _not_helping(gpu: MigGpu, profile: str, possible: Sequence[Span], count: int) -> NotHelping | None:
    """Return what is free on a GPU, if that is as much as an instance needs, or more."""
    free = (memory_size(gpu.model) or 0) - sum(span.size for span in gpu.used)
    if free < possible[0].size:
        return None
    room = places_for(possible, gpu.used, 1) is not None
    why = (
        f"the pod does not fit with {count} {TIMES} {profile}" if room else f"no place of a {profile} is free"
    )
    return NotHelping(gpu.node, f"GPU {gpu.gpu} of {gpu.node} has {free} free memory slices, but {why}")


def _slices_of(place: Span) -> str:
    return (
        f"slice {place.start}" if place.size == 1 else f"slices {place.start}-{place.start + place.size - 1}"
    )


def _cost(way: Way) -> int:
    return len(way.commands)


def _slices(offered: Mapping[str, int]) -> str:
    names = [f"{count} {TIMES} {name}" for name, count in sorted(offered.items()) if count]
    return ", ".join(names) or "no slices"


def replicas(search: Search) -> Found:
    """Return the nodes with shared GPUs of which more replicas would do."""
    ways = []
    for gpu in search.facts.shared or ():
        count = search.missing(gpu.node).get(gpu.resource)
        if not count or not _only_missing(search, gpu.node, {gpu.resource: count}):
            continue
        verdict = search.try_change(Change(node=gpu.node, offers={gpu.resource: count}))
        if verdict.answer == "no":
            continue
        more = f"{count} more replica{'s' if count > 1 else ''} of {gpu.resource}"
        ways.append(
            Way(
                kind="replicas",
                node=gpu.node,
                what=f"configure {more} on {gpu.node}, shared by {gpu.sharing}",
                asked="who configures the device plugin",
                source="GPUs",
                stops="all containers on such a GPU share it with more",
                unjudged=search.unjudged(verdict),
            )
        )
    return Found(sorted(ways, key=_by_node), [])


def devices(search: Search) -> Found:
    """Return the GPUs whose repair would do, and the nodes whose cordon alone keeps the pod out."""
    return Found(sorted([*_repairs(search), *_cordons(search)], key=_by_node), [])


def _repairs(search: Search) -> Iterator[Way]:
    for gpu in search.facts.sick or ():
        lacking = search.lacking.get(gpu.node, frozenset())
        wanted = {name: count for name, count in gpu.unhealthy.items() if name in lacking}
        if not wanted or not _only_missing(search, gpu.node, wanted):
            continue
        verdict = search.try_change(Change(node=gpu.node, offers=wanted))
        if verdict.answer != "no":
            why = f" ({gpu.condition})" if gpu.condition else ""
            are = "is" if sum(wanted.values()) == 1 else "are"
            yield Way(
                kind="device",
                node=gpu.node,
                gpu=gpu.gpu,
                what=f"repair GPU {gpu.gpu} of {gpu.node}{why}: {_slices(wanted)} of it {are} unhealthy",
                asked="on-call",
                source="GPUs",
                unjudged=search.unjudged(verdict),
            )


def _cordons(search: Search) -> Iterator[Way]:
    found = 0
    for node in search.cordoned:
        if found >= MOST_FOUND:
            return
        verdict = search.try_change(Change(node=node, uncordoned=True))
        if verdict.answer != "no":
            found += 1
            unjudged = search.unjudged(verdict)
            yield Way(
                kind="device",
                node=node,
                what=f"uncordon {node}" if unjudged else f"uncordon {node}: the pod fits there",
                asked="who cordoned it",
                source="objects",
                unjudged=unjudged,
            )


def _only_missing(search: Search, node: str, supplied: Mapping[str, int]) -> bool:
    """Return whether nothing else is missing on a node; else there is nothing to try."""
    return all(count <= supplied.get(name, 0) for name, count in search.missing(node).items())


def _by_node(way: Way) -> tuple[object, ...]:
    return bool(way.unjudged), way.node, way.gpu
