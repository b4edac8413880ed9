"""The records of what sharing systems have given a container, and of the files that they keep of it."""

from dataclasses import dataclass
from typing import Literal

MeterKind = Literal["hami", "hami-vnpu", "cgpu", "vcuda", "vgpu-manager", "runai"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What a container truly has of a device (a uuid), where the kubelet's ids do not say it.

    ``slices`` counts what it has of the resource there, ``memory`` is in bytes and ``cores`` in percent of
    the physical device; 0 is no limit.
    """

    device: str
    slices: int = 1
    memory: int = 0
    cores: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterFile:
    """A file that a system keeps of a container: its kind, and which layout of it (the kind's own word)."""

    kind: MeterKind
    layout: str = ""
