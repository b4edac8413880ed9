"""Intel's DRA driver: whole GPUs.

No driver reads these GPUs: only their holders are known. Device names:

==============================  ============================================================
``0000-03-00-0-0x56c0``         PCI address and model of a GPU, or of a virtual function
``card<n>``                     a GPU, in the driver's classic naming
==============================  ============================================================

A virtual function is a part of a GPU that its name does not have: it counts as unresolved. Claims with admin
access monitor GPUs and do not hold them. The driver's checkpoint marks them. It has claims by uid, which the
driver's CDI names lack: a claim is the one with the same devices.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar

from exporter.model import ClaimedDevice, DeviceKey
from exporter.sharing.base import Read, unread_device
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.view import View
from exporter.sharing.dra.checkpoint import Form, Prepared, read_checkpoint, record, records, request_of, text
from exporter.sharing.dra.claims import NUMBER, ClaimSystem

INTEL_DRIVER = "gpu.intel.com"
# Function 0 of a device; on a bus of its own, behind a bridge, a GPU is the first device.
GPU = re.compile(r"[0-9a-f]{4}-(?:00-[0-9a-f]{2}|[0-9a-f]{2}-00)-0-0x[0-9a-f]{4}")
ANY_FUNCTION = r"[0-9a-f]{4}(?:-[0-9a-f]{2}){2}-[0-7]-0x[0-9a-f]{4}"
CARD = re.compile(rf"card({NUMBER})")
# The management engine of a GPU is given with admin access only.
ADMIN_CDI = "intel.com/gpu-mei="


def _claims(document: Any) -> dict[str, Any]:
    return record(document, "PreparedClaims")


def _devices(claim: Any, _driver: str) -> dict[str, tuple[Prepared, ...]]:
    devices: dict[str, tuple[Prepared, ...]] = {}
    for entry in records(claim, "PreparedDevices"):
        device = record(entry, "KubeletpluginDevice")
        admin = entry.get("AdminAccess") is True
        devices[text(device, "DeviceName")] = (Prepared(request=request_of(device, "Requests"), admin=admin),)
    return devices


FORM = Form("preparedClaims.json", _claims, _devices)


class IntelDra(ClaimSystem):
    """Whole GPUs, of which only the holders are known."""

    name = "intel-dra"
    maker = "intel"
    driver = INTEL_DRIVER
    names = re.compile(f"{ANY_FUNCTION}|{CARD.pattern}")
    form = FORM
    read: ClassVar[Read | None] = staticmethod(partial(read_checkpoint, driver=INTEL_DRIVER, form=FORM))

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._noted_claims: dict[str, dict[str, bool]] = defaultdict(dict)
        for (uid, device), shares in self._checkpoint.prepared.items():
            self._noted_claims[uid][device] = all(share.admin for share in shares)

    def find(self, name: str) -> Device | None:
        """Return the GPU with a name, None for a virtual function."""
        if (card := CARD.fullmatch(name)) is not None:
            return unread_device("intel", name, "Intel GPU", int(card[1]))
        return unread_device("intel", name, "Intel GPU") if GPU.fullmatch(name) else None

    def meant_by_name(self, _name: str) -> frozenset[DeviceKey]:
        """Return no devices: those that are read are of other makers."""
        return frozenset()

    def claim_uid(self, claim: ClaimedDevice) -> str:
        """Return the uid of the noted claim with the same devices; "" for several that differ in access."""
        by_container = self.view.devices_by_claim.get((claim.claim_namespace, claim.claim), {})
        devices = {
            device
            for listed in by_container.values()
            for driver, _, device, _ in listed
            if driver == self.driver
        }
        noted = {uid: admin for uid, admin in self._noted_claims.items() if admin.keys() == devices}
        same_access = len({frozenset(admin.items()) for admin in noted.values()}) == 1
        return min(noted) if same_access else ""

    def _claims(self) -> Iterator[ClaimedDevice]:
        for claim in super()._claims():
            if self._noted(claim) is not None or not any(name.startswith(ADMIN_CDI) for name in claim.cdi):
                yield claim
