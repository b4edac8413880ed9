"""Baidu's cGPU: ``baidu.com/t4_16g_cgpu``, with percents of compute and GiB in resources beside it.

What its ids mean is not published: a holder is shown where the node has one GPU only, and none of its limits.
"""

import re

from exporter.sharing.inventory import Device
from exporter.sharing.system import Claim, Grant, Granted, System

GPUS = re.compile(r"baidu\.com/[a-z0-9_.-]+_cgpu")
PARTS = re.compile(r"(baidu\.com/[a-z0-9_.-]+_cgpu)_(?:core|memory|memory_percent)")


class Baidu(System):
    """Holders of the only GPU of a node."""

    name = "baidu-cgpu"
    isolation = ""

    def knows(self, resource: str) -> bool:
        """Whether a resource is Baidu's."""
        return self.owns(resource, "")

    def owns(self, resource: str, _device_id: str) -> bool:
        """Say that these resources are nobody else's."""
        return GPUS.fullmatch(resource) is not None or PARTS.fullmatch(resource) is not None

    def claim(self, resource: str, device_id: str) -> Claim | None:
        """Know an id as Baidu's."""
        return Claim() if self.owns(resource, device_id) else None

    def grants(self) -> Granted:
        """Give the only GPU to whoever has a part of one; on other nodes the GPU is not known."""
        grants: list[Grant] = []
        settled = set()
        only = self._only()
        for holder, by_resource in self.view.held.items():
            for resource, ids in by_resource.items():
                part = PARTS.fullmatch(resource)
                if part is not None and part[1] in by_resource:
                    settled.add((holder, resource))
                elif self.owns(resource, ""):
                    grants.append(Grant(holder=holder, resource=resource, device=only, slices=len(ids)))
                    settled.add((holder, resource))
        return Granted(grants=tuple(grants), settled=frozenset(settled))

    def _only(self) -> Device | None:
        devices = self.view.inventory.devices
        whole = [each for each in devices if each.mig is None and each.gpu.identity.vendor == "nvidia"]
        return whole[0] if len(whole) == len(devices) == 1 else None
