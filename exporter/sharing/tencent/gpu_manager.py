"""Tencent's gpu-manager: shares of GPUs under ``tencent.com/vcuda-core``, held by a library in the container.

The ids are numbered through and mean no card. Once a container is about to start, the manager writes the
minors of its cards into the annotation ``tencent.com/predicate-gpu-idx-<container>``; before that the
scheduler's wish stands there. Where the pods' objects are not known, or say nothing, the manager's own files
tell the cards.

``tencent.com/vcuda-core-limit`` is how far a container may go while others leave room, and no entitlement.
"""

import json
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from exporter.model import ContainerFile, ContainerRef, DeviceUse, FileProblem, SystemFiles
from exporter.sharing.base.cards import TRUE, Cards, CardSystem, hundreds, number_of
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.reading import Pread, UnusableError, names, opened, problem
from exporter.sharing.base.system import Read, Roots
from exporter.sharing.base.view import View

MOST_PODS, MOST_FOLDERS, MOST_PIDS, MOST_CARDS = 2048, 64, 4096, 64
MOST_BYTES = 1 << 50
# A node with as many pods as a node can have stays far below. What is cut off here is no JSON.
LONGEST_CHECKPOINT = 4 << 20
FULL = 100
CHECKPOINT = Path("checkpoint/gpumanager_internal_checkpoint")

_POD = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CONTAINER_ID = re.compile(r"[0-9a-f]{64}")
# Docker's own name of a container has the name from the pod in it.
_CONTAINER = re.compile(r"(?:/?k8s_)?([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)(?:_.*)?")
_CARD = re.compile(r"/dev/nvidia([0-9]{1,4})")
_BUS_ID = re.compile(r"[0-9A-Fa-f:.]{0,32}")
_PID = struct.Struct("<i")

Given = Mapping[tuple[str, str], tuple[DeviceUse, ...]]


class _Layout(NamedTuple):
    """Where what follows the address of the card lies; the sizes of that differ from build to build."""

    bus_id: int
    limits: int


_LAYOUTS = {8240: _Layout(16, 8208), 8256: _Layout(32, 8224)}
_NAME = slice(4096, 8192)
_ADDRESS = 8192
# The bytes of memory, the percents of computing power, three numbers that say how hard they are held to, and
# whether they are held to at all.
_LIMITS = struct.Struct("<Qi12xi")


class Config(NamedTuple):
    """What ``vcuda.config`` says; ``container`` is "" where it names none."""

    container: str
    use: DeviceUse


class _Folder(NamedTuple):
    changed: int
    file: ContainerFile


def read_vcuda(roots: Roots) -> SystemFiles:
    """Read the folders of all containers, and gpu-manager's file of cards; what is not there says nothing."""
    problems: list[FileProblem] = []
    given = _given(roots.vcuda.parent / CHECKPOINT, problems)
    newest: dict[tuple[str, str], _Folder] = {}
    for folder in _folders(roots.vcuda, problems):
        # A container that was started anew leaves the folder of the one before.
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


def decode_config(pread: Pread, size: int) -> Config:
    """Return what a ``vcuda.config`` of ``size`` bytes says.

    Raises UnusableError where it has none of the known layouts, OSError where it cannot be read.
    """
    layout = _LAYOUTS.get(size)
    if layout is None:
        raise UnusableError(f"has {size} bytes, like no known layout")
    content = pread(size, 0)
    bus_id = _text(content[_ADDRESS : _ADDRESS + layout.bus_id])
    memory, percent, enabled = _LIMITS.unpack_from(content, layout.limits)
    plausible = _BUS_ID.fullmatch(bus_id) and memory <= MOST_BYTES and 0 <= percent <= MOST_CARDS * FULL
    if not plausible or enabled not in {0, 1}:
        raise UnusableError("says what no gpu-manager writes")
    named = _CONTAINER.fullmatch(_text(content[_NAME]))
    use = DeviceUse(
        device=bus_id,
        memory_limit=memory or None if enabled else None,
        compute_limit=percent / FULL or None if enabled else None,
    )
    return Config(container=named[1] if named else "", use=use)


