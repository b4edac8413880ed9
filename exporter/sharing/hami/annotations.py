"""Parsers of the annotations of HAMi, 4paradigm's scheduler and Volcano: devices of pods and of nodes.

A pod's annotation has segments of containers, ended by ``;``, with devices ``UUID,type,MiB,percent`` ended by
``:``. ``parse_allocation`` parses it, ``segment_by_container`` assigns segments to containers. Not parsed
here: the templates of Ascend, annotations of one word, and the node's annotation of Volcano.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from exporter.model import ContainerSpec, NodeObject
from exporter.sharing.base.reading import parsed

# Kubernetes rejects objects with larger annotations.
LONGEST = 256 * 1024
MOST_OF_POD = (1 << 31) - 1
# A template may follow the UUID in brackets.
DEVICE = re.compile(
    r"(?P<uuid>[^,\[\]]*)(?:\[[^\[\]]*\])?,(?P<type>[^,]*),(?P<memory>[0-9]{1,10}),(?P<cores>[0-9]{1,10})(?:,.*)?",
    re.DOTALL,
)
PLACEHOLDER = ",,0,0"
MOST_DEVICES = 1024
MOST_OF_NODE = 1 << 20
NUMBER = re.compile(r"[0-9]{1,6}")


class HamiDevice(NamedTuple):
    """A share of a device in a pod's annotation."""

    uuid: str
    type: str
    memory: int  # MiB; 0 is no limit
    cores: int  # percent; 0 is no limit


class MigAllocation(NamedTuple):
    """A MIG device that the scheduler chose for a container, and that the plugin created."""

    container: int  # segment in the pod's annotation, in which some releases leave out containers
    device: int
    gpu: str
    mig_uuid: str = ""  # "" until the device is created
    gi: int | None = None  # None until the device is created
    ci: int | None = None


Segments = tuple[tuple[HamiDevice, ...], ...]


def parse_allocation(text: str, *, lenient: bool = False) -> Segments:
    """Return the devices of each segment; raises ValueError for the first malformed device.

    ``lenient`` skips malformed devices, as Volcano does.
    """
    if len(text) > LONGEST:
        raise ValueError(f"{len(text)} characters are more than an annotation can have")
    pieces = text.removesuffix(";").split(";")
    return tuple(tuple(_devices(piece, lenient)) for piece in pieces)


def segment_by_container(
    segments: Segments, containers: Sequence[ContainerSpec], asks: Callable[[ContainerSpec], bool]
) -> dict[str, int]:
    """Return the segment of each container with devices, by name; ``containers`` have init containers first.

    Releases differ in the segments that they write. These rules are tried in order:

    1. As many containers request devices as segments are not empty: both are in the same order. HAMi 2.10.0
    on most NVIDIA nodes writes no segment for containers without a request. 2. There are as many segments as
    containers, with or without init containers: both are in the same order, unless a container without a
    request would get devices while one with a request gets none. 3. As rule 1, without init containers.

    Otherwise the containers of the segments are unknown: {}.
    """
    given = [number for number, devices in enumerate(segments) if devices]
    all_asking = [container.name for container in containers if asks(container)]
    if len(all_asking) == len(given):
        return dict(zip(all_asking, given, strict=True))
    main = [container for container in containers if not container.init]
    for meant in (containers, main):
        if len(meant) == len(segments):
            aligned = {meant[number].name: number for number in given}
            asking = {container.name for container in meant if asks(container)}
            if aligned.keys() <= asking or asking <= aligned.keys():
                return aligned
    main_asking = [container.name for container in main if asks(container)]
    return dict(zip(main_asking, given, strict=True)) if len(main_asking) == len(given) else {}


def limited(container: ContainerSpec) -> list[str]:
    """Return the resources that a container requests: those with a limit above 0."""
    return [resource for resource, amount in container.limits.items() if amount]


def parse_mig_allocations(text: str) -> tuple[MigAllocation, ...]:
    """Return the MIG devices of a pod; raises ValueError."""
    allocations = tuple(map(_mig_allocation, parsed(text, list, LONGEST)))
    if len({(allocation.container, allocation.device) for allocation in allocations}) < len(allocations):
        raise ValueError("two allocations have the same place")
    return allocations


