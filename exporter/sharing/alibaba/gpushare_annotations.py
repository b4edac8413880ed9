"""The annotations in which Alibaba's schedulers, and those made after them, write which GPU a pod was given.

The older ones name one GPU for the pod by its minor (``ALIYUN_COM_GPU_MEM_IDX``). The newer ones are JSON:
``{"0": {"1": 8}}`` are 8 units of the GPU with minor 1 for the first container, init containers not counted.
A unit is a GiB or a MiB, as the plugin was told to count, and nothing says which.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from exporter.sharing.base.reading import parsed

LONGEST = 1 << 16
MOST = 1 << 31
UNITS = (1 << 30, 1 << 20)
# A GPU is never so many times as large as another one of its node.
UNLIKE = 16
NO_GPU = "-1"
INDEX_SUFFIX = "_GPU_MEM_IDX"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")

Shares = dict[int, dict[int, int]]


class Allocation(NamedTuple):
    """Units by container and minor, and what is wrong with the entries that are left out."""

    shares: Shares
    faults: tuple[str, ...]


def parse_number(text: str) -> int:
    """Read a minor, or a count of units; raise ValueError for anything else."""
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is no number")
    return int(text)


def parse_index(text: str) -> int | None:
    """Read the minor of a GPU, None where none was found for the pod; raise ValueError for anything else."""
    return None if text == NO_GPU else parse_number(text)


def parse_allocation(text: str) -> Allocation:
    """Read ``{container: {minor: units}}``; raise ValueError where it is nothing of the kind."""
    shares: Shares = {}
    faults = []
    for container, given in parsed(text, dict, LONGEST).items():
        try:
            shares[parse_number(container)] = _counts(given)
        except ValueError as error:
            faults.append(f"container {container[:40]!r}: {error}")
    return Allocation(shares, tuple(faults))


def parse_counts(text: str) -> dict[int, int]:
    """Read ``{minor: units}``, which is what each GPU has; raise ValueError for anything else."""
    return _counts(parsed(text, dict, LONGEST))


def unit_bytes(units: int, total: int | None) -> int | None:
    """Return the bytes of a unit if a GPU of ``total`` bytes has so many, None where neither unit fits.

    Every GPU is counted as large as the first of its node, so that the nearest unit is meant.
    """
    if units <= 0 or not total:
        return None
    distance, unit = min((max(units * unit / total, total / (units * unit)), unit) for unit in UNITS)
    return unit if distance <= UNLIKE else None


def index_key(annotations: Iterable[str], resource: str) -> str | None:
    """Find the annotation that has the index of a resource: it is named after the resource's domain.

    Where no name fits, the only one of its kind is meant.
    """
    wanted = re.sub("[^A-Z0-9]", "_", resource.partition("/")[0].upper()) + INDEX_SUFFIX
    keys = [key for key in annotations if key.endswith(INDEX_SUFFIX)]
    if wanted in keys:
        return wanted
    return keys[0] if len(keys) == 1 else None


def _counts(given: object) -> dict[int, int]:
    if not isinstance(given, Mapping) or not all(type(count) is int for count in given.values()):
        raise ValueError("is no object of whole numbers")
    if not all(0 <= count < MOST for count in given.values()):
        raise ValueError("has a number out of bounds")
    return {parse_number(minor): units for minor, units in given.items()}
