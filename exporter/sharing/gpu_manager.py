"""Tencent's gpu-manager: shares of GPUs by ``tencent.com/vcuda-core``, enforced by a library in containers.

Ids are numbered and have no card. When a container is about to start, the manager writes the minors of its
cards into the annotation ``tencent.com/predicate-gpu-idx-<container>``, which had the scheduler's choice
before. Without pod details or annotation, the manager's own files have the cards.

``tencent.com/vcuda-core-limit`` lets a container exceed its share while cards are idle, and is no
entitlement.
"""

import json
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from exporter.model import ContainerFile, ContainerRef, DeviceUse, Problem, SystemFiles
from exporter.sharing.base import Read, Roots
from exporter.sharing.base.cards import FULL, MOST_CARDS, TRUE, Cards, CardSystem
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.reading import Pread, UnusableError, names_or_problem, opened, problem, reported

MOST_PODS, MOST_FOLDERS, MOST_PIDS = 2048, 64, 4096
MOST_BYTES = 1 << 50
# Far above the size with as many pods as a node can have; a truncated file is not JSON.
LONGEST_CHECKPOINT = 4 << 20
CHECKPOINT = Path("checkpoint/gpumanager_internal_checkpoint")

_POD = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CONTAINER_ID = re.compile(r"[0-9a-f]{64}")
# Docker's name of a container contains the name in the pod.
_CONTAINER = re.compile(r"(?:/?k8s_)?([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)(?:_.*)?")
_CARD = re.compile(r"/dev/nvidia([0-9]{1,4})")
_BUS_ID = re.compile(r"[0-9A-Fa-f:.]{0,32}")
_PID = struct.Struct("<i")

CardsByContainer = Mapping[tuple[str, str], tuple[DeviceUse, ...]]
_NAME = slice(4096, 8192)
_ADDRESS = 8192
# Bytes of memory, percent of compute, three numbers for the strictness of enforcement, enforcement on or off.
_LIMITS = struct.Struct("<Qi12xi")
CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
CARDS, ASSIGNED = "tencent.com/predicate-gpu-idx-", "tencent.com/gpu-assigned"
BLOCK = 1 << 28


class _ConfigLayout(NamedTuple):
    """Part of the layout of ``vcuda.config`` that differs between builds, in bytes."""

    bus_id: int  # size of the card's PCI address
    limits: int  # offset of the limits


_LAYOUTS = {8240: _ConfigLayout(16, 8208), 8256: _ConfigLayout(32, 8224)}


class VcudaConfig(NamedTuple):
    """The content of ``vcuda.config``."""

    container: str  # "" if the file has no name
    use: DeviceUse


class _Folder(NamedTuple):
    changed: int  # mtime in nanoseconds
    file: ContainerFile


def read_vcuda(roots: Roots) -> SystemFiles:
    """Return the files of all containers, with cards of gpu-manager's checkpoint; blocks, never raises."""
    problems: list[Problem] = []
    given = _given(roots.vcuda.parent / CHECKPOINT, problems)
    newest: dict[tuple[str, str], _Folder] = {}
    for folder in _folders(roots.vcuda, problems):
        # A restarted container leaves its old folder behind.
        key = folder.file.pod_uid, folder.file.container or folder.file.container_id
        newest[key] = max(newest.get(key, folder), folder, key=lambda item: item.changed)
    with_folder = [
        replace(
            folder.file, devices=given.get((folder.file.pod_uid, folder.file.container), folder.file.devices)
        )
        for folder in newest.values()
    ]
    alone = [
        ContainerFile(pod_uid=uid, container=container, devices=devices)
        for (uid, container), devices in given.items()
        if (uid, container) not in newest
    ]
    return SystemFiles(containers=(*with_folder, *alone), problems=tuple(problems))


def decode_config(pread: Pread, size: int) -> VcudaConfig:
    """Return the content of a ``vcuda.config`` of ``size`` bytes.

    Raises UnusableError if it has no known layout, OSError if it cannot be read.
    """
    layout = _LAYOUTS.get(size)
    if layout is None:
        raise UnusableError(f"has {size} bytes, like no known layout")
    content = pread(size, 0)
    bus_id = _text(content[_ADDRESS : _ADDRESS + layout.bus_id])
    memory, percent, enabled = _LIMITS.unpack_from(content, layout.limits)
    plausible = _BUS_ID.fullmatch(bus_id) and memory <= MOST_BYTES and 0 <= percent <= MOST_CARDS * FULL
    if not plausible or enabled not in {0, 1}:
        raise UnusableError("has implausible values")
    named = _CONTAINER.fullmatch(_text(content[_NAME]))
    use = DeviceUse(device=bus_id)
    if enabled:
        use = replace(use, memory_limit=memory or None, compute_limit=percent / FULL or None)
    return VcudaConfig(container=named[1] if named else "", use=use)


