"""Parsers of fractions of GPUs in annotations: numbers, amounts of memory, and NvFractions.

NvFractions, of later KAI releases, have the container's name in the key.
``nvidia.com/container.<name>.gpu-memory.request`` is memory on each GPU, as a Kubernetes quantity; if there
is only a ``.limit``, it is the request too. KAI's binder adds ``.gpus.devices`` if the cluster enforces
memory limits, and ``.gpu-compute.portion``.
"""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TypeVar

from exporter.model.quantity import BILLION, billionths
from exporter.sharing.base import MEBIBYTE

PREFIX = "nvidia.com/container."
MEMORY_KEY = re.compile(r"nvidia\.com/container\.(?P<name>.+)\.gpu-memory\.(?:request|limit)")
BINDERS_KEY = re.compile(r"nvidia\.com/container\.(?P<name>.+)\.(?:gpus\.devices|gpu-compute\.portion)")
MOST = 1 << 62
T = TypeVar("T")

_FRACTION = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{1,30})?|\.[0-9]{1,30})(?:[eE][-+]?[0-9]{1,2})?")
_NUMBER = re.compile(r"[0-9]{1,9}")


def expected(parse: Callable[[str], T | None], noun: str) -> Callable[[str], T]:
    """Return ``parse`` with a ValueError in place of None, for a text that is not ``noun``."""

    def read(text: str) -> T:
        value = parse(text)
        if value is None:
            raise ValueError(f"{text[:100]!r} is not {noun}")
        return value

    return read


def fraction(text: str) -> Fraction | None:
    """Return a number above 0 and at most 1; None for any other text."""
    value = Fraction(text) if _FRACTION.fullmatch(text) else Fraction(0)
    return value if 0 < value <= 1 else None


def whole_number(text: str) -> int | None:
    """Return a number of up to nine digits; None for any other text."""
    return int(text) if _NUMBER.fullmatch(text) else None


def mebibytes(text: str) -> int | None:
    """Return a positive number of MiB in bytes; None for any other text."""
    return (whole_number(text) or 0) * MEBIBYTE or None


def memory(text: str) -> int | None:
    """Return a positive quantity (``7680Mi``, ``1.5Gi``) in bytes; None for anything else."""
    try:
        amount = billionths(text) // BILLION
    except ValueError:
        return None
    return amount if 0 < amount <= MOST else None


def asking(annotations: Mapping[str, str]) -> list[str]:
    """Return the containers that request memory, sorted; KAI allows one for each pod."""
    return sorted({match["name"] for key in annotations if (match := MEMORY_KEY.fullmatch(key))})


def memory_key(annotations: Mapping[str, str], container: str) -> str:
    """Return the key of a container's memory request, or of its limit if it has no request."""
    request, limit = (f"{PREFIX}{container}.gpu-memory.{name}" for name in ("request", "limit"))
    return request if request in annotations else limit


def portion_key(container: str) -> str:
    """Return the key of a container's allocated share of each GPU's compute."""
    return f"{PREFIX}{container}.gpu-compute.portion"


def is_limited(annotations: Mapping[str, str], container: str) -> bool:
    """Return True if the limit of a container is enforced."""
    return bool(annotations.get(f"{PREFIX}{container}.gpus.devices"))
