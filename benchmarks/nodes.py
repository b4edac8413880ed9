"""The nodes that are measured, each made in code as a scenario of the fake node."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from exporter.demo.scenario import Scenario
from exporter.demo.scenario.catalog import parse

_Document = dict[str, Any]
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_PROFILE, _SLICES, _INSTANCE_MIB = "1g.10gb", 7, 9856
_BOARD: _Document = {
    "model": "NVIDIA H100 80GB HBM3",
    "architecture": 9,
    "memory_total": "81559 MiB",
    "memory_reserved": "551 MiB",
    "overhead": "300 MiB",
    "bar1_total": "128 GiB",
    "power_idle_mw": 71_000,
    "power_max_mw": 700_000,
    "temperature_base": 27,
    "memory_temperature": True,
    "clocks": {"sm_idle": 345, "sm_max": 1980, "memory": 2619, "video_max": 1545},
    "links": {"nvlinks": 18, "switch": True, "numa_node": 0, "cpus": "0-55"},
    "mig": {"enabled": False},
}
_GPUS_OFFERED: _Document = {"resource": "nvidia.com/gpu", "of": "gpus"}
_MPS_SERVER: _Document = {
    "command": "nvidia-cuda-mps-server",
    "memory": "30 MiB",
    "kind": "compute",
    "cgroup": "/system.slice/nvidia-mps.service",
}
_FREE_MIB = 80_000
_GPUS = 8


def _exclusive() -> Scenario:
    """Return a node whose GPUs are each held whole, by a pod of one process."""
    pods = [
        _pod(gpu, "nvidia.com/gpu", [f"{{gpu:{gpu}}}"], [_process(gpu, _FREE_MIB, 95)])
        for gpu in range(_GPUS)
    ]
    return _node("exclusive", [_BOARD] * _GPUS, _GPUS_OFFERED, pods)


def _mig() -> Scenario:
    """Return a node whose GPUs are each partitioned into seven MIG instances, all held and at work."""
    instances = [
        {
            "gi": 7 + place,
            "profile": _PROFILE,
            "memory_bytes": f"{_INSTANCE_MIB} MiB",
            "overhead": "15 MiB",
            "multiprocessors": 16,
            "start": place,
            "size": 1,
        }
        for place in range(_SLICES)
    ]
    board = _BOARD | {"mig": {"max_slices": _SLICES, "instances": instances}}
    places = [f"{{gpu:{gpu}/mig:{place}}}" for gpu in range(_GPUS) for place in range(_SLICES)]
    pods = [
        _pod(number, f"nvidia.com/mig-{_PROFILE}", [place], [_process(number, _INSTANCE_MIB, 95)])
        for number, place in enumerate(places)
    ]
    return _node("mig", [board] * _GPUS, {"resource": "nvidia.com/mig-{profile}", "of": "mig"}, pods)


def _shared(name: str, gpus: int, replicas: int, pods: int, kind: str = "compute") -> Scenario:
    """Return a node whose replicas the pods hold in turn; under MPS until none is left."""
    held: list[list[tuple[int, int]]] = [[] for _ in range(pods)]
    for number in range(gpus * replicas if kind == "mps" else min(pods, gpus * replicas)):
        # Neighbours in a list of pods are on different GPUs, as a scheduler would place them.
        held[number % pods].append((number % gpus, number // gpus))
    made = [
        _pod(
            number,
            "nvidia.com/gpu",
            [f"{{gpu:{gpu}}}::{place}" for gpu, place in places],
            [
                _process(number, _FREE_MIB // replicas, 100 // replicas + 5, kind)
                | {"device": f"{{gpu:{gpu}}}"}
                for gpu, _ in places
            ],
        )
        for number, places in enumerate(held)
    ]
    servers = [_MPS_SERVER | {"device": f"{{gpu:{gpu}}}"} for gpu in range(gpus)] if kind == "mps" else []
    return _node(name, [_BOARD] * gpus, _GPUS_OFFERED | {"replicas": replicas}, made, servers)


def _pod(number: int, resource: str, ids: list[str], processes: list[_Document]) -> _Document:
    # A replica set has a hash in its name, and each of its pods some letters of its own.
    name = f"inference-{_letters(number % 12 + 1, 9)}-{_letters(number + 1, 5)}"
    container = {"name": "server", "devices": {resource: ids}, "processes": processes}
    return {"namespace": f"team-{number % 12}", "name": name, "containers": [container]}


def _letters(number: int, count: int) -> str:
    """Return ``count`` letters that look random, and differ for each number."""
    # Odd factors keep numbers apart, in as many values as these letters can spell.
    value = number * 0x9E3779B1 % len(_LETTERS) ** count
    return "".join(_LETTERS[value // len(_LETTERS) ** place % len(_LETTERS)] for place in range(count))


def _process(number: int, room_mib: int, most: int, kind: str = "compute") -> _Document:
    """Return a process whose load and memory go up and down; neighbours do so out of step."""
    wave = {"shape": "sine", "period": 40 + number % 50}
    return {
        "command": "server",
        "kind": kind,
        "memory": wave | {"low": f"{room_mib // 2} MiB", "high": f"{room_mib - room_mib // 8} MiB"},
        "load": wave | {"low": 0, "high": min(most, 100), "noise": 1},
    }


def _node(
    name: str,
    gpus: list[_Document],
    offer: _Document,
    pods: list[_Document],
    host_processes: Sequence[_Document] = (),
) -> Scenario:
    node = {
        "name": f"bench-{name}",
        "driver_version": "570.124.06",
        "nvml_version": "12.570.124.06",
        "cuda_version": 12080,
    }
    document = {
        "name": name,
        "description": "A node that is measured",
        "node": node,
        "gpus": gpus,
        "offers": [offer],
        "pods": pods,
        "host_processes": host_processes,
    }
    return parse(json.dumps(document), name)


NODES: Mapping[str, tuple[str, Callable[[], Scenario]]] = {
    "exclusive": ("8 GPUs, each held whole", _exclusive),
    "mig": ("8 GPUs of 7 MIG instances, all held", _mig),
    "time-slices": ("16 GPUs of 10 time slices, all held", partial(_shared, "time-slices", 16, 10, 160)),
    "mps": ("8 GPUs of 48 MPS clients, all held, by 250 pods", partial(_shared, "mps", 8, 48, 250, "mps")),
}
"""Title and maker of each node, by the name that ``--only`` takes."""


def load(name: str) -> Scenario:
    """Return one of NODES; or for ``crowd-100`` one of 100 holders of 8 GPUs, or of a GPU each if fewer."""
    kind, _, number = name.partition("-")
    if kind != "crowd":
        return NODES[name][1]()
    holders = int(number)
    gpus = min(holders, _GPUS)
    return _shared("crowd", gpus, -(-holders // gpus), holders)