def decode_checkpoint(text: str | bytes) -> tuple[dict[tuple[str, str], tuple[DeviceUse, ...]], list[str]]:
    """Return the cards by (pod uid, container name), and the names of malformed entries.

    Raises UnusableError if the file is malformed.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnusableError(f"is not JSON: {error}") from None
    pods = document.get("PodGPUMapping") if isinstance(document, dict) else None
    if not isinstance(pods, dict):
        raise UnusableError("has no PodGPUMapping")
    given: dict[tuple[str, str], tuple[DeviceUse, ...]] = {}
    wrong: list[str] = []
    for uid, containers in pods.items():
        for name, entry in containers.items() if isinstance(containers, dict) else ():
            cards = _cards(entry)
            if cards:
                given[uid, name] = cards
            else:
                wrong.append(f"{uid}/{name}")
    return given, wrong


def _given(path: Path, problems: list[Problem]) -> CardsByContainer:
    given: CardsByContainer = {}
    with reported(path, problems), opened(path) as (size, pread):
        given, wrong = decode_checkpoint(pread(min(size, LONGEST_CHECKPOINT), 0))
        problems += (problem(f"{path}: {entry}", "has no cards") for entry in wrong)
    return given


def _cards(entry: Any) -> tuple[DeviceUse, ...]:
    """Return the cards of an entry, () if it is malformed; whole cards have no limits."""
    entry = entry if isinstance(entry, dict) else {}
    devices, cores, memory = (entry.get(name) for name in ("Devices", "Cores", "Memory"))
    if not isinstance(devices, list) or not 0 < len(devices) <= MOST_CARDS:
        return ()
    matches = [_CARD.fullmatch(device) for device in devices if isinstance(device, str)]
    numbers = sorted(int(match[1]) for match in matches if match)
    if len(numbers) != len(devices):
        return ()
    memory_limit = memory if type(memory) is int and 0 < memory <= MOST_BYTES else None
    shared = type(cores) is int and 0 < cores < FULL
    return tuple(
        DeviceUse(
            device=str(number),
            memory_limit=memory_limit if shared else None,
            compute_limit=cores / FULL if shared else None,
        )
        for number in numbers
    )


def _folders(root: Path, problems: list[Problem]) -> Iterator[_Folder]:
    for uid in filter(_POD.fullmatch, names_or_problem(root, MOST_PODS, problems)):
        for name in names_or_problem(root / uid, MOST_FOLDERS, problems):
            path = root / uid / name
            with reported(path, problems):
                yield from _folder(path, uid, name)


def _folder(path: Path, uid: str, name: str) -> Iterator[_Folder]:
    """Yield the files of one folder, unless they are being written."""
    config_path = path / "vcuda.config"
    with opened(config_path) as (size, pread):
        if not size:
            return
        config = decode_config(pread, size)
    is_id = _CONTAINER_ID.fullmatch(name) is not None
    file = ContainerFile(
        pod_uid=uid,
        container=config.container or ("" if is_id else name),
        container_id=name if is_id else "",
        devices=(config.use,),
        pids=_pids(path / "pids.config"),
    )
    yield _Folder(config_path.stat(follow_symlinks=False).st_mtime_ns, file)


def _pids(path: Path) -> tuple[int, ...] | None:
    """Return the pids; None if there are none yet, or while they are being written."""
    try:
        with opened(path) as (size, pread):
            content = pread(min(size // _PID.size, MOST_PIDS) * _PID.size, 0)
    except (OSError, UnusableError):
        return None
    return tuple(pid for (pid,) in _PID.iter_unpack(content) if pid > 1) or None


def _text(content: bytes) -> str:
    """Return a NUL-terminated string; raises UnusableError if it is not ASCII."""
    try:
        return content.partition(b"\0")[0].decode("ascii")
    except UnicodeDecodeError:
        raise UnusableError("has implausible values") from None


class GpuManager(CardSystem):
    """Holders by annotation, else by file. From 100 percent on, cards are whole, with all their memory."""

    name = "gpu-manager"
    isolation = "soft"
    confirmed = ASSIGNED
    unit = BLOCK
    notes = (re.compile(f"{re.escape(ASSIGNED)}|{re.escape(CARDS)}[0-9]{{1,9}}"),)
    cores = (CORE,)
    memories = (MEMORY,)
    blind_without_pods = "which GPU a container has, unless gpu-manager's own files have it"
    read: ClassVar[Read | None] = staticmethod(read_vcuda)

    def keys(self, holder: ContainerRef) -> tuple[str, ...]:
        return (f"{CARDS}{self.number_of(holder)}",)

    def unannotated(self, holder: ContainerRef) -> Cards:
        """Return the cards in the manager's files, unless the pod's annotations are not confirmed."""
        details = self.view.details(holder)
        if details is not None and details.annotations.get(ASSIGNED) != TRUE:
            return ()
        file = self.view.file(self.name, holder)
        named = [device.device for device in file.devices if device.device] if file is not None else []
        by_bus_id = self.view.inventory.by_bus_id
        cards = (self.card(name) if name.isdecimal() else by_bus_id(name) for name in named)
        return tuple(cards) or self.only_card()

    def card(self, item: str) -> Device | None:
        """Return the card with this minor."""
        return self.view.inventory.by_minor(int(item))
