"""The memories that GPUs and MIG devices tell of in the same way: frame buffer and BAR1."""

from typing import Any

import pynvml

from exporter.model import Bar1, Memory
from exporter.nvml.readings.answers import Row, long_number


def memory(answer: Any) -> Memory | None:
    """Decode bytes; only the second version of the call tells reserved memory apart from used."""
    total, used, free = answer.total, answer.used, answer.free
    reserved = getattr(answer, "reserved", None)
    if not long_number(total) or max(used, free, reserved or 0) > total:
        return None
    return Memory(total=total, used=used, free=free, reserved=reserved)


def bar1(answer: Any) -> Bar1 | None:
    """Decode the bytes of the window, of which boards without one tell 0."""
    total, used = answer.bar1Total, answer.bar1Used
    return Bar1(total=total, used=used) if long_number(total) and used <= total else None


MEMORY = Row(
    "memory",
    ("memory",),
    (("nvmlDeviceGetMemoryInfo", (pynvml.nvmlMemory_v2,)), ("nvmlDeviceGetMemoryInfo", ())),
    memory,
)
BAR1 = Row("bar1", ("bar1",), (("nvmlDeviceGetBAR1MemoryInfo", ()),), bar1)
