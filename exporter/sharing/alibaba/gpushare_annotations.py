"""Parsers of gpushare's annotations: the GPU of a pod, by Alibaba's schedulers and their forks.

Older annotations have the minor of one GPU for the pod (``ALIYUN_COM_GPU_MEM_IDX``). Newer ones are JSON:
``{"0": {"1": 8}}`` is 8 units of the GPU with minor 1 for the first container, not counting init containers.
A unit is a GiB or a MiB, by the plugin's configuration, which no annotation has.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from exporter.sharing.base.reading import parsed

LONGEST = 1 << 16
MOST = 1 << 31
UNITS = (1 << 30, 1 << 20)
# The memory sizes of a node's GPUs differ by less than this factor.
UNLIKE = 16
NO_GPU = "-1"
INDEX_SUFFIX = "_GPU_MEM_IDX"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")

Shares = dict[int, dict[int, int]]


class Allocation(NamedTuple):
    """The units by container and minor."""

    shares: Shares
    faults: tuple[str, ...]  # messages about entries that were left out


def parse_number(text: str) -> int:
    """Return a minor or a number of units; raises ValueError."""
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a number")
    return int(text)


def parse_index(text: str) -> int | None:
    """Return the minor of a GPU, None if the scheduler found no GPU; raises ValueError."""
    return None if text == NO_GPU else parse_number(text)


def parse_allocation(text: str) -> Allocation:
    """Return the shares in ``{container: {minor: units}}``; raises ValueError."""
    shares: Shares = {}
    faults = []
    for container, given in parsed(text, dict, LONGEST).items():
        try:
            shares[parse_number(container)] = _counts(given)
        except ValueError as error:
            faults.append(f"container {container[:40]!r}: {error}")
    return Allocation(shares, tuple(faults))


def parse_counts(text: str) -> dict[int, int]:
    """Return the units of each GPU in ``{minor: units}``; raises ValueError."""
    return _counts(parsed(text, dict, LONGEST))


def unit_bytes(units: int, total: int | None) -> int | None:
    """Return the bytes of a unit if a GPU of ``total`` bytes has ``units``, None if neither GiB nor MiB fits.

    The plugin counts every GPU as large as the first of its node, so that the nearest unit is taken.
    """
    if units <= 0 or not total:
        return None
    distance, unit = min((max(units * unit / total, total / (units * unit)), unit) for unit in UNITS)
    return unit if distance <= UNLIKE else None


def index_key(annotations: Iterable[str], resource: str) -> str | None:
    """Return the key of the annotation with a resource's GPU index: it has the resource's domain.

    Without such a key, the only key of this kind is returned, else None.
    """
    wanted = re.sub("[^A-Z0-9]", "_", resource.partition("/")[0].upper()) + INDEX_SUFFIX
    keys = [key for key in annotations if key.endswith(INDEX_SUFFIX)]
    if wanted in keys:
        return wanted
    return keys[0] if len(keys) == 1 else None


def _counts(given: object) -> dict[int, int]:
    if not isinstance(given, Mapping) or not all(type(count) is int for count in given.values()):
        raise ValueError("is not an object of whole numbers")
    if not all(0 <= count < MOST for count in given.values()):
        raise ValueError("has a number out of bounds")
    return {parse_number(minor): units for minor, units in given.items()}
