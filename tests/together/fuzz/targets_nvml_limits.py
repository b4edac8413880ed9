"""The driver's memory limits of cgroups: whatever it writes into the record, or behind it."""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import addressof, memmove
from typing import Any

import pynvml

from exporter.nvml.cgroup_limits import CgroupLimitReader
from exporter.nvml.driver.calls import Calls, DeviceLostError, DriverGoneError
from exporter.nvml.driver.memory_limits import MemoryLimitsRecord
from tests.together.fuzz.promises import BrokenPromiseError
from tests.together.fuzz.seeds import Scratch
from tests.together.fuzz.target import Target

_node = Scratch()
# A code, and what the driver writes behind the pointer to the path.
CODE, OFFSET = struct.Struct("<B"), MemoryLimitsRecord.softLimit.offset
ROOM = MemoryLimitsRecord.guard.offset + MemoryLimitsRecord.guard.size - OFFSET
AMOUNTS = struct.Struct("<3Q")


@contextmanager
def _answering(content: bytes) -> Iterator[None]:
    """Let the driver answer each call with the code and the bytes of an input."""
    code, written = content[0] if content else 0, content[1 : 1 + ROOM]

    class Library:
        def __getattr__(self, _name: str) -> Callable[..., int]:
            def call(_device: Any, reference: Any) -> int:
                address = addressof(reference._obj) + OFFSET
                memmove(address, written, len(written))
                return code

            return call

    before, pynvml.nvmlLib = pynvml.nvmlLib, Library()
    pynvml._nvmlGetFunctionPointer_cache.clear()
    try:
        yield
    finally:
        pynvml.nvmlLib = before
        pynvml._nvmlGetFunctionPointer_cache.clear()


def _limits(content: bytes) -> Any:
    """Read the limits of a cgroup, in a folder that exists."""
    _node.write("pod/container/cgroup.procs", b"")
    path = f"{_node.path}/pod/container"
    reader = CgroupLimitReader(lambda: {"GPU-a": (path,)})
    with _answering(content):
        try:
            return reader.read(Calls(), "GPU-a", None, slow=True)
        except DeviceLostError:
            return {}


def _check(told: Any) -> None:
    for memory in told.values():
        amounts = (memory.used, memory.guaranteed, memory.limit or 0)
        if not all(0 <= amount <= 1 << 46 for amount in amounts):
            raise BrokenPromiseError(f"no board has this memory: {memory}")


def _seed(code: int, soft: int, hard: int, used: int, behind: bytes = b"") -> bytes:
    return CODE.pack(code) + AMOUNTS.pack(soft, hard, used) + behind


TARGETS = (
    Target(
        name="nvml-memory-limits",
        covers=("exporter.nvml.cgroup_limits", "exporter.nvml.driver.memory_limits"),
        seeds=lambda: [
            _seed(0, 1 << 31, 1 << 32, 1 << 30),
            _seed(0, 0, 2**64 - 1, 0),
            _seed(0, 1, 2, 3, b"\x01"),
            _seed(6, 0, 0, 0),
            b"\x00\x01",
        ],
        decode=_limits,
        refuses=(DriverGoneError,),
        check=_check,
        words=(b"\xff" * 8, b"\x5a" * 8, b"\xa5" * 8, b"\x03", b"\x0f"),
    ),
)
