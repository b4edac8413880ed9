"""The regions of HAMi-core as its headers declare them, for caches made without the reader's offsets.

Project-HAMi/HAMi-core src/multiprocess/multiprocess_memory_limit.h at 8b7cd78 ("0a"), 7a9c88b ("v0"),
9b46404 ("1.1"), 94fff56 ("1.1-shifted"), 7970f7f ("1.1-between") and 8f3a89c ("1.2").
"""

import ctypes
from ctypes import c_char, c_int32, c_uint32, c_uint64

MAGIC = 19920718
NAMES = ("0a", "v0", "1.1", "1.1-shifted", "1.1-between", "1.2")
LOCKED_FIRST = ("1.1-shifted", "1.1-between")
SEMAPHORE = ("semaphore", c_uint64 * 4)


def _struct(fields):
    return type("Struct", (ctypes.Structure,), {"_fields_": fields})


def _memory(spare):
    sizes = [(name, c_uint64) for name in ("context", "module", "data", "offset", "total")]
    return _struct([*sizes, ("spare", c_uint64 * spare)])


def _use(spare):
    return _struct([*((name, c_uint64) for name in ("dec", "enc", "sm")), ("spare", c_uint64 * spare)])


def _slot(name):
    spare = 3 if name.startswith("1") else 0
    lock = [("seqlock", c_uint64)]
    fields = [("pid", c_int32), ("hostpid", c_int32)]
    fields += lock if name in LOCKED_FIRST else []
    fields += [("used", _memory(spare) * 16), ("monitorused", c_uint64 * 16)]
    fields += [] if name == "0a" else [("device_util", _use(spare) * 16)]
    fields += [("status", c_int32)]
    fields += lock if name == "1.2" else []
    unused = {"1.1": 3, "1.1-shifted": 2, "1.1-between": 2, "1.2": 2}.get(name, 0)
    return _struct([*fields, ("unused", c_uint64 * unused)])


def region(name):
    """Return the type of a region."""
    versions = [("major", c_uint32), ("minor", c_uint32)] if name.startswith("1") else []
    second = ("semaphore_of_init", c_uint64 * 4)
    fields = [("initialized", c_int32), *versions, ("sm_init", c_int32), ("owner", c_uint64), SEMAPHORE]
    fields += [second] if name == "1.1-shifted" else []
    fields += [("num", c_uint64), ("uuids", (c_char * 96) * 16)]
    fields += [("limit", c_uint64 * 16), ("sm_limit", c_uint64 * 16), ("procs", _slot(name) * 1024)]
    fields += [(each, c_int32) for each in ("proc_num", "switch", "recent", "priority")]
    fields += [("last_kernel", c_uint64)] if name.startswith("1") else []
    fields += [second] if name == "1.2" else []
    fields += [("unused", c_uint64 * 4)] if name.startswith("1.1") else []
    return _struct(fields)


def begun(name, uuids=("GPU-a",), limits=(), cores=()):
    """Return a region as the first process of a container leaves it, before it has a slot."""
    made = region(name)()
    made.initialized = MAGIC
    if name.startswith("1"):
        made.major, made.minor = 1, 2 if name == "1.2" else 1
    made.num = len(uuids)
    for place, uuid in enumerate(uuids):
        made.uuids[place].value = uuid.encode()
    for place in range(16):
        made.limit[place] = limits[place] if place < len(limits) else 0
        made.sm_limit[place] = cores[place] if place < len(cores) else 100
    return made


def join(made, hostpid, total=(), sm=(), status=1):
    """Add a process with its use of each device; return its slot."""
    slot = made.procs[made.proc_num]
    made.proc_num += 1
    slot.pid, slot.hostpid, slot.status = 7, hostpid, status
    for place, used in enumerate(total):
        slot.used[place].total = slot.monitorused[place] = used
    for place, percent in enumerate(sm):
        slot.device_util[place].sm = percent
    return slot


def content(made) -> bytes:
    """Return the file of a region, which is one byte longer."""
    return bytes(made) + b"\0"
