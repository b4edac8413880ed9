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

from exporter.model import (
    ClaimedDevice,
    ContainerFile,
    ContainerRef,
    DeviceSharing,
    DeviceUse,
    Meter,
)
from exporter.model.sums import total
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.system import Entitled, Offer, Read, Roots, not_counted
from exporter.sharing.dra.checkpoint import Checkpoint, read_checkpoint
from exporter.sharing.dra.claims import NUMBER, ClaimSystem, Part, claim_uid

NVIDIA_DRIVER = "gpu.nvidia.com"
GPU = re.compile(rf"gpu-({NUMBER})")
MIG = re.compile(rf"gpu-({NUMBER})-mig-(.+)-({NUMBER})-({NUMBER})")
NAMES = re.compile(rf"{GPU.pattern}|{MIG.pattern}|gpu-vfio-{NUMBER}")


class Place(NamedTuple):
    """What a name says: a minor and, of a MIG device, its profile, its first slice and perhaps how many."""

    minor: int
    profile: int | None = None
    start: int | None = None
    size: int | None = None


def read_nvidia_prepared(roots: Roots) -> Checkpoint:
    """Read what the driver notes of its claims."""
    return read_checkpoint(roots, NVIDIA_DRIVER)


class Dra(ClaimSystem):
    """NVIDIA's driver. That of compute domains is another one, and gives out no GPUs."""

    name = "dra"
    driver = NVIDIA_DRIVER
    names = NAMES
    read: ClassVar[Read | None] = staticmethod(read_nvidia_prepared)

    def find(self, name: str) -> Device | None:
        """Find the device of a name by what NVML says of the GPUs."""
        place = parse_name(name)
        if place is None or place.profile is None:
            return self.view.inventory.by_minor(place.minor) if place is not None else None
        fitting = [device for device in self.view.inventory.devices if _lies_at(device, place)]
        return fitting[0] if len(fitting) == 1 else None


def parse_name(name: str) -> Place | None:
    """Return where the device of a name is; None for one that is passed through."""
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
    same_place = (mig.gi_profile, mig.gi_start) == (place.profile, place.start)
    return same_place and place.size in (None, mig.gi_size)


AMD_DRIVER = "gpu.amd.com"


class AmdDra(ClaimSystem):
    """AMD's driver, which keeps no notes that say whose a claim is."""

    name = "amd-dra"
    driver = AMD_DRIVER
    names = re.compile(f"gpu-{NUMBER}-{NUMBER}")

    def find(self, name: str) -> Device | None:
        """Find the GPU or partition of a render node."""
        minor = int(name.rpartition("-")[2])
        fitting = [device for device in self.view.inventory.devices if _render_minor(device) == minor]
        return fitting[0] if len(fitting) == 1 else None

    def mode_alone(self, device: Device) -> str:
        """Return the mode of a device that one container has."""
        return "exclusive" if device.mig is None else "amd-partition"


def _render_minor(device: Device) -> int | None:
    return device.mig.render_minor if device.mig is not None else device.gpu.identity.render_minor


HAMI_DRIVER = "hami-core-gpu.project-hami.io"
PREFIX = "hami-gpu-"
# The caches are read by the system of HAMi's device plugin.
CACHE = "hami"


def read_hami_prepared(roots: Roots) -> Checkpoint:
    """Read what the driver notes of its claims."""
    return read_checkpoint(roots, HAMI_DRIVER)


class HamiDra(ClaimSystem):
    """HAMi's driver. A GPU that has one holder today may have another one tomorrow."""

    name = "hami-dra"
    driver = HAMI_DRIVER
    names = re.compile(f"{PREFIX}{NUMBER}")
    isolation = "soft"
    read: ClassVar[Read | None] = staticmethod(read_hami_prepared)

    def find(self, name: str) -> Device | None:
        """Find the GPU of a name."""
        return self.view.inventory.by_minor(int(name.removeprefix(PREFIX)))

    def sharing(self, _device: Device, offer: Offer) -> DeviceSharing:
        """Return the mode; the library keeps holders apart."""
        return DeviceSharing(sharing=self.name, isolation=self.isolation, slices=not_counted(offer.slices))

    def entitled(self, part: Part, holder: ContainerRef) -> Entitled:
        """Return what the container's claims may take."""
        return self.entitled_by_shares(part, holder)

    def limits(self, part: Part, claim: ClaimedDevice) -> Entitled:
        """Return what the claim states, else the limits in the cache."""
        noted = super().limits(part, claim)
        if noted != Entitled():
            return noted
        # The cache has one limit for all that a claim has of the device.
        shares = {other.share_id for other in part.claims if claim_uid(other) == claim_uid(claim)}
        use = self._use(part, claim) if len(shares) == 1 else None
        return Entitled(use.memory_limit, use.compute_limit) if use is not None else noted

    def meter(self, part: Part, holder: ContainerRef) -> Meter | None:
        """Return what the library measured of a container that has its claims for itself."""
        claims = part.of(holder)
        uses = {claim_uid(claim): self._use(part, claim) for claim in claims}
        if None in uses.values() or any(len(part.sharers(claim)) > 1 for claim in claims):
            return None
        known = [use for use in uses.values() if use is not None]
        return Meter(
            source=CACHE,
            memory=total([use.memory_used for use in known]),
            compute=total([use.compute_used for use in known]),
            memory_only=any(use.memory_only for use in known),
        )

    def exclusive(self, _part: Part) -> bool:
        """Never: every GPU is there for several claims."""
        return False

    def _use(self, part: Part, claim: ClaimedDevice) -> DeviceUse | None:
        file = self._file(claim_uid(claim))
        uses = file.devices if file is not None else ()
        return next((use for use in uses if use.device == part.device.key.uuid), None)

    def _file(self, uid: str) -> ContainerFile | None:
        files = self.view.facts.files.get(CACHE)
        fitting = [file for file in files.containers if uid and file.claim_uid == uid] if files else []
        return fitting[0] if len(fitting) == 1 else None