def decode_checkpoint(text: str | bytes) -> tuple[dict[tuple[str, str], tuple[DeviceUse, ...]], list[str]]:
    """Return the cards by uid of the pod and name of the container, and what is wrong with single entries.

    Raises UnusableError where the whole cannot be read.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnusableError(f"is no JSON: {error}") from None
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


def _given(path: Path, problems: list[FileProblem]) -> Given:
    try:
        with opened(path) as (size, pread):
            given, wrong = decode_checkpoint(pread(min(size, LONGEST_CHECKPOINT), 0))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnusableError) as error:
        problems.append(problem(path, error))
        return {}
    problems += (problem(f"{path}: {entry}", "names no cards") for entry in wrong)
    return given


def _cards(entry: Any) -> tuple[DeviceUse, ...]:
    """Return the cards of an entry; the limits of several are those of a card each: none."""
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


def _folders(root: Path, problems: list[FileProblem]) -> Iterator[_Folder]:
    for uid in filter(_POD.fullmatch, _listed(root, MOST_PODS, problems)):
        for name in _listed(root / uid, MOST_FOLDERS, problems):
            path = root / uid / name
            try:
                folder = _folder(path, uid, name)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except (OSError, UnusableError) as error:
                problems.append(problem(path, error))
                continue
            if folder is not None:
                yield folder


def _listed(folder: Path, most: int, problems: list[FileProblem]) -> list[str]:
    try:
        return names(folder, most)
    except OSError as error:
        problems.append(problem(folder, error.strerror))
        return []


def _folder(path: Path, uid: str, name: str) -> _Folder | None:
    """Read one folder; None while its files are being written."""
    config_path = path / "vcuda.config"
    with opened(config_path) as (size, pread):
        if not size:
            return None
        config = decode_config(pread, size)
    is_id = _CONTAINER_ID.fullmatch(name) is not None
    file = ContainerFile(
        pod_uid=uid,
        container=config.container or ("" if is_id else name),
        container_id=name if is_id else "",
        devices=(config.use,),
        pids=_pids(path / "pids.config"),
    )
    return _Folder(config_path.stat(follow_symlinks=False).st_mtime_ns, file)


def _pids(path: Path) -> tuple[int, ...] | None:
    """Read the pids; None where there are none yet, or they are just being written."""
    try:
        with opened(path) as (size, pread):
            content = pread(min(size // _PID.size, MOST_PIDS) * _PID.size, 0)
    except (OSError, UnusableError):
        return None
    return tuple(pid for (pid,) in _PID.iter_unpack(content) if pid > 1) or None


def _text(content: bytes) -> str:
    """Read a string of C; what is no text is none that can be used."""
    try:
        return content.partition(b"\0")[0].decode("ascii")
    except UnicodeDecodeError:
        raise UnusableError("says what no gpu-manager writes") from None


CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
CARDS, ASSIGNED = "tencent.com/predicate-gpu-idx-", "tencent.com/gpu-assigned"
BLOCK = 1 << 28


class GpuManager(CardSystem):
    """The shares of one poll. From a hundred percent on there are whole cards, with all their memory."""

    name = "gpu-manager"
    isolation = "soft"
    notes = (re.compile(f"{re.escape(ASSIGNED)}|{re.escape(CARDS)}[0-9]{{1,9}}"),)
    cores = (CORE,)
    memories = (MEMORY,)
    blind_without_pods = "which GPU a container has, where gpu-manager's own files do not tell"
    read: ClassVar[Read | None] = staticmethod(read_vcuda)

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._offered = hundreds(self, self.cores)

    @property
    def unit(self) -> int:
        """Return the size of a block of memory."""
        return BLOCK

    def offered_on(self, resource: str, device_id: str) -> Device | None:
        """Count a hundred percents on each card; how many blocks of memory it has is not told."""
        return self._offered.get(device_id) if resource == CORE else None

    def cards(self, holder: ContainerRef) -> Cards:
        """Read the annotation, or else the manager's files."""
        details = self.view.details(holder)
        if details is None:
            return self._by_file(holder)
        if details.annotations.get(ASSIGNED) != TRUE:
            return ()
        name = f"{CARDS}{number_of(details, holder.container)}"
        if name not in details.annotations:
            return self._by_file(holder)
        return self.listed(holder, name, details.annotations[name], self.by_minor)

    def _by_file(self, holder: ContainerRef) -> Cards:
        file = self.view.file(self.name, holder)
        named = [device.device for device in file.devices if device.device] if file is not None else []
        return tuple(map(self._named, named)) or self.only_card()

    def _named(self, name: str) -> Device | None:
        return self.by_minor(name) if name.isdecimal() else self.view.inventory.by_bus_id(name)
