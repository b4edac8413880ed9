"""Devices and allocations for the tests of sharing, next to those of the join."""

from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from exporter.model import (
    Allocation,
    Allocations,
    ContainerRef,
    ContainerSpec,
    DeviceKey,
    GpuIdentity,
    GpuReading,
    Holding,
    Holdings,
    OfferedDevice,
    PodDetails,
    PodIdentity,
)
from exporter.sharing import resolve_holdings
from exporter.sharing.base import Roots
from exporter.sharing.base.view import NodeFacts
from tests.core.attribution.build import gpu

OTHER_UUID = "GPU-00000000-0000-0000-0000-0000000000ff"


def numbered(index, minor, uuid=OTHER_UUID, **more) -> GpuReading:
    """Return a whole GPU with an index of NVML and a minor of its own."""
    return gpu(identity=GpuIdentity(uuid=uuid, index=index, minor=minor, model="T4"), uuid=uuid, **more)


def allocations(
    allocated: list[Allocation] = (), offered: list[OfferedDevice] | None = (), version="v1"
) -> Allocations:
    """Return one answer of the kubelet."""
    return Allocations(
        allocated=tuple(sorted(allocated)),
        offered=None if offered is None else tuple(sorted(offered)),
        api_version=version,
        read_at=0.0,
    )


def resolve(gpus, allocated=(), offered=(), objections=None, claims=(), **facts) -> Holdings:
    """Return the holdings of one node; ``facts`` are those of NodeFacts."""
    gpus = gpus if isinstance(gpus, list) else [gpus]
    found = replace(allocations(allocated, offered), claims=tuple(claims))
    return resolve_holdings(gpus, found, NodeFacts(**facts), objections)


def pod(
    name,
    annotations=None,
    *,
    labels=None,
    containers=("main",),
    init=(),
    limits=None,
    phase="Running",
    **more,
):
    """Return a pod of namespace ml with its object; ``limits`` by container. Its uid is ``uid-<name>``."""
    limits = limits or {}
    specs = [ContainerSpec(name=each, init=True, limits=limits.get(each, {})) for each in init]
    specs += [ContainerSpec(name=file, limits=limits.get(file, {})) for file in containers]
    details = PodDetails(
        labels=labels or {}, annotations=annotations or {}, containers=tuple(specs), phase=phase
    )
    values = {
        "uid": f"uid-{name}",
        "namespace": "ml",
        "name": name,
        "containers": (*init, *containers),
        "details": details,
    }
    return PodIdentity(**(values | more))


def pods(*found) -> dict[str, PodIdentity]:
    """Return pods by uid, as facts have them."""
    return {each.uid: each for each in found}


def where(holdings: Holdings) -> dict[str, list[DeviceKey]]:
    """Return the devices of each pod's holdings."""
    by_pod: dict[str, list[DeviceKey]] = {}
    for holding in holdings.holdings:
        by_pod.setdefault(holding.holder.pod, []).append(holding.device)
    return by_pod


def rows(holdings: Holdings, *names: str) -> list[Any]:
    """Return these attributes of each holding: the value of one, a tuple of several."""
    return [attrgetter(*names)(holding) for holding in holdings.holdings]


def by(holdings: Holdings, key: str, *names: str) -> dict[Any, Any]:
    """Return these attributes of each holding by another one."""
    return dict(zip(rows(holdings, key), rows(holdings, *names), strict=True))


def only(holdings: Holdings) -> Holding:
    """Return the one holding that there is."""
    assert len(holdings.holdings) == 1, holdings
    return holdings.holdings[0]


def container(pod, name="main") -> ContainerRef:
    """Return a container of a pod."""
    return ContainerRef("ml", pod, name)


def roots_at(**places) -> Roots:
    """Return where files of other programs are; those that are not named are nowhere."""
    return Roots(**(dict.fromkeys(Roots.__dataclass_fields__, Path("/nonexistent")) | places))
