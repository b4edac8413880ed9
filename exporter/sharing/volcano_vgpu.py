"""Volcano's vGPU: its scheduler with a plugin of HAMi's, and HAMi's library in the containers.

A pod's annotation ``volcano.sh/vgpu-ids-new`` says what each container has that asks. Memory is counted in
units that the plugin can be told to make larger than a MiB; then the node's annotation shows fewer of them
than the GPU has MiB.
"""

import re

from exporter.sharing.hami_base import MEBIBYTE, VOLCANO_KEYS, LibvgpuSystem
from exporter.sharing.hami_text import HamiDevice
from exporter.sharing.system import whole_keys, words_of

PREFIX = "volcano.sh/"
REGISTER = "volcano.sh/node-vgpu-register"
NUMBER = re.compile(r"[0-9]{1,10}")
# Which field of a GPU's record has the size of its memory.
MEMORY = 2


class VolcanoVgpu(LibvgpuSystem):
    """The GPUs that Volcano's scheduler shares."""

    name = "volcano-vgpu"
    blind_without_pods = "what the containers of Volcano are entitled to, and for certain on which GPUs"
    keys = VOLCANO_KEYS
    notes = (whole_keys(*VOLCANO_KEYS, REGISTER),)
    words = words_of("NVIDIA")
    lenient = True

    def named(self, resource: str) -> bool:
        """Whether a resource is Volcano's by its name."""
        return resource.startswith(PREFIX)

    def memory(self, device: HamiDevice) -> int | None:
        """Return the limit in bytes, None for none, and where the size of a unit is not known."""
        unit = self._unit(device.uuid)
        return device.memory * unit * MEBIBYTE or None if unit is not None else None

    def _unit(self, uuid: str) -> int | None:
        """Return in how many MiB memory is counted: one, unless the node says otherwise."""
        gpu, units = self.view.inventory.by_uuid(uuid), self._registered(uuid)
        if units is None or gpu is None or gpu.gpu.memory is None:
            return 1
        mebibytes = gpu.gpu.memory.total // MEBIBYTE
        # The plugin rounds down, so that several sizes of the unit may have led to what it says.
        least, most = mebibytes // (units + 1) + 1, mebibytes // units
        return most if least == most else None

    def _registered(self, uuid: str) -> int | None:
        node = self.view.facts.node
        text = node.annotations.get(REGISTER, "") if node is not None else ""
        records = (record.split(",") for record in text.split(":"))
        found = next((record for record in records if record[0] == uuid), None)
        if found is None:
            return None
        units = int(found[MEMORY]) if len(found) > MEMORY and NUMBER.fullmatch(found[MEMORY]) else 0
        if not units:
            self.view.object_to(self.name, "node", f"{REGISTER}: {uuid}", "it has no size of the memory")
        return units or None
