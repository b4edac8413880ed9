"""The DRA drivers of NVIDIA, HAMi and vgpu-manager; further drivers have a module each.

Device names of NVIDIA's driver:

======================================  ==========================================================
``gpu-<minor>``                         a whole GPU
``gpu-<minor>-mig-<profile>-<p>-<s>``   a MIG device of profile number p that begins at slice s
``gpu-<minor>-mig-<p>-<s>-<n>``         the same with n slices, in driver releases before 25.12
``gpu-vfio-<n>``                        a GPU that is passed through to a virtual machine
======================================  ==========================================================

A MIG device that is created again keeps its name, but not its UUID. If NVML does not report the placement of
MIG devices, the checkpoint of the DRA driver has the UUID. A passed-through GPU is held, but not visible to
NVML: it counts as unresolved.
"""

import re
from functools import partial
from typing import ClassVar, NamedTuple

from exporter.model import ClaimedDevice, ContainerRef, DeviceKey, DeviceUse, Meter, only, total
from exporter.sharing.base import Entitled, Read
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.view import View
from exporter.sharing.dra.cdi import claim_uid
from exporter.sharing.dra.checkpoint import read_checkpoint
from exporter.sharing.dra.claims import NUMBER, ClaimSystem
from exporter.sharing.dra.parts import ClaimedPart
from exporter.sharing.hami.cache_files import CACHE

NVIDIA_DRIVER = "gpu.nvidia.com"
GPU = re.compile(rf"gpu-({NUMBER})")
MIG = re.compile(rf"gpu-({NUMBER})-mig-(.+)-({NUMBER})-({NUMBER})")
NAMES = re.compile(rf"{GPU.pattern}|{MIG.pattern}|gpu-vfio-{NUMBER}")
HAMI_DRIVER = "hami-core-gpu.project-hami.io"
PREFIX = "hami-gpu-"
VGPU_MANAGER_DRIVER = "manager.nvidia.com"
VGPU = re.compile(rf"vgpu-({NUMBER})")


class DeviceName(NamedTuple):
    """A parsed device name; all but ``minor`` are for MIG devices."""

    minor: int
    profile: int | None = None
    start: int | None = None  # first slice
    size: int | None = None  # slices; None in newer names


class Dra(ClaimSystem):
    """NVIDIA's driver for GPUs. Its driver for compute domains gives out no GPUs."""

    name = "dra"
    driver = NVIDIA_DRIVER
    names = NAMES
    read: ClassVar[Read | None] = staticmethod(partial(read_checkpoint, driver=NVIDIA_DRIVER))

    def find(self, name: str) -> Device | None:
        """Return the device with a name, by minor and MIG placement."""
        parsed = parse_name(name)
        if parsed is None:
            return None
        if parsed.profile is None:
            return self.view.inventory.by_minor(parsed.minor)
        return only(device for device in self.view.inventory.devices if _lies_at(device, parsed))

    def meant_by_name(self, name: str) -> frozenset[DeviceKey]:
        """Return the parts of the GPU in a name; the driver does not list a GPU that is passed through."""
        parsed = parse_name(name)
        return self.view.inventory.meant_by_minor(parsed.minor) if parsed is not None else frozenset()


def parse_name(name: str) -> DeviceName | None:
    """Return the parsed name of a device; None for one that is passed through."""
    if (gpu := GPU.fullmatch(name)) is not None:
        return DeviceName(int(gpu[1]))
    if (mig := MIG.fullmatch(name)) is None:
        return None
    minor, middle, last_but_one, last = mig.groups()
    # In the old form the profile's number comes first; no profile's name is all digits.
    if re.fullmatch(NUMBER, middle):
        return DeviceName(int(minor), int(middle), int(last_but_one), int(last))
    return DeviceName(int(minor), int(last_but_one), int(last))


def _lies_at(device: Device, parsed: DeviceName) -> bool:
    mig, identity = device.mig, device.gpu.identity
    if mig is None or identity.vendor != "nvidia" or identity.minor != parsed.minor:
        return False
    same_placement = (mig.gi_profile, mig.gi_start) == (parsed.profile, parsed.start)
    return same_placement and parsed.size in (None, mig.gi_size)


class HamiDra(ClaimSystem):
    """HAMi's driver: shares of GPUs, limited by libvgpu."""

    name = "hami-dra"
    driver = HAMI_DRIVER
    names = re.compile(f"{PREFIX}{NUMBER}")
    isolation = "soft"
    read: ClassVar[Read | None] = staticmethod(partial(read_checkpoint, driver=HAMI_DRIVER))

    def find(self, name: str) -> Device | None:
        return self.view.inventory.by_minor(int(name.removeprefix(PREFIX)))

    def limited(self, _device: Device) -> bool:
        """Return True: the driver gives nothing but shares."""
        return True

    def limits(self, part: ClaimedPart, claim: ClaimedDevice) -> Entitled:
        """Return the limits in the checkpoint, else those in libvgpu's cache."""
        noted = super().limits(part, claim)
        if noted != Entitled():
            return noted
        # The cache has one limit for all shares of the claim on the device.
        shares = {other.share_id for other in part.claims if claim_uid(other) == claim_uid(claim)}
        use = self._use(part, claim) if len(shares) == 1 else None
        return Entitled(use.memory_limit, use.compute_limit) if use is not None else noted

    def meter(self, part: ClaimedPart, holder: ContainerRef) -> Meter | None:
        """Return the figures of libvgpu for a container that does not share its claims."""
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

    def _use(self, part: ClaimedPart, claim: ClaimedDevice) -> DeviceUse | None:
        uid = claim_uid(claim)
        if not uid:
            return None
        file = only(file for file in self.view.files(CACHE).containers if file.claim_uid == uid)
        uses = file.devices if file is not None else ()
        return next((use for use in uses if use.device == part.device.key.uuid), None)


class VgpuManagerDra(Dra):
    """vgpu-manager's driver: NVIDIA's with shares of GPUs, which a library in the container limits.

    A share is a claim of ``vgpu-<minor>``; its memory and cores are in the driver's checkpoint. All other
    device names are those of NVIDIA's driver. The system has no meter: use is that of processes.
    """

    name = "vgpu-manager-dra"
    driver = VGPU_MANAGER_DRIVER
    names = re.compile(f"{VGPU.pattern}|{NAMES.pattern}")
    isolation = "soft"
    read: ClassVar[Read | None] = staticmethod(partial(read_checkpoint, driver=VGPU_MANAGER_DRIVER))

    def __init__(self, view: View) -> None:
        super().__init__(view)
        listed = {claim.device for claim in view.listed_claims if claim.driver == self.driver}
        named = listed | {device for _, device in self._checkpoint.held()}
        self._shared = {int(match[1]) for name in named if (match := VGPU.fullmatch(name))}

    def find(self, name: str) -> Device | None:
        """Return the device with a name, the GPU of a share."""
        if (vgpu := VGPU.fullmatch(name)) is not None:
            return self.view.inventory.by_minor(int(vgpu[1]))
        return super().find(name)

    def meant_by_name(self, name: str) -> frozenset[DeviceKey]:
        """Return the parts of the GPU in a name."""
        return super().meant_by_name(name.removeprefix("v"))

    def limited(self, device: Device) -> bool:
        """Return True for a GPU that is claimed in shares; the driver gives no more of it in another way."""
        return device.mig is None and device.gpu.identity.minor in self._shared
