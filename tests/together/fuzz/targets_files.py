"""The files that sharing systems keep on the node, most of which the containers they are about may write."""

import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from exporter.demo.sharing_files import hami, writers
from exporter.model import ContainerFile, DeviceUse, PodIdentity, SystemFiles, Workloads
from exporter.sharing.base import Roots
from exporter.sharing.base.reading import UnusableError
from exporter.sharing.cgpu import read_instances
from exporter.sharing.dra import amd, intel
from exporter.sharing.dra.checkpoint import decode as decode_checkpoint
from exporter.sharing.gpu_manager import decode_checkpoint as decode_cards
from exporter.sharing.gpu_manager import decode_config, read_vcuda
from exporter.sharing.hami.ascend import read_vnpu
from exporter.sharing.hami.cache import LAYOUTS, CacheLayout
from exporter.sharing.hami.cache import decode as decode_cache
from exporter.sharing.nvidia_strategy import read_daemons
from exporter.sharing.runai import read_runai
from exporter.sharing.vgpu_manager import read_vgpu_manager
from exporter.workloads.places import place_by_files
from tests.together.fuzz.seeds import MARK, Scratch, parts_of
from tests.together.fuzz.target import Target

GIB = 1 << 30
GPU = "GPU-1898731f-20a7-571c-aaa8-66b961b48f75"
MIG = "MIG-dc0a8a4d-51a1-5f6d-a0a7-4c1d3cf1a111"
UID = "6a1f3c8e-0000-4000-8000-000000000001"
DRIVER = "gpu.nvidia.com"
_tree = Scratch()
# Processes of a cache that an input can describe: the table of slots is megabytes, of which most are free.
SLOTS = 3


@cache
def _roots() -> Roots:
    names = ("hami", "hami_vnpu", "cgpu", "vgpu_manager", "mps", "run", "kubelet")
    return Roots(**{name: _tree.path / name for name in names}, vcuda=_tree.path / "gpu-manager/vm")


def _images() -> dict[str, bytes]:
    slots = [
        hami.Slot(pid=1000 + place, memory=(GIB, 0), percent=(30, 0), measured=(True, True))
        for place in range(2)
    ]
    return {layout.name: hami.image(layout.name, [GPU, MIG], [8 * GIB] * 2, 30, slots) for layout in LAYOUTS}


def _folded(place: int, layout: CacheLayout, image: bytes) -> bytes:
    """Keep of a cache what says something: its head, the first slots and how many there are."""
    table = image[layout.slots : layout.slots + SLOTS * layout.slot_size]
    count = image[layout.slot_count : layout.slot_count + 4]
    return bytes([place]) + count + image[: layout.slots] + table


def _cache_seeds() -> Sequence[bytes]:
    images = _images()
    return [_folded(place, layout, images[layout.name]) for place, layout in enumerate(LAYOUTS)]


def _unfolded(content: bytes) -> tuple[bytes, bytes, CacheLayout]:
    layout = LAYOUTS[(content[:1] or b"\0")[0] % len(LAYOUTS)]
    # Of as many processes as fit into an input; more are read in the same way.
    (count,) = struct.unpack("<i", content[1:5].ljust(4, b"\0"))
    few = struct.pack("<i", count % (SLOTS + 2) - 1 if abs(count) > SLOTS else count)
    return content[5 : 5 + layout.slots + SLOTS * layout.slot_size], few, layout


def _cache(content: bytes) -> Any:
    image, count, layout = _unfolded(content)

    def pread(length: int, offset: int) -> bytes:
        if offset + length > layout.file_size:
            raise UnusableError("was cut short while it was read")
        # What an input does not say is as in a new file.
        return count if offset == layout.slot_count else image[offset : offset + length].ljust(length, b"\0")

    return decode_cache(pread, layout.file_size)


def _with_file(name: str, read: Any, content: bytes) -> SystemFiles:
    _tree.write(name, content)
    found: SystemFiles = read(_roots())
    return found


