"""MIG devices as run:ai names them: in an annotation of the pod, and in one of the node.

A pod's ``runai-mig-device`` is JSON with the name of the resource, the index of the GPU, the position in it
and the UUID, which releases before 2.9 called ``instanceid``. The node's ``run.ai/mig-mapping``, JSON in
base64, gives the UUIDs by GPU and position: ``{"0":{"4":"MIG-..."}}`` before 2.9, and since then
``{"0":[{"position":4,"device_uuid":"MIG-..."}]}``.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from exporter.sharing.system import words_of

LONGEST = 1 << 16
WORDS = words_of("name position deviceUUID device uuid instanceid gpuinstanceid gpuindex") | words_of(
    "gpuamount gputype nvidia com mig MIG"
)
_RESOURCE = re.compile(r"nvidia\.com/mig-[a-z0-9.+-]{1,60}")
_NUMBER = re.compile(r"[0-9]{1,4}")
_UUID = re.compile(r"MIG-[0-9A-Za-z/-]{1,80}")

Place = tuple[int, int]
"""The index of a GPU, and where in it."""


class MigDevice(NamedTuple):
    """The MIG device of a pod; ``uuid`` is "" where only its place is told, None where that is not."""

    resource: str
    uuid: str
    place: Place | None


def is_mig(resource: str) -> bool:
    """Whether a resource's name is that of MIG devices."""
    return _RESOURCE.fullmatch(resource) is not None


def mig_device(text: str) -> MigDevice:
    """Read a pod's annotation; raise ValueError with what is wrong with it."""
    told = _object(text, "the MIG device")
    resource, uuid = told.get("name"), told.get("deviceUUID", told.get("instanceid", ""))
    if not isinstance(resource, str) or not is_mig(resource):
        raise ValueError(f"name is no resource of MIG devices: {str(resource)[:100]!r}")
    if not isinstance(uuid, str) or (uuid and not _UUID.fullmatch(uuid)):
        raise ValueError(f"no UUID of a MIG device: {str(uuid)[:100]!r}")
    gpu, position = _number(told.get("gpuindex")), _number(told.get("position"))
    place = (gpu, position) if gpu is not None and position is not None else None
    if not uuid and place is None:
        raise ValueError("neither a UUID nor a place is told")
    return MigDevice(resource, uuid, place)


def mig_mapping(text: str) -> dict[Place, str]:
    """Read a node's annotation: UUIDs by place; raise ValueError with what is wrong with it."""
    decoded = base64.b64decode(text.encode(), validate=True) if len(text) <= LONGEST else b""
    return dict(_mapped(_object(decoded.decode(), "the mapping")))


def _mapped(told: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    for index, devices in told.items():
        gpu = _number(index)
        for position, uuid in _listed(devices):
            place = _number(position)
            if gpu is None or place is None or not isinstance(uuid, str) or not _UUID.fullmatch(uuid):
                raise ValueError(f"GPU {index[:20]!r} has {str(uuid)[:100]!r} at {str(position)[:20]!r}")
            yield (gpu, place), uuid


def _listed(devices: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(devices, dict):
        yield from devices.items()
    elif isinstance(devices, list) and all(isinstance(each, dict) for each in devices):
        yield from ((each.get("position"), each.get("device_uuid")) for each in devices)
    else:
        raise ValueError(f"neither a list nor an object of MIG devices: {str(devices)[:100]!r}")


def _object(text: str, what: str) -> dict[str, Any]:
    try:
        told = json.loads(text) if len(text) <= LONGEST else None
    except RecursionError as error:
        raise ValueError(f"{what} is nested too deep") from error
    if not isinstance(told, dict):
        raise ValueError(f"{what} is no JSON object of a usual size")  # noqa: TRY004 - one kind of error
    return told


def _number(value: Any) -> int | None:
    """Read an index that is a number or, in some releases, its digits."""
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return int(value)
    return value if type(value) is int and 0 <= value < 10000 else None
