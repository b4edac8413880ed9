"""The call for a cgroup's memory limits, which the binding of driver 580 and its predecessors lacks.

``nvmlGetMemoryLimits_v1_t`` as published, without a size or version field:
https://docs.nvidia.com/deploy/nvml-api/api/structnvmlGetMemoryLimits__v1__t.html. Never called for MIG
handles, which the driver refuses. The call needs no privilege.
"""

from ctypes import Structure, byref, c_char_p, c_ubyte, c_ulonglong
from typing import Any, NamedTuple

import pynvml

# NVML_DEVICE_MEMORY_LIMIT_MAX. Its number was not read in NVIDIA's documentation, but in a program for R615
# that writes it to clear limits.
NO_LIMIT = 2**64 - 1
# An amount that the driver has not written.
UNWRITTEN = 0xA5A5A5A5A5A5A5A5
# Bytes behind the record that must stay as they are: a longer record of a later driver would change them.
_GUARD = bytes([0x5A] * 64)
# Not found; and not supported, which R615 with ``misc`` answers for a cgroup without a limit, too.
_NONE_SET = frozenset({3, 6})


class MemoryLimitsRecord(Structure):
    """``nvmlGetMemoryLimits_v1_t``, and the guard behind it."""

    _fields_ = (
        ("nameSpace", c_char_p),
        ("softLimit", c_ulonglong),
        ("hardLimit", c_ulonglong),
        ("currentUsed", c_ulonglong),
        ("guard", c_ubyte * len(_GUARD)),
    )


class MemoryLimits(NamedTuple):
    """The driver's answer for one cgroup, in bytes."""

    soft: int
    hard: int  # NO_LIMIT: none is set
    used: int


NONE_SET = MemoryLimits(0, NO_LIMIT, 0)


def memory_limits(device: Any, path: bytes) -> MemoryLimits:
    """Return the limits of the cgroup in a directory, NONE_SET without any.

    Raises NVMLError, and ValueError if the driver writes another record than the published one.
    """
    # There is no public way.
    call = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetMemoryLimits_v1")  # noqa: SLF001
    record = MemoryLimitsRecord(path, UNWRITTEN, UNWRITTEN, UNWRITTEN)
    record.guard[:] = _GUARD
    code = call(device, byref(record))
    if code in _NONE_SET:
        return NONE_SET
    if code != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(code)
    answer = MemoryLimits(record.softLimit, record.hardLimit, record.currentUsed)
    if UNWRITTEN in answer or bytes(record.guard) != _GUARD:
        raise ValueError("the driver writes another record than nvmlGetMemoryLimits_v1_t")
    return answer
