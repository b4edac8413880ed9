"""The annotations in which HAMi, its ancestor and Volcano write what a pod was given and what a node has."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from exporter.model import ContainerSpec, NodeObject
from exporter.sharing.base.reading import parsed

# Kubernetes refuses pods with more than this in all their annotations.
LONGEST = 256 * 1024
MOST_OF_POD = (1 << 31) - 1
DEVICE = re.compile(
    r"(?P<uuid>[^,\[\]]*)(?:\[(?P<template>[^\[\]]*)\])?,(?P<type>[^,]*),(?P<memory>[0-9]{1,10}),(?P<cores>[0-9]{1,10})(?:,.*)?",
    re.DOTALL,
)
PLACEHOLDER = ",,0,0"


class HamiDevice(NamedTuple):
    """A part of a device: ``memory`` is in MiB, ``cores`` in percent; 0 is no limit.

    ``template`` is what stands in brackets behind the UUID, "" where nothing does.
    """

    uuid: str
    type: str
    memory: int
    cores: int
    template: str = ""


class MigAllocation(NamedTuple):
    """A MIG device that the scheduler chose for a container, and what the plugin then made of it.

    ``container`` is the segment of the other annotation: a release that leaves out containers there leaves
    them out here, too. ``mig_uuid`` is "", and ``gi`` and ``ci`` are None, until the device is made.
    """

    container: int
    device: int
    gpu: str
    profile: str
    mig_uuid: str = ""
    gi: int | None = None
    ci: int | None = None


Segments = tuple[tuple[HamiDevice, ...], ...]


def parse_allocation(text: str, *, lenient: bool = False) -> Segments:
    """Return the devices of each segment; raise ValueError with what is wrong with the first bad one.

    ``lenient``, as Volcano reads: a bad device is left out, and costs nothing else.
    """
    if len(text) > LONGEST:
        raise ValueError(f"{len(text)} characters are more than an annotation can have")
    pieces = text.removesuffix(";").split(";")
    return tuple(tuple(_devices(piece, lenient)) for piece in pieces)


def places_of(
    segments: Segments, containers: Sequence[ContainerSpec], asks: Callable[[ContainerSpec], bool]
) -> dict[str, int]:
    """Return which segment is that of each container that has devices; ``containers`` stand init first.

    Where as many containers ask as segments are not empty, they stand in the same order, whichever segments
    of others a release writes or leaves out. HAMi 2.10.0 has on most nodes of NVIDIA's none of those that ask
    for nothing, and what is left can be as many as there are containers. Where who asks does not explain it,
    as many segments as containers (with init or without) stand in the order of these, unless that would
    give devices to who does not ask, and none to who does. Some releases do not count init containers. Where
    nothing explains it, it is not known whose a segment is.
    """
    given = [place for place, devices in enumerate(segments) if devices]
    all_asking = [container.name for container in containers if asks(container)]
    if len(all_asking) == len(given):
        return dict(zip(all_asking, given, strict=True))
    main = [container for container in containers if not container.init]
    for meant in (containers, main):
        if len(meant) == len(segments):
            aligned = {meant[place].name: place for place in given}
            asking = {container.name for container in meant if asks(container)}
            if aligned.keys() <= asking or asking <= aligned.keys():
                return aligned
    main_asking = [container.name for container in main if asks(container)]
    return dict(zip(main_asking, given, strict=True)) if len(main_asking) == len(given) else {}


def limited(container: ContainerSpec) -> list[str]:
    """Return the resources that a container asks for; who sets a limit of 0 is given nothing."""
    return [resource for resource, amount in container.limits.items() if amount]


def parse_mig_allocations(text: str) -> tuple[MigAllocation, ...]:
    """Return the MIG devices of a pod; raise ValueError with what is wrong."""
    allocations = tuple(map(_mig_allocation, parsed(text, list, LONGEST)))
    if len({(allocation.container, allocation.device) for allocation in allocations}) < len(allocations):
        raise ValueError("two allocations have the same place")
    return allocations


def _devices(piece: str, lenient: bool) -> Iterator[HamiDevice]:
    for text in piece.split(":"):
        if not text or text == PLACEHOLDER:
            continue
        match = DEVICE.fullmatch(text)
        if (
            match is not None
            and match["uuid"]
            and max(int(match["memory"]), int(match["cores"])) <= MOST_OF_POD
        ):
            memory, cores = int(match["memory"]), int(match["cores"])
            yield HamiDevice(match["uuid"], match["type"], memory, cores, match["template"] or "")
        elif not lenient:
            raise ValueError(f"{text[:100]!r} is not UUID,type,MiB,percent")


def _mig_allocation(item: Any) -> MigAllocation:
    if not isinstance(item, dict):
        raise ValueError(f"{str(item)[:100]!r} is not an allocation")  # noqa: TRY004 - as above
    place = _number(item, "containerIndex"), _number(item, "deviceIndex")
    gi, ci = _number(item, "gpuInstanceID"), _number(item, "computeInstanceID")
    mig_fields = (_text(item, "migUUID") or None, gi, ci)
    gpu, profile = _text(item, "gpuUUID"), _text(item, "profile")
    if None in place or not gpu or not profile:
        raise ValueError(f"an allocation of {gpu or 'no GPU'} is incomplete")
    if len({part is None for part in mig_fields}) > 1:
        raise ValueError(f"an allocation of {gpu} names its MIG device only in part")
    return MigAllocation(place[0] or 0, place[1] or 0, gpu, profile, mig_fields[0] or "", gi, ci)


def _number(item: dict[str, Any], name: str) -> int | None:
    value = item.get(name)
    if value is not None and not (type(value) is int and 0 <= value <= MOST_OF_POD):
        raise ValueError(f"{name} is not a number: {str(value)[:40]!r}")
    return value


def _text(item: dict[str, Any], name: str) -> str:
    value = item.get(name, "")
    if not isinstance(value, str):
        raise ValueError(f"{name} is not a text: {str(value)[:40]!r}")  # noqa: TRY004 - as above
    return value


LONGEST_OF_NODE = 256 * 1024
MOST_DEVICES = 1024
MOST_OF_NODE = 1 << 20
NUMBER = re.compile(r"[0-9]{1,6}")


class Registered(NamedTuple):
    """A device as its plugin registered it; ``cores`` is None where it does not tell how many it has.

    ``address`` is its PCI address, "" where the plugin does not tell it, ``slices`` into how many it is
    given out. Memory is not read: it may be scaled.
    """

    number: int | None
    cores: int | None
    address: str = ""
    slices: int | None = None


def registered(node: NodeObject | None, key: re.Pattern[str]) -> dict[str, Registered]:
    """Return the devices of the annotations that ``key`` matches, by id; what cannot be read has none.

    A list is JSON, or in the form of older plugins: ``id,count,MiB,cores,type,node,health`` and more, each
    ended by a colon.
    """
    devices: dict[str, Registered] = {}
    for name, text in sorted(node.annotations.items()) if node is not None else ():
        if key.fullmatch(name):
            devices |= _of_json(text) if text.startswith("[") else _of_text(text)
    return devices


def _of_json(text: str) -> dict[str, Registered]:
    try:
        items = parsed(text, list, LONGEST_OF_NODE)[:MOST_DEVICES]
    except ValueError:
        return {}
    return {item["id"]: _device(item) for item in items if _is_device(item)}


def _of_text(text: str) -> dict[str, Registered]:
    """Read the older form; a device that does not tell its index is the one of its place."""
    records = [record.split(",") for record in text[:LONGEST_OF_NODE].split(":")[:MOST_DEVICES]]
    return {
        record[0]: Registered(
            number=_number_at(record[7:8], place),
            cores=_number_at(record[3:4], 0) or None,
            slices=_number_at(record[1:2], 0) or None,
        )
        for place, record in enumerate(records)
        if len(record) in {7, 8, 9}
    }


def _number_at(texts: list[str], other: int) -> int:
    return int(texts[0]) if texts and NUMBER.fullmatch(texts[0]) else other


def _is_device(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("id"), str)


def _device(item: dict[str, Any]) -> Registered:
    """Go leaves out an index of 0."""
    index, more = item.get("index", 0), item.get("custominfo")
    address = more.get("pciBDF") if isinstance(more, dict) else None
    return Registered(
        number=index if type(index) is int and 0 <= index <= MOST_OF_NODE else None,
        cores=_positive(item.get("devcore")),
        address=address if isinstance(address, str) else "",
        slices=_positive(item.get("count")),
    )


def _positive(value: Any) -> int | None:
    return value if type(value) is int and 0 < value <= MOST_OF_NODE else None
