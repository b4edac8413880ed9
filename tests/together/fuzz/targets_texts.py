"""The texts of annotations and ids, each read by its own parser, without a node around it."""

import re
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from exporter.model import ContainerSpec, NodeObject
from exporter.model.kubelet import bounded_annotations, extended_resources
from exporter.model.quantity import whole_quantity
from exporter.sharing import gpu_fractions
from exporter.sharing.base.inventory import parse_device_id
from exporter.sharing.gpu_fractions import fraction, mebibytes
from exporter.sharing.gpushare import parse_counts, parse_index, unit_bytes
from exporter.sharing.gpushare import parse_units as parse_gpushare
from exporter.sharing.hami.annotations import parse_allocation as parse_hami
from exporter.sharing.hami.annotations import parse_mig_allocations, registered, segment_by_container
from exporter.sharing.koordinator import asking, parse_allocated, split
from exporter.sharing.runai import parse_mig_device, parse_mig_mapping
from tests.together.fuzz.seeds import encoded
from tests.together.fuzz.target import Target

CONTAINERS = (
    ContainerSpec(name="setup", init=True),
    ContainerSpec(name="main", limits={"nvidia.com/gpu": 1, "koordinator.sh/gpu-core": 50}),
    ContainerSpec(name="side", limits={"koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory": 1 << 30}),
)
GIB = 1 << 30
GPU = "GPU-1898731f-20a7-571c-aaa8-66b961b48f75"


def _text(read: Callable[[str], Any]) -> Callable[[bytes], Any]:
    return lambda content: read(content.decode(errors="replace"))


def _hami(text: str) -> Any:
    lenient = parse_hami(text, lenient=True) if len(text) < 1 << 16 else ()
    segments = parse_hami(text)
    return lenient, segments, segment_by_container(segments, CONTAINERS, lambda each: bool(each.limits))


def _gpushare(text: str) -> Any:
    told = parse_gpushare(text)
    return told, [unit_bytes(units, 24 * GIB) for shares in told.shares.values() for units in shares.values()]


def _gpushare_numbers(text: str) -> Any:
    index, _, counts = text.partition("\x1e")
    return parse_index(index), parse_counts(counts)


def _koordinator(text: str) -> Any:
    given = parse_allocated(text)
    containers = asking(CONTAINERS)
    return given, [split(each.amount, containers) for each in given]


def _quantities(text: str) -> Any:
    name, _, amount = text.partition("\x1e")
    return whole_quantity(amount), extended_resources({name: amount}), bounded_annotations({name: amount})


def _reservation(text: str) -> Any:
    part, _, amount = text.partition("\x1e")
    return fraction(part), mebibytes(amount)


def _nv_fractions(text: str) -> Any:
    key, _, amount = text.partition("\x1e")
    annotations = {key: amount}
    named = gpu_fractions.asking(annotations)
    return [gpu_fractions.memory(annotations[gpu_fractions.memory_key(annotations, each)]) for each in named]


def _registered(text: str) -> Any:
    return registered(
        NodeObject(annotations={"hami.io/node-register": text}), re.compile("hami.io/node-register")
    )


def _runai_mig(text: str) -> Any:
    device, _, mapping = text.partition("\x1e")
    return parse_mig_mapping(b64encode(mapping.encode()).decode()), parse_mig_device(device)


