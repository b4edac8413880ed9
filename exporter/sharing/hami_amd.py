"""HAMi on AMD's GPUs: a library limits the memory, a mask the compute units, whose number is noted.

Its plugin offers each GPU in slices, ``<name>#<n>``, where the name is that of AMD's own plugin. The
scheduler chooses the GPU, and names it as AMD SMI does: by its unique id and the number of its model, unless
it is a virtual function. What the plugin notes on the node tells its PCI address.
"""

import re

from exporter.model import ContainerRef
from exporter.sharing.amd import Amd
from exporter.sharing.hami_vendor import HamiVendor, Kind, Told
from exporter.sharing.inventory import Device
from exporter.sharing.system import Claim
from exporter.sharing.view import View

GPU = "amd.com/gpu"
SLICE = re.compile(r"([^#]{1,64})#[0-9]{1,4}")
SMI = re.compile(
    "([0-9a-f]{2})[0-9a-f]{2}[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{2}([0-9a-f]{2})-([0-9a-f]{12})"
)


class HamiAmd(HamiVendor):
    """AMD's GPUs in parts."""

    name = "hami-amd"
    isolation = "soft"
    maker = "amd"
    kinds = (Kind(re.compile(r"hami\.io/amd-devices-allocated")),)
    resources = re.compile(r"amd\.com/gpu(mem|cores)?")
    counting = own = re.compile(r"amd\.com/gpu")
    registers = re.compile(r"hami\.io/node-amd-register")

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._plugin = Amd(view)
        ids = set(view.offered.get(GPU, ()))
        ids |= {each.device_id for each in view.allocations.allocated if each.resource == GPU}
        found = map(SLICE.fullmatch, ids)
        self._names = {each[1] for each in found if each is not None}

    def owns(self, resource: str, device_id: str) -> bool:
        """Whether an id is a slice of a GPU; AMD's plugin gives out whole ones by their names alone."""
        return resource == GPU and SLICE.fullmatch(device_id) is not None

    def is_told(self, ids: frozenset[str]) -> bool:
        """Whether annotations say what a container with these ids has: the plugin is HAMi's."""
        return any(SLICE.fullmatch(each) for each in ids)

    def claim(self, resource: str, device_id: str) -> Claim | None:
        """Find the GPU that a slice is offered with; the scheduler may have chosen another for its holder."""
        found = SLICE.fullmatch(device_id) if resource == GPU else None
        return Claim(self._named(found[1]), replica=True, nominal=True) if found is not None else None

    def device(self, told: Told) -> Device | None:
        """Find the GPU by what the node says of its name, by the name, or as the only one."""
        uuid = told.device.uuid
        listed, smi = self.registered.get(uuid), SMI.fullmatch(uuid)
        if listed is not None and listed.address:
            return self._named(listed.address)
        found = self.view.inventory.by_uuid(f"GPU-{smi[1]}{smi[2]}{smi[3]}" if smi is not None else uuid)
        if found is not None:
            return found if found.gpu.identity.vendor == self.maker else None
        return self._named(next(iter(self._names))) if len(self._names) == 1 else None

    def compute(self, _holder: ContainerRef, told: Told) -> float | None:
        """State the compute units as a share of those that the plugin registered."""
        listed = self.registered.get(told.device.uuid)
        known = listed is not None and listed.cores is not None and told.device.cores > 0
        return told.device.cores / listed.cores if known and listed and listed.cores else None

    def _named(self, name: str) -> Device | None:
        claim = self._plugin.claim(GPU, name)
        return claim.device if claim is not None else None
