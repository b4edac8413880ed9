"""The node of the soak: seven GPUs, each shared in another way, and the pods that take turns on them.

This is the beginning: ``tests.together.soak.day`` has the pods of each poll.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, TypeAlias

from exporter.demo.scenario import Scenario
from exporter.demo.scenario.catalog import parse
from exporter.demo.scenario.derive import complete_instances, make_uuid
from exporter.demo.scenario.gpus import MIB, MigInstance

NODE = "soak-1"
CUT, SLICED, HAMI, CGPU, WHOLE, VOLCANO, FRAIL = range(7)
"""The GPUs by index; ``FRAIL`` is the one that is lost and unplugged now and then."""
SHARED = 8
_GROUP = "4d1f5c0e-8a7b-4b3e-9c57-0f9a1d2e3b44"
_BOARD = {
    "model": "NVIDIA A100-SXM4-80GB",
    "architecture": 7,
    "memory_total": "81920 MiB",
    "memory_reserved": "585 MiB",
    "overhead": "300 MiB",
    "power_idle_mw": 58_000,
    "power_max_mw": 400_000,
    "temperature_base": 30,
    "clocks": {"sm_idle": 210, "sm_max": 1410, "memory": 1593, "video_max": 1290},
}
# Profile, GPU instance, where it begins and how large it is in slices of memory, MiB, multiprocessors.
_Cut: TypeAlias = tuple[str, int, int, int, int, int]
_LAYOUTS: tuple[tuple[_Cut, ...], ...] = (
    (("1g.10gb", 7, 0, 1, 9728, 14), ("2g.20gb", 4, 2, 2, 19968, 28), ("3g.40gb", 2, 4, 4, 40192, 42)),
    (("3g.40gb", 1, 0, 4, 40192, 42), ("2g.20gb", 5, 4, 2, 19968, 28), ("1g.10gb", 9, 6, 1, 9728, 14)),
)
CUTS = len(_LAYOUTS[0])


@cache
def beginning() -> Scenario:
    """Return the node as it is before the first poll, with one pod of each kind that takes turns."""
    cut = {"mig": {"instances": list(map(_instance, _LAYOUTS[0]))}}
    plain = {"mig": {"enabled": False}}
    document = {
        "name": NODE,
        "node": {
            "name": NODE,
            "driver_version": "550.90.07",
            "nvml_version": "12.550.90.07",
            "cuda_version": 12040,
        },
        "gpus": [_BOARD | (cut if index == CUT else plain) for index in range(FRAIL + 1)],
        "offers": [
            {"resource": "nvidia.com/mig-{profile}", "of": "mig"},
            {"resource": "nvidia.com/gpu.shared", "of": "gpus", "gpus": [SLICED, FRAIL], "replicas": SHARED},
            {"resource": "nvidia.com/vgpu", "ids": [f"{{gpu:{HAMI}}}-{{0..9}}"]},
            {"resource": "aliyun.com/gpu-mem", "ids": [f"{{gpu:{CGPU}}}-_-{{0..79}}"]},
            {"resource": "volcano.sh/vgpu-number", "ids": [f"{{gpu:{VOLCANO}}}-{{0..9}}"]},
            {"resource": "nvidia.com/gpu", "of": "gpus", "gpus": [WHOLE]},
        ],
        "pods": list(_pods()),
        "files": {
            "proc/cgpu_km/version": "0.8.8\n",
            "proc/cgpu_km/major": "240\n",
            "proc/cgpu_km/default_memsize": "0\n",
            f"proc/cgpu_km/{CGPU}/policy": "0\n",
            f"proc/cgpu_km/{CGPU}/max_inst": "4\n",
            f"proc/cgpu_km/{CGPU}/free_weight": "2\n",
        },
    }
    return parse(json.dumps(document), "soak")


def layout(number: int) -> tuple[MigInstance, ...]:
    """Cut the first GPU for the ``number``-th time; no MIG device has the uuid of one before."""
    uuid = beginning().gpus[CUT].uuid
    cuts = tuple(
        MigInstance(
            gi=gi,
            profile=profile,
            start=start,
            size=size,
            memory_bytes=memory * MIB,
            overhead=25 * MIB,
            multiprocessors=processors,
        )
        for profile, gi, start, size, memory, processors in _LAYOUTS[number % len(_LAYOUTS)]
    )
    named = (replace(cut, uuid=f"MIG-{make_uuid(NODE, number, cut.gi)}") for cut in cuts)
    return complete_instances(uuid, tuple(named), "soak")


def _instance(cut: _Cut) -> dict[str, Any]:
    profile, gi, start, size, memory, processors = cut
    return {
        "gi": gi,
        "profile": profile,
        "start": start,
        "size": size,
        "memory_bytes": f"{memory} MiB",
        "overhead": "25 MiB",
        "multiprocessors": processors,
    }


def _pods() -> Iterator[dict[str, Any]]:
    """Yield those that stay all day first (``keep``), then one pod for each place that changes hands."""
    whole, reserved = f"{{gpu:{WHOLE}}}", {"app": "kai-resource-reservation", "runai-gpu-group": _GROUP}
    holder = {"name": "resource-reservation", "devices": {"nvidia.com/gpu": [whole]}, "shares": []}
    yield {
        "namespace": "kai-resource-reservation",
        "name": "keep-reservation",
        "labels": reserved,
        "annotations": {"run.ai/reserve_for_gpu_index": whole},
        "containers": [holder],
    }
    yield _pod("keep-sliced", {"nvidia.com/gpu.shared": [f"{{gpu:{SLICED}}}::7"]}, SLICED)
    yield _hami("keep-hami", 9)
    for number in range(SHARED - 1):
        for gpu in (SLICED, FRAIL):
            yield _pod(f"sliced-{gpu}-{number}", {"nvidia.com/gpu.shared": [f"{{gpu:{gpu}}}::{number}"]}, gpu)
    for number in range(2):
        yield _hami(f"hami-{number}", number)
        yield _cgpu(f"cgpu-{number}", range(20 * number, 20 * number + 20))
        yield _volcano(f"volcano-{number}", number)
        yield _kai(f"kai-{number}")
    for number in range(CUTS):
        device = f"{{gpu:{CUT}/mig:{number}}}"
        yield _pod(
            f"cut-{number}", {f"nvidia.com/mig-{_LAYOUTS[0][number][0]}": [device]}, None, device=device
        )


def _pod(
    name: str,
    devices: dict[str, Sequence[str]],
    gpu: int | None,
    *,
    device: str = "",
    **container: Any,
) -> dict[str, Any]:
    """Return a pod of one container; with a device it has a process there."""
    place = device or ("" if gpu is None else f"{{gpu:{gpu}}}")
    load = {"shape": "sine", "low": 1, "high": 9, "period": 70}
    process = {"command": "worker", "device": place, "memory": "2100 MiB", "load": load}
    main = {"name": "main", "devices": devices, "processes": [process] if place else []}
    return {"namespace": "churn", "name": name, "containers": [main | container]}


def _hami(name: str, number: int) -> dict[str, Any]:
    gpu = f"{{gpu:{HAMI}}}"
    pod = _pod(
        name,
        {"nvidia.com/vgpu": [f"{gpu}-{number}"]},
        HAMI,
        limits={"nvidia.com/vgpu": 1, "nvidia.com/gpumem": 8000, "nvidia.com/gpucores": 30},
        shares=[{"device": gpu, "memory": "8000 MiB", "cores": 30}],
        meter={"kind": "hami", "layout": "1.2"},
    )
    return pod | {
        "annotations": {
            "hami.io/vgpu-devices-allocated": f"{gpu},NVIDIA,8000,30:;",
            "hami.io/vgpu-devices-to-allocate": ";",
            "hami.io/vgpu-node": NODE,
            "hami.io/bind-phase": "success",
        }
    }


def _cgpu(name: str, units: range) -> dict[str, Any]:
    gpu = f"{{gpu:{CGPU}}}"
    pod = _pod(
        name,
        {"aliyun.com/gpu-mem": [f"{gpu}-_-{unit}" for unit in units]},
        CGPU,
        shares=[{"device": gpu, "slices": len(units), "memory": "20480 MiB"}],
        meter={"kind": "cgpu"},
    )
    return pod | {
        "annotations": {
            "scheduler.framework.gpushare.allocation": json.dumps({"0": {str(CGPU): len(units)}}),
            "scheduler.framework.gpushare.assigned": "true",
        }
    }


def _volcano(name: str, number: int) -> dict[str, Any]:
    gpu = f"{{gpu:{VOLCANO}}}"
    pod = _pod(
        name,
        {"volcano.sh/vgpu-number": [f"{gpu}-{number}"]},
        VOLCANO,
        limits={"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 6000, "volcano.sh/vgpu-cores": 50},
        shares=[{"device": gpu, "memory": "6000 MiB", "cores": 50}],
    )
    return pod | {
        "annotations": {
            "volcano.sh/vgpu-ids-new": f"{gpu},NVIDIA,6000,50:",
            "volcano.sh/devices-to-allocate": "",
            "volcano.sh/vgpu-node": NODE,
            "volcano.sh/bind-phase": "success",
        }
    }


def _kai(name: str) -> dict[str, Any]:
    shares = [{"device": f"{{gpu:{WHOLE}}}", "memory": "20480 MiB", "cores": 25}]
    return _pod(name, {}, WHOLE, shares=shares) | {
        "labels": {"kai.scheduler/queue": "churn", "runai-gpu-group": _GROUP},
        "annotations": {"gpu-fraction": "0.25", "received-resource-type": "Fraction"},
    }
