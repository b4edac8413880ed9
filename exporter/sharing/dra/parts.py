"""A device and its claims."""

from operator import attrgetter
from typing import NamedTuple

from exporter.model import ClaimedDevice, ContainerRef
from exporter.sharing.base.inventory import Device

# A share of a claim, which several containers may have.
share_key = attrgetter("claim_namespace", "claim", "share_id")


class ClaimedPart(NamedTuple):
    """A device and all claims of it."""

    device: Device
    claims: list[ClaimedDevice]
    divided: bool  # a share id means a share of the device

    @property
    def holders(self) -> list[ContainerRef]:
        """The containers, sorted."""
        return sorted({claim.holder for claim in self.claims})

    @property
    def in_shares(self) -> bool:
        """Return True if the driver gives shares of the device to several claims."""
        return self.divided and any(claim.share_id for claim in self.claims)

    @property
    def alone(self) -> bool:
        """Return True if one container has the whole device."""
        return len(self.holders) == 1 and not self.in_shares

    def of(self, holder: ContainerRef) -> list[ClaimedDevice]:
        return [claim for claim in self.claims if claim.holder == holder]

    def may_be_of(self, lost: ClaimedDevice) -> bool:
        """Return True if another container has a share of the device by the claim of a lost device."""
        return any(
            share_key(claim) == share_key(lost) and claim.holder != lost.holder for claim in self.claims
        )

    def sharers(self, claim: ClaimedDevice) -> list[ContainerRef]:
        """Return the containers that have the same share by the same claim."""
        return sorted({other.holder for other in self.claims if share_key(other) == share_key(claim)})
