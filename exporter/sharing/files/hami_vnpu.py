"""What HAMi's library for Ascend NPUs notes of each container: its limit, and the memory of its processes.

A file has a head and then up to 64 slots, one for each process; older ones have fewer. Numbers are
little-endian. Memory is by the number that an NPU has in the container, which is not told outside.
"""

import struct
from collections.abc import Iterator

from exporter.model import ContainerFile, DeviceUse, FileProblem, SystemFiles
from exporter.sharing.files.reading import UnusableError, gathered, of_containers, opened, problem
from exporter.sharing.system import Roots

NAME = "vnpu_local_shmem"
SLOTS_BEGIN, SLOT_SIZE, MOST_SLOTS = 1080, 80, 64
MOST_BYTES = 1 << 50

_LIMIT = struct.Struct("<Q")
# A pid, one more that is that of the container's view too, the memory of eight NPUs, and whether it lives.
_SLOT = struct.Struct("<ii8QIi")


def read_vnpu(roots: Roots) -> SystemFiles:
    """Read the files of all containers; a folder that is not there has none."""
    return gathered(of_containers(f"{roots.hami_vnpu}/containers", _of_container))


def _of_container(folder: str, pod: str, container: str) -> Iterator[ContainerFile | FileProblem]:
    path = f"{folder}/{NAME}"
    try:
        devices = _devices(path)
    except FileNotFoundError:
        # Whose folder it is, is told before there is a file in it.
        devices = ()
    except NotADirectoryError:
        return
    except (OSError, UnusableError) as error:
        yield problem(path, error)
        return
    yield ContainerFile(pod_uid=pod, container=container, devices=devices)


def _devices(path: str) -> tuple[DeviceUse, ...]:
    """Return the sum over a container's NPUs as one device without a name; () before anything is noted."""
    with opened(path) as (size, pread):
        if size < SLOTS_BEGIN + SLOT_SIZE:
            raise UnusableError(f"has {size} bytes, too few for one process")
        count = min((size - SLOTS_BEGIN) // SLOT_SIZE, MOST_SLOTS)
        limit = _LIMIT.unpack(pread(_LIMIT.size, 0))[0]
        slots = list(_SLOT.iter_unpack(pread(count * SLOT_SIZE, SLOTS_BEGIN)))
    if limit == 0 and not any(slot[-2] for slot in slots):
        return ()
    used = sum(sum(slot[2:10]) for slot in slots if slot[-2])
    if max(limit, used) > MOST_BYTES:
        raise UnusableError("tells more bytes than any device has")
    return (DeviceUse(device="", memory_limit=limit or None, memory_used=used),)
