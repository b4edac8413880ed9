"""Why a source failed last, told from its message: counts by reason also hold what failed before that."""

import re
from typing import Final

from exporter.hardware.library import advice
from exporter.model import CollectorHealth

DEADLINE: Final = "deadline"
_IN_BRACKETS: Final = re.compile(r" \((\w+)\): ")
_DRIVER: Final = (
    ("no answer for", DEADLINE),
    ("no libnvidia-ml.so.1 on", "LibraryNotFound"),
    ("cannot be loaded", "LibraryNotFound"),
    ("it stays open", "NotReleased"),
)


def kubelet_reason(health: CollectorHealth) -> str:
    """Return the reason of a KubeletError, or ``deadline``; "" where there is none of both."""
    found = _IN_BRACKETS.search(health.message)
    return found[1] if found else _by_deadline(health)


def driver_reason(health: CollectorHealth) -> str:
    """Return the reason of a DriverError, or ``deadline``; "" where there is none of both."""
    marked = (reason for mark, reason in _DRIVER if mark in health.message)
    return next(marked, "") or next(filter(lambda name: _is(health, name), health.errors), "")


def _is(health: CollectorHealth, name: str) -> bool:
    return advice(name) in health.message or health.message.endswith(name)


def _by_deadline(health: CollectorHealth) -> str:
    return DEADLINE if health.message.startswith("no answer for") else ""
