"""What a process has now: memory, file descriptors, threads, tasks, and entries in the caches of the product.

Everything is found from outside, through the garbage collector: the product does not know of it.
"""

import asyncio
import ctypes
import functools
import gc
import sys
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OURS = ("exporter.", "podresources.")
# What the fake driver keeps is not the product's.
NOT_OURS = ("exporter.demo.",)
CONTAINERS = (dict, set, frozenset, list, deque)


class _Mallinfo(ctypes.Structure):
    """The result of glibc's ``mallinfo2``, in bytes."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


class Probe:
    """Looks at the process it is in. To be made after the first poll and before the collector is frozen.

    What the product keeps for its whole life is there by then. Its ``caches`` are counted by what is in a
    container, and in those inside it: of ``dict[str, set]`` what is in the sets.
    """

    def __init__(self) -> None:
        self._kept = [item for item in gc.get_objects() if _is_ours(type(item).__module__) and _lives(item)]
        self._cached = [
            item
            for item in gc.get_objects()
            if isinstance(item, functools._lru_cache_wrapper) and _is_ours(getattr(item, "__module__", None))
        ]

    def look(self) -> dict[str, Any]:
        """Return what there is now, memory first, because counting takes some too.

        Objects are counted when what is garbage is gone: the collector goes round more often by itself.
        """
        memory = {"resident": _resident(), "heap": _heap()}
        gc.collect()
        return memory | {
            "blocks": sys.getallocatedblocks(),
            "descriptors": _count("/proc/self/fd"),
            "threads": _count("/proc/self/task"),
            "tasks": len(asyncio.all_tasks()),
            "caches": self._caches(),
        }

    def _caches(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for function in self._cached:
            found[f"{function.__module__}.{function.__qualname__}()"] += function.cache_info().currsize
        for item in self._kept:
            kind = type(item)
            for name, value in _attributes(item):
                found[f"{kind.__module__}.{kind.__qualname__}.{name}"] += _entries(value)
        return {name: count for name, count in found.items() if count}


def _count(folder: str) -> int:
    return sum(1 for _ in Path(folder).iterdir())


def _is_ours(module: object) -> bool:
    return isinstance(module, str) and module.startswith(OURS) and not module.startswith(NOT_OURS)


def _lives(item: object) -> bool:
    """Whether this changes: records are frozen."""
    parameters = getattr(type(item), "__dataclass_params__", None)
    return not isinstance(item, type | tuple) and (parameters is None or not parameters.frozen)


def _attributes(item: object) -> Iterator[tuple[str, Any]]:
    yield from getattr(item, "__dict__", {}).items()
    for kind in type(item).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(item, name):
                yield name, getattr(item, name)


def _entries(value: object) -> int:
    if not isinstance(value, CONTAINERS):
        return 0
    inside = list(value.values()) if isinstance(value, dict) else list(value)
    return _size(value) + sum(_size(item) for item in inside if isinstance(item, CONTAINERS))


def _size(container: Any) -> int:
    """Count entries; a queue that lets go of its oldest counts as full, which it may be in hours or never."""
    bound = getattr(container, "maxlen", None)
    return len(container) if bound is None else bound


def _resident() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text("ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Rss:"))


def _heap() -> int:
    """Return the bytes of glibc's heaps in use; 0 with another C library."""
    function = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if function is None:
        return 0
    function.restype = _Mallinfo
    found = function()
    return int(found.uordblks + found.hblkhd)
