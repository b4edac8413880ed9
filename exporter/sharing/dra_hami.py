"""HAMi's DRA driver: GPUs in shares of memory and compute, which its library libvgpu enforces.

A device is ``hami-gpu-<minor>``. What a claim may take is stated in the claim, which the driver notes, and in
the cache of the library, which all containers of the claim map: where there are several, the limits are those
of all together, and so is what the cache says of their use.
"""

import re
from typing import ClassVar

from exporter.model import (
    ClaimedDevice,
    ContainerFile,
    ContainerRef,
    DeviceSharing,
    DeviceUse,
    Meter,
    SliceCount,
)
from exporter.sharing.claims import NUMBER, ClaimSystem, Entitled, Part, claim_uid
from exporter.sharing.files.dra_checkpoint import Checkpoint, read_checkpoint
from exporter.sharing.inventory import Device
from exporter.sharing.system import Read, Roots
from exporter.sums import total

DRIVER = "hami-core-gpu.project-hami.io"
PREFIX = "hami-gpu-"
# The caches are read by the system of HAMi's device plugin.
CACHE = "hami"


def read_prepared(roots: Roots) -> Checkpoint:
    """Read what the driver notes of its claims."""
    return read_checkpoint(roots, DRIVER)


class HamiDra(ClaimSystem):
    """HAMi's driver. A GPU that has one holder today may have another one tomorrow."""

    name = "hami-dra"
    driver = DRIVER
    names = re.compile(f"{PREFIX}{NUMBER}")
    isolation = "soft"
    read: ClassVar[Read | None] = staticmethod(read_prepared)

    def find(self, name: str) -> Device | None:
        """Find the GPU of a name."""
        return self.view.inventory.by_minor(int(name.removeprefix(PREFIX)))

    def sharing(
        self, _device: Device, slices: tuple[SliceCount, ...], _replicated: bool, _offered_known: bool
    ) -> DeviceSharing:
        """Tell that the library keeps holders apart."""
        counted = tuple(each._replace(offered=None) for each in slices)
        return DeviceSharing(sharing=self.name, isolation=self.isolation, slices=counted)

    def entitled(self, part: Part, holder: ContainerRef) -> Entitled:
        """State what the container's claims may take."""
        return self.entitled_by_shares(part, holder)

    def limits(self, part: Part, claim: ClaimedDevice) -> Entitled:
        """Return what the claim states, else the limits in the cache."""
        noted = super().limits(part, claim)
        if noted != Entitled():
            return noted
        # The cache has one limit for all that a claim has of the device.
        shares = {each.share_id for each in part.claims if claim_uid(each) == claim_uid(claim)}
        use = self._use(part, claim) if len(shares) == 1 else None
        return Entitled(use.memory_limit, use.compute_limit) if use is not None else noted

    def meter(self, part: Part, holder: ContainerRef) -> Meter | None:
        """Return what the library measured of a container that has its claims for itself."""
        claims = part.of(holder)
        uses = {claim_uid(claim): self._use(part, claim) for claim in claims}
        if None in uses.values() or any(len(part.sharers(claim)) > 1 for claim in claims):
            return None
        found = [use for use in uses.values() if use is not None]
        return Meter(
            source=CACHE,
            memory=total([use.memory_used for use in found]),
            compute=total([use.compute_used for use in found]),
            memory_only=any(use.memory_only for use in found),
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
        fitting = [each for each in files.containers if uid and each.claim_uid == uid] if files else []
        return fitting[0] if len(fitting) == 1 else None
