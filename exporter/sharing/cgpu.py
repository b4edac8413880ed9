"""Alibaba's cGPU: a kernel module between containers and driver, which keeps each to its part of a GPU.

It shares by gpushare's resources and annotations. What the kernel has made for a container stands in
``/proc/cgpu_km``, whatever the annotations say: a container without an instance there is gpushare's.
"""

from typing import ClassVar

from exporter.model import DeviceUse, Meter
from exporter.sharing.files.cgpu import read_instances
from exporter.sharing.gpushare import ALLOCATIONS, Gpushare, Part
from exporter.sharing.system import Grant, Read


class Cgpu(Gpushare):
    """Holders by the instances that the kernel module has made."""

    name = "cgpu"
    isolation = "hard"
    blind_without_pods = ""
    read: ClassVar[Read | None] = staticmethod(read_instances)

    def knows(self, _resource: str) -> bool:
        """Whether the kernel module is loaded."""
        files = self.view.facts.files.get(self.name)
        return files is not None and bool(files.names)

    def _of(self, part: Part) -> tuple[Grant, ...]:
        file = self.view.file(self.name, part.holder)
        uses = file.devices if file is not None else ()
        told = next((found for key, _ in ALLOCATIONS if (found := self._units(part, key))), {})
        # A container with several GPUs has the same of each.
        each = max(1, part.units // max(1, len(uses)))
        return tuple(
            self._instance(part._replace(units=told.get(int(use.device)) or each), use) for use in uses
        )

    def _instance(self, part: Part, use: DeviceUse) -> Grant:
        device = self.view.inventory.by_minor(int(use.device))
        percent = self._percent(part.holder, device) if device is not None else None
        return Grant(
            holder=part.holder,
            resource=part.resource,
            device=device,
            slices=part.units,
            memory_entitled=use.memory_limit,
            compute_entitled=use.compute_limit if percent is None else percent / 100,
            meter=_meter(use),
        )


def _meter(use: DeviceUse) -> Meter | None:
    """Return what the module counts of a container: its memory, and never its compute."""
    if use.memory_used is None:
        return None
    return Meter(source=Cgpu.name, memory=use.memory_used, memory_only=True)
