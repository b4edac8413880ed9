"""NVIDIA's DRA driver: whole GPUs and MIG devices by resource claims.

======================================  ==========================================================
``gpu-<minor>``                         a whole GPU
``gpu-<minor>-mig-<profile>-<p>-<s>``   a MIG device of profile number p that begins at slice s
``gpu-<minor>-mig-<p>-<s>-<n>``         the same with n slices, as drivers before 25.12 name it
``gpu-vfio-<n>``                        a GPU that is passed through to a virtual machine
======================================  ==========================================================

The names stay when a MIG device is made anew, its UUID does not. Where the driver of the GPU does not say
where its MIG devices lie, the notes of the DRA driver tell which is meant. A GPU that is passed through is
held, but cannot be seen: it counts as unresolved.
"""

import re
from typing import ClassVar, NamedTuple

from exporter.sharing.claims import NUMBER, ClaimSystem
from exporter.sharing.files.dra_checkpoint import Checkpoint, read_checkpoint
from exporter.sharing.inventory import Device
from exporter.sharing.system import Read, Roots

DRIVER = "gpu.nvidia.com"
GPU = re.compile(rf"gpu-({NUMBER})")
MIG = re.compile(rf"gpu-({NUMBER})-mig-(.+)-({NUMBER})-({NUMBER})")
NAMES = re.compile(rf"{GPU.pattern}|{MIG.pattern}|gpu-vfio-{NUMBER}")


class Place(NamedTuple):
    """What a name says: a minor and, of a MIG device, its profile, its first slice and perhaps how many."""

    minor: int
    profile: int | None = None
    start: int | None = None
    size: int | None = None


def read_prepared(roots: Roots) -> Checkpoint:
    """Read what the driver notes of its claims."""
    return read_checkpoint(roots, DRIVER)


class Dra(ClaimSystem):
    """NVIDIA's driver. That of compute domains is another one, and gives out no GPUs."""

    name = "dra"
    driver = DRIVER
    names = NAMES
    read: ClassVar[Read | None] = staticmethod(read_prepared)

    def find(self, name: str) -> Device | None:
        """Find the device of a name by what NVML says of the GPUs."""
        place = parse_name(name)
        if place is None or place.profile is None:
            return self.view.inventory.by_minor(place.minor) if place is not None else None
        fitting = [each for each in self.view.inventory.devices if _lies_at(each, place)]
        return fitting[0] if len(fitting) == 1 else None


def parse_name(name: str) -> Place | None:
    """Say where the device of a name is; None for one that is passed through."""
    if (gpu := GPU.fullmatch(name)) is not None:
        return Place(int(gpu[1]))
    if (mig := MIG.fullmatch(name)) is None:
        return None
    minor, middle, last_but_one, last = mig.groups()
    # Of a name in the old form the profile's number comes first, and no name of a profile is all digits.
    if re.fullmatch(NUMBER, middle):
        return Place(int(minor), int(middle), int(last_but_one), int(last))
    return Place(int(minor), int(last_but_one), int(last))


def _lies_at(device: Device, place: Place) -> bool:
    mig, identity = device.mig, device.gpu.identity
    if mig is None or identity.vendor != "nvidia" or identity.minor != place.minor:
        return False
    same = (mig.gi_profile, mig.gi_start) == (place.profile, place.start)
    return same and place.size in (None, mig.gi_size)