def _cgpu(content: bytes) -> SystemFiles:
    """Read an instance whose files are the parts of the input."""
    names = (
        "0/policy",
        "0/max_inst",
        f"0/{'ab' * 6}/memsize",
        f"0/{'ab' * 6}/meminfo",
        f"0/{'ab' * 6}/weight",
        "version",
    )
    for name, part in zip(names, parts_of(content, len(names)), strict=True):
        _tree.write(f"cgpu/{name}", part)
    return read_instances(_roots())


def _runai(content: bytes) -> SystemFiles:
    for name, part in zip(("utilization.sm", "memory.allocated"), parts_of(content, 2), strict=True):
        _tree.write(f"run/proc/pod/{UID}/metrics/gpu/0/{name}", part)
    return read_runai(_roots())


def _mps(content: bytes) -> SystemFiles:
    """Find a daemon in a folder that is named by the input."""
    name = content.translate(None, b"/\0")[:200].decode("utf-8", "surrogateescape")
    if name in ("", ".", ".."):
        return SystemFiles()
    folder = _tree.write(f"mps/nvidia.com/{name}/.started", b"").parent
    try:
        return read_daemons(_roots())
    finally:
        (folder / ".started").unlink()
        folder.rmdir()


def _config(content: bytes) -> Any:
    def pread(length: int, offset: int) -> bytes:
        return content[offset : offset + length]

    return decode_config(pread, len(content))


def _pids(content: bytes) -> Any:
    """Place processes by the list of a container."""
    _tree.write(f"gpu-manager/vm/{UID}/main/vcuda.config", VCUDA)
    files = _with_file(f"gpu-manager/vm/{UID}/main/pids.config", read_vcuda, content)
    pod = PodIdentity(uid=UID, namespace="a", name="b", container_ids={"ab" * 32: "main"})
    return files, place_by_files(
        Workloads(places={}, pods={UID: pod}, process_view=True), {"gpu-manager": files}
    )


CARD = DeviceUse(device="0000:3b:00.0", memory_limit=8 * GIB, compute_limit=0.3)
VCUDA = writers.vcuda_image(ContainerFile(pod_uid=UID, container="main", devices=(CARD,)))
CLAIM = (
    '{"v2":{"preparedClaims":{"u-1":{"status":{"allocation":{"devices":{"results":[{"driver":"gpu.nvidia.com",'
    '"device":"gpu-0","shareID":"s","consumedCapacity":{"memory":"8Gi","cores":"30"},"adminAccess":true}]}}},'
    f'"preparedDevices":[{{"devices":[{{"gpu":{{"info":{{"uuid":"{GPU}"}},"device":{{"DeviceName":"gpu-0",'
    '"ShareID":"s"}}}]}]}}}}'
).replace('"s"}}}]}]}}}}', '"s"}}}]}]}}}}')
AMD_CLAIM = (
    '{"v1":{"preparedClaims":{"u-1":[{"request_names":["gpu"],"device_name":"gpu-0-cpx-nps4","ContainerEdits":'
    '{"deviceNodes":[{"path":"/dev/kfd"},{"path":"/dev/dri/renderD128"}]},"shareKey":"u-1/gpu/gpu-0-cpx-nps4/s"}]}}}'
)
INTEL_CLAIM = (
    '{"kind":"PreparedClaimsCheckpoint","PreparedClaims":{"u-1":{"PreparedDevices":[{"AdminAccess":true,'
    '"KubeletpluginDevice":{"Requests":["gpu"],"DeviceName":"0000-03-00-0-0x56c0"}}]}}}'
)
CARDS = (
    '{"PodGPUMapping":{"' + UID + '":{"main":{"Devices":["/dev/nvidia0"],"Cores":30,"Memory":8589934592}}}}'
)

