"""Possible placements of GPU instances on the memory slices of a GPU, by model and MIG profile.

A driver lists them with ``nvidia-smi mig -lgipp``. They depend on the architecture alone, and profiles of one
name are distinguished by how many fit: an A100 has seven 1g.10gb with 80 GB, and four with 40 GB, on two
memory slices each. Published listings: ``_LISTINGS`` has the source of each.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from exporter.model.mig_geometry import Span


class Listing(NamedTuple):
    """The placements of the GPUs of some models."""

    models: tuple[str, ...]  # how the names start in NVML, without ``NVIDIA``
    size: int  # memory slices of the GPU, in the units of its placements
    # By compute slices of a profile, and how many of its instances fit on an empty GPU.
    placements: Mapping[tuple[int, int], tuple[Span, ...]]


def _spans(starts: Sequence[int], size: int) -> tuple[Span, ...]:
    return tuple(Span(start, size) for start in starts)


# Models of which no listing was found, such as B200, are not here: nothing is said of them.
_LISTINGS: Final = (
    # https://docs.nvidia.com/datacenter/tesla/mig-user-guide/ (A100), and listings of H100 and H100 NVL:
    # https://github.com/GoogleCloudDataproc/initialization-actions/blob/main/gpu/install_gpu_driver.sh
    Listing(
        ("A100", "H100", "H200", "GH200"),
        8,
        {
            (1, 7): _spans(range(7), 1),
            (1, 4): _spans((0, 2, 4, 6), 2),
            (2, 3): _spans((0, 2, 4), 2),
            (3, 2): _spans((0, 4), 4),
            (4, 1): _spans((0,), 4),
            (7, 1): _spans((0,), 8),
        },
    ),
    # https://github.com/Summer-Lo/Docker_configuration/blob/main/000-MIG/README.md
    Listing(
        ("A30",),
        4,
        {(1, 4): _spans(range(4), 1), (2, 2): _spans((0, 2), 2), (4, 1): _spans((0,), 4)},
    ),
    # This architecture counts its memory in twelve parts.
    Listing(
        ("RTX PRO 6000 Blackwell",),
        12,
        {(1, 4): _spans((0, 3, 6, 9), 3), (2, 2): _spans((0, 6), 6), (4, 1): _spans((0,), 12)},
    ),
)
# Profiles with further properties, such as 1g.10gb+me, depend on more than placements.
_PLAIN: Final = re.compile(r"([1-9])g\.([1-9][0-9]{0,3})gb")
_NVIDIA: Final = "NVIDIA "


class ProfileSize(NamedTuple):
    """The size of a MIG profile by its name."""

    compute: int  # compute slices
    gigabytes: int


def profile_size(profile: str) -> ProfileSize | None:
    """Return the size of a plain profile, such as 3g.40gb; None of others, such as 1g.10gb+me."""
    match = _PLAIN.fullmatch(profile)
    return None if match is None else ProfileSize(int(match[1]), int(match[2]))


def memory_size(model: str) -> int | None:
    """Return the memory slices of a GPU model, in the units of its placements; None if they are unknown."""
    listing = _listing(model)
    return None if listing is None else listing.size


def placements(model: str, profile: str, instances: int) -> tuple[Span, ...] | None:
    """Return where GPU instances of a profile can be, in order; None if that is unknown.

    ``instances``: how many of the profile fit on an empty GPU of this model.
    """
    listing, size = _listing(model), profile_size(profile)
    if listing is None or size is None:
        return None
    return listing.placements.get((size.compute, instances))


def places_for(possible: Sequence[Span], used: Sequence[Span], count: int) -> tuple[Span, ...] | None:
    """Return places for ``count`` more instances of one profile beside used spans, None if they do not fit.

    Placements of one profile do not overlap, so that the first free ones are as good as any.
    """
    free = [place for place in possible if not any(overlap(place, other) for other in used)]
    return tuple(free[:count]) if 0 < count <= len(free) else None


def overlap(one: Span, other: Span) -> bool:
    """Return whether two spans share a memory slice."""
    return one.start < other.start + other.size and other.start < one.start + one.size


def _listing(model: str) -> Listing | None:
    name = model.removeprefix(_NVIDIA)
    for listing in _LISTINGS:
        for start in listing.models:
            # A100X and H100-like names of other boards are not these models.
            if name.startswith(start) and name[len(start) : len(start) + 1] in {"", " ", "-"}:
                return listing
    return None