def _devices(piece: str, lenient: bool) -> Iterator[HamiDevice]:
    for text in piece.split(":"):
        if not text or text == PLACEHOLDER:
            continue
        match = DEVICE.fullmatch(text)
        memory, cores = (int(match["memory"]), int(match["cores"])) if match is not None else (0, 0)
        if match is not None and match["uuid"] and max(memory, cores) <= MOST_OF_POD:
            yield HamiDevice(match["uuid"], match["type"], memory, cores)
        elif not lenient:
            raise ValueError(f"{text[:100]!r} is not UUID,type,MiB,percent")


def _mig_allocation(item: Any) -> MigAllocation:
    if not isinstance(item, dict):
        raise ValueError(f"{str(item)[:100]!r} is not an allocation")  # noqa: TRY004 - as above
    container, device = _number(item, "containerIndex"), _number(item, "deviceIndex")
    gi, ci = _number(item, "gpuInstanceID"), _number(item, "computeInstanceID")
    mig_fields = (_text(item, "migUUID") or None, gi, ci)
    gpu = _text(item, "gpuUUID")
    if container is None or device is None or not gpu or not _text(item, "profile"):
        raise ValueError(f"an allocation of {gpu or 'no GPU'} is incomplete")
    if len({part is None for part in mig_fields}) > 1:
        raise ValueError(f"an allocation of {gpu} names its MIG device only in part")
    return MigAllocation(container, device, gpu, mig_fields[0] or "", gi, ci)


def _number(item: dict[str, Any], name: str) -> int | None:
    value = item.get(name)
    if value is not None and not (type(value) is int and 0 <= value <= MOST_OF_POD):
        raise ValueError(f"{name} is not a number: {str(value)[:40]!r}")
    return value


def _text(item: dict[str, Any], name: str) -> str:
    value = item.get(name, "")
    if not isinstance(value, str):
        raise ValueError(f"{name} is not a string: {str(value)[:40]!r}")  # noqa: TRY004 - as above
    return value


def cordoned(text: str) -> frozenset[str]:
    """Return the UUIDs in a node's annotation ``hami.io/device-cordon``: separated by commas, with spaces.

    Source: cordonedDevices of pkg/device/nvidia/device.go, https://github.com/Project-HAMi/HAMi/pull/2298.
    """
    return frozenset(filter(None, map(str.strip, text[:LONGEST].split(","))))


class Registered(NamedTuple):
    """A device in the node's annotation. Its memory is not read, because it may be scaled."""

    number: int | None  # index
    cores: int | None
    address: str = ""  # PCI address
    slices: int | None = None  # maximum number of shares


def registered(node: NodeObject | None, key: re.Pattern[str]) -> dict[str, Registered]:
    """Return the devices by id in a node's annotations that ``key`` matches; malformed ones are skipped.

    An annotation is JSON, or in the form of older plugins, ``id,count,MiB,cores,type,node,health`` and more,
    ended by ``:``.
    """
    devices: dict[str, Registered] = {}
    for name, text in sorted(node.annotations.items()) if node is not None else ():
        if key.fullmatch(name):
            devices |= _of_json(text) if text.startswith("[") else _of_text(text)
    return devices


def _of_json(text: str) -> dict[str, Registered]:
    try:
        items = parsed(text, list, LONGEST)[:MOST_DEVICES]
    except ValueError:
        return {}
    return {
        item["id"]: _device(item)
        for item in items
        if isinstance(item, dict) and isinstance(item.get("id"), str)
    }


def _of_text(text: str) -> dict[str, Registered]:
    """Return the devices in the older form; without an index, a device's position counts."""
    records = [record.split(",") for record in text[:LONGEST].split(":")[:MOST_DEVICES]]
    return {
        record[0]: Registered(
            number=_number_at(record[7:8], position),
            cores=_number_at(record[3:4], 0) or None,
            slices=_number_at(record[1:2], 0) or None,
        )
        for position, record in enumerate(records)
        if len(record) in {7, 8, 9}
    }


def _number_at(texts: list[str], other: int) -> int:
    return int(texts[0]) if texts and NUMBER.fullmatch(texts[0]) else other


def _device(item: dict[str, Any]) -> Registered:
    # Go omits an index of 0.
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