TARGETS = (
    Target(
        name="file-hami-cache",
        covers=("exporter.sharing.hami.cache",),
        seeds=_cache_seeds,
        decode=_cache,
        refuses=(UnusableError,),
    ),
    Target(
        name="file-hami-vnpu",
        covers=("exporter.sharing.hami.ascend", "exporter.sharing.base.reading"),
        seeds=lambda: [writers.vnpu_image(8 * GIB, [GIB, GIB])[:1400], writers.vnpu_image(0, [])[:1200]],
        decode=partial(_with_file, f"hami_vnpu/containers/{UID}_main/vnpu_local_shmem", read_vnpu),
    ),
    Target(
        name="file-vgpu-manager",
        covers=("exporter.sharing.vgpu_manager",),
        seeds=lambda: [
            writers.vgpu_manager_image(
                ContainerFile(pod_uid=UID, container="c", devices=(replace(CARD, device=GPU),))
            ),
            bytes(248) + struct.pack("<48sQi4xi", GPU.encode(), GIB, 30, 1) + bytes(1536 - 248 - 68),
        ],
        decode=partial(_with_file, f"vgpu_manager/{UID}_main/config/vgpu.config", read_vgpu_manager),
    ),
    Target(
        name="file-vcuda-config",
        covers=("exporter.sharing.gpu_manager",),
        seeds=lambda: [VCUDA],
        decode=_config,
        refuses=(UnusableError,),
    ),
    Target(
        name="file-vcuda-pids",
        covers=("exporter.sharing.gpu_manager", "exporter.workloads.places"),
        seeds=lambda: [struct.pack("<4i", 1000, 1001, 1, -1)],
        decode=_pids,
    ),
    Target(
        name="file-vcuda-cards",
        covers=("exporter.sharing.gpu_manager",),
        seeds=lambda: [CARDS.encode()],
        decode=decode_cards,
        refuses=(UnusableError,),
        words=(b"true", b"null", b"1e400", b"-1"),
    ),
    Target(
        name="file-cgpu",
        covers=("exporter.sharing.cgpu",),
        seeds=lambda: [
            MARK.join((b"0\n", b"4\n", b"8589934592\n", b"Free: 1\nPID: 7 Mem: 4096\n", b"1\n", b"1.0.3\n"))
        ],
        decode=_cgpu,
        words=(b"-1", b"PID: ", b" Mem: ", b"9999999999999999999"),
    ),
    Target(
        name="file-runai",
        covers=("exporter.sharing.runai",),
        seeds=lambda: [b"37\n\x1e4294967296\n"],
        decode=_runai,
        words=(b"100", b"-1", b"999999999999999999"),
    ),
    Target(
        name="file-mps",
        covers=("exporter.sharing.nvidia_strategy",),
        seeds=lambda: [b"gpu", b"gpu.shared"],
        decode=_mps,
    ),
    Target(
        name="file-dra-checkpoint",
        covers=("exporter.sharing.dra.checkpoint",),
        seeds=lambda: [CLAIM.encode(), CLAIM.replace('"info":{"uuid"', '"concrete":{"migUUID"').encode()],
        decode=lambda content: decode_checkpoint(content, DRIVER, Path("checkpoint.json")),
        refuses=(UnusableError,),
        words=(b"null", b"true", b"1e400", b'"v1"', b"999999999999999999Ei"),
    ),
    *(
        Target(
            name=f"file-dra-checkpoint-{maker}",
            covers=(module.__name__,),
            seeds=lambda seed=seed: [seed.encode()],
            decode=lambda content, form=module.FORM: decode_checkpoint(
                content, DRIVER, Path(form.file), form
            ),
            refuses=(UnusableError,),
            words=(b"null", b"[]", b"{}", b"/dev/dri/renderD", b"999999999999999999"),
        )
        for maker, module, seed in (("amd", amd, AMD_CLAIM), ("intel", intel, INTEL_CLAIM))
    ),
)