TARGETS = (
    Target(
        name="text-device-id",
        covers=("exporter.sharing.base.inventory",),
        seeds=encoded(
            f"{GPU}::3", f"MIG-{GPU}/7/0", "nvidia0/gi7/vgpu1", GPU.removeprefix("GPU-"), f"MIG-{GPU[4:]}"
        ),
        decode=_text(parse_device_id),
    ),
    Target(
        name="text-hami",
        covers=("exporter.sharing.hami.annotations",),
        seeds=encoded(f"{GPU},NVIDIA,4096,25:{GPU}[7-9],NVIDIA,1,0:;;", f"{GPU},NVIDIA,8000,30:;"),
        decode=_text(_hami),
        refuses=(ValueError,),
        words=(b":;", b",,0,0", b"[1-2]", b"2147483647"),
    ),
    Target(
        name="text-hami-mig",
        covers=("exporter.sharing.hami.annotations",),
        seeds=encoded(
            f'[{{"containerIndex":0,"deviceIndex":1,"gpuUUID":"{GPU}","profile":"1g.10gb",'
            f'"migUUID":"MIG-x","gpuInstanceID":7,"computeInstanceID":0}}]'
        ),
        decode=_text(parse_mig_allocations),
        refuses=(ValueError,),
        words=(b"null", b"-1", b"1e400", b"true"),
    ),
    Target(
        name="text-hami-node",
        covers=("exporter.sharing.hami.annotations",),
        seeds=encoded(
            f'[{{"id":"{GPU}","count":10,"devmem":23028,"devcore":100,"type":"A10","mode":"hami-core"}}]',
            f"{GPU},10,23028,100,NVIDIA-A10,0,true,0,hami-core:{GPU},10,1,1,T,0,true:",
        ),
        decode=_text(_registered),
        words=(b"null", b"-1", b"1e400", b"true"),
    ),
    Target(
        name="text-gpushare",
        covers=("exporter.sharing.gpushare",),
        seeds=encoded('{"0":{"1":10}}', '{"0":{"0":8,"1":8},"2":{"3":1}}'),
        decode=_text(_gpushare),
        refuses=(ValueError,),
        words=(b"null", b"-1", b"2147483648", b"true"),
    ),
    Target(
        name="text-gpushare-numbers",
        covers=("exporter.sharing.gpushare",),
        seeds=encoded('3\x1e{"0":8,"1":16}', "-1\x1e{}"),
        decode=_text(_gpushare_numbers),
        refuses=(ValueError,),
    ),
    Target(
        name="text-koordinator",
        covers=("exporter.sharing.koordinator",),
        seeds=encoded(
            '{"gpu":[{"minor":1,"id":"GPU-1","resources":{"koordinator.sh/gpu-core":"50",'
            '"koordinator.sh/gpu-memory":"8Gi","koordinator.sh/gpu-memory-ratio":"50"}}]}',
            '{"gpu":[{"minor":0,"resources":{"kubernetes.io/gpu-core":100,"kubernetes.io/gpu-memory":1073741824}}]}',
        ),
        decode=_text(_koordinator),
        refuses=(ValueError,),
        words=(b"null", b"1e99", b"-1", b"999999999999999999Ei"),
    ),
    Target(
        name="text-reservation",
        covers=("exporter.sharing.gpu_fractions",),
        seeds=encoded("0.3\x1e4608", "1\x1e0"),
        decode=_text(_reservation),
        words=(b"nan", b"inf", b"1e400", b"-0"),
    ),
    Target(
        name="text-nv-fractions",
        covers=("exporter.sharing.gpu_fractions",),
        seeds=encoded(
            "nvidia.com/container.main.gpu-memory.request\x1e7680Mi",
            "nvidia.com/container.main.gpu-memory.limit\x1e1.5Gi",
        ),
        decode=_text(_nv_fractions),
        words=(b".gpu-memory.limit", b"e99", b"Ei", b"0.0"),
    ),
    Target(
        name="text-runai-mig",
        covers=("exporter.sharing.runai",),
        seeds=encoded(
            '{"name":"nvidia.com/mig-1g.5gb","position":6,"instanceid":"MIG-x","gpuindex":2}'
            '\x1e{"0":{"6":"MIG-x"},"1":[{"position":"0","device_uuid":"MIG-y"}]}'
        ),
        decode=_text(_runai_mig),
        refuses=(ValueError,),
    ),
    Target(
        name="text-quantity",
        covers=("exporter.model.kubelet",),
        seeds=encoded("nvidia.com/gpu\x1e2", "nvidia.com/gpumem\x1e16Gi", "a.b/c\x1e5e3"),
        decode=_text(_quantities),
        words=(b"999999999999999999", b"e99", b"Ei"),
    ),
)
