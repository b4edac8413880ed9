"""The nodes that are measured, each made in code as a scenario of the fake node."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from exporter.demo.scenario.catalog import Scenario, parse

_Document = dict[str, Any]
# A replica set is called after a hash, and each of its pods has some letters of its own.
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
_FREE_MIB = 80_000


def exclusive(gpus: int = 8) -> Scenario:
    """Make a node whose GPUs are each held whole, by a pod of one process."""
    pods = [_pod(gpu, f"{{gpu:{gpu}}}", _process(gpu, _FREE_MIB, 95)) for gpu in range(gpus)]
    return _node("exclusive", [_BOARD] * gpus, _offer(), pods)


def mig(gpus: int = 8) -> Scenario:
    """Make a node whose GPUs are each cut into seven MIG instances, all held and at work."""
    cuts = [
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
    board = _BOARD | {"mig": {"max_slices": _SLICES, "instances": cuts}}
    places = [(gpu, place) for gpu in range(gpus) for place in range(_SLICES)]
    pods = [
        _pod(number, f"{{gpu:{gpu}/mig:{place}}}", _process(number, _INSTANCE_MIB, 95), f"mig-{_PROFILE}")
        for number, (gpu, place) in enumerate(places)
    ]
    offer = {"resource": "nvidia.com/mig-{profile}", "of": "mig"}
    return _node("mig", [board] * gpus, offer, pods)


def time_slices(gpus: int = 16, replicas: int = 10) -> Scenario:
    """Make a node whose GPUs are each offered so many times, every replica held by a pod of one process."""
    return _shared("time-slices", gpus, replicas, gpus * replicas, "compute")


def mps(gpus: int = 8, clients: int = 48, pods: int = 250) -> Scenario:
    """Make a node of so many pods whose GPUs are each offered through MPS to so many clients.

    Pods have one client in turn until as many clients run as there may be: some pods have several.
    """
    return _shared("mps", gpus, clients, pods, "mps")


def crowd(holders: int) -> Scenario:
    """Make a node of so many holders, spread over eight GPUs, or less where there are fewer of them."""
    gpus = min(holders, 8)
    return _shared("crowd", gpus, -(-holders // gpus), holders, "compute")


NODES: Mapping[str, tuple[str, Callable[[], Scenario]]] = {
    "exclusive": ("8 GPUs, each held whole", exclusive),
    "mig": ("8 GPUs of 7 MIG instances, all held", mig),
    "time-slices": ("16 GPUs of 10 time slices, all held", time_slices),
    "mps": ("8 GPUs of 48 MPS clients, all held, by 250 pods", mps),
}
"""By the name that ``--only`` takes: what it is, and how it is made."""


def load(name: str) -> Scenario:
    """Make one of these, or by ``crowd-100`` a node of so many holders."""
    kind, _, holders = name.partition("-")
    return crowd(int(holders)) if kind == "crowd" else NODES[name][1]()


def _shared(name: str, gpus: int, replicas: int, pods: int, kind: str) -> Scenario:
    """Hand out all replicas in turn; pods beyond their number hold none of them."""
    clients: list[list[tuple[int, int]]] = [[] for _ in range(pods)]
    for number in range(gpus * replicas if kind == "mps" else min(pods, gpus * replicas)):
        # Neighbours in a list of pods are on different GPUs, as a scheduler would place them.
        clients[number % pods].append((number % gpus, number // gpus))
    made = [_sharing_pod(number, held, replicas, kind) for number, held in enumerate(clients)]
    host = [_server(gpu) for gpu in range(gpus)] if kind == "mps" else []
    offer = _offer() | {"replicas": replicas}
    return _node(name, [_BOARD] * gpus, offer, made, host)


def _sharing_pod(number: int, held: list[tuple[int, int]], replicas: int, kind: str) -> _Document:
    processes = [
        _process(number, _FREE_MIB // replicas, 100 // replicas + 5, kind) | {"device": f"{{gpu:{gpu}}}"}
        for gpu, _ in held
    ]
    ids = [f"{{gpu:{gpu}}}::{place}" for gpu, place in held]
    return _named(number, {"devices": {"nvidia.com/gpu": ids}, "processes": processes})


def _server(gpu: int) -> _Document:
    return {
        "command": "nvidia-cuda-mps-server",
        "device": f"{{gpu:{gpu}}}",
        "memory": "30 MiB",
        "kind": "compute",
        "cgroup": "/system.slice/nvidia-mps.service",
    }


def _offer() -> _Document:
    return {"resource": "nvidia.com/gpu", "of": "gpus"}


def _pod(number: int, device: str, process: _Document, resource: str = "gpu") -> _Document:
    return _named(number, {"devices": {f"nvidia.com/{resource}": [device]}, "processes": [process]})


def _named(number: int, container: _Document) -> _Document:
    return {
        "namespace": f"team-{number % 12}",
        "name": f"inference-{_letters(number % 12 + 1, 9)}-{_letters(number + 1, 5)}",
        "containers": [{"name": "server"} | container],
    }


def _letters(number: int, count: int) -> str:
    """Spell a number as so many letters that look random, and are another word for each number."""
    # Odd factors keep numbers apart, in as many values as these letters can spell.
    value = number * 0x9E3779B1 % len(_LETTERS) ** count
    return "".join(_LETTERS[value // len(_LETTERS) ** place % len(_LETTERS)] for place in range(count))


def _process(number: int, room_mib: int, most: int, kind: str = "compute") -> _Document:
    """Make a process whose load and memory go up and down; neighbours do so out of step."""
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
    pods: Iterator[_Document] | list[_Document],
    host: list[_Document] | None = None,
) -> Scenario:
    document = {
        "name": name,
        "description": "A node that is measured",
        "node": {
            "name": f"bench-{name}",
            "driver_version": "570.124.06",
            "nvml_version": "12.570.124.06",
            "cuda_version": 12080,
        },
        "gpus": gpus,
        "offers": [offer],
        "pods": list(pods),
        "host_processes": host or [],
    }
    return parse(json.dumps(document), name)
