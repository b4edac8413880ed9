"""Tencent's qGPU, enforced by a kernel module, and Elastic GPU: percents of cards, and memory.

More than 100 percent is spread evenly over as few cards as possible, each part rounded down. Pods with
``qgpu-core-greedy`` use idle compute and have no entitlement to compute.

qGPU does not document where it writes the card of a container. Annotations of Elastic GPU, whose scheduler is
public, count if a pod has them; else cards are known only on nodes with one card.
"""

import re

from exporter.model import ContainerRef
from exporter.sharing.base.cards import TRUE, Cards, CardSystem, hundreds
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.system import GIBIBYTE
from exporter.sharing.base.view import View

CARDS, ASSUMED = "elasticgpu.io/container-", "elasticgpu.io/assumed"
_ID = re.compile(r"([0-9]{1,4})-[0-9]{2,7}")


class ElasticGpu(CardSystem):
    """Holders by annotation. From 100 percent on, cards are whole."""

    name = "elastic-gpu"
    notes = (re.compile(f"{re.escape(ASSUMED)}|{re.escape(CARDS)}(?P<name>.+)"),)
    cores = ("elasticgpu.io/gpu-core", "elasticgpu.com/gpu-core")
    memories = ("elasticgpu.io/gpu-memory", "elasticgpu.com/gpu-memory")
    blind_without_pods = "which GPU a container has"

    def offered_on(self, _resource: str, device_id: str) -> Device | None:
        """Return the card by the index in an id."""
        match = _ID.fullmatch(device_id)
        return self.by_index(match[1]) if match else None

    def cards(self, holder: ContainerRef) -> Cards:
        """Return the cards in the container's annotation, or the only card without pod details."""
        details = self.view.details(holder)
        if details is None:
            return self.only_card()
        name = f"{CARDS}{holder.container}"
        if details.annotations.get(ASSUMED) != TRUE or name not in details.annotations:
            return ()
        return self.listed(holder, name, details.annotations[name], self.by_index)


PREFIX = "tke.cloud.tencent.com/"


class Qgpu(CardSystem):
    """Holders by Elastic GPU's annotation, or of the only card."""

    name = "qgpu"
    isolation = "hard"
    cores = (f"{PREFIX}qgpu-core",)
    memories = (f"{PREFIX}qgpu-memory",)
    others = (f"{PREFIX}qgpu-core-greedy",)
    spreads = True
    blind_without_pods = "which GPU a container has"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._offered = hundreds(self, self.cores)

    @property
    def unit(self) -> int:
        """Return the bytes of an id of memory."""
        return GIBIBYTE

    def offered_on(self, resource: str, device_id: str) -> Device | None:
        """Return the card that an id of compute counts for."""
        return self._offered.get(device_id) if resource in self.cores else None

    def cards(self, holder: ContainerRef) -> Cards:
        """Return the cards in the container's annotation, else the only card."""
        annotations = self.view.annotations(holder)
        name = f"{CARDS}{holder.container}"
        if annotations.get(ASSUMED) == TRUE and name in annotations:
            return self.listed(holder, name, annotations[name], self.by_index)
        return self.only_card()
