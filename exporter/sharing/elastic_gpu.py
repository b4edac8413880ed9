"""Elastic GPU: percents and mebibytes of cards, which nothing enforces.

The scheduler writes the numbers of a container's cards, in the order of the driver, into the annotation
``elasticgpu.io/container-<name>``. The ids begin with such a number too, but the kubelet picks any of them.
"""

import re

from exporter.model import ContainerRef
from exporter.sharing.cards import TRUE, Cards, CardSystem
from exporter.sharing.inventory import Device

CARDS, ASSUMED = "elasticgpu.io/container-", "elasticgpu.io/assumed"
_ID = re.compile(r"([0-9]{1,4})-[0-9]{2,7}")


class ElasticGpu(CardSystem):
    """The shares of one poll. From a hundred percent on there are whole cards only."""

    name = "elastic-gpu"
    notes = (re.compile(f"{re.escape(ASSUMED)}|{re.escape(CARDS)}(?P<name>.+)"),)
    cores = ("elasticgpu.io/gpu-core", "elasticgpu.com/gpu-core")
    memories = ("elasticgpu.io/gpu-memory", "elasticgpu.com/gpu-memory")
    blind_without_pods = "which GPU a container has"

    def offered_on(self, _resource: str, device_id: str) -> Device | None:
        """Find the card by the first number of an id."""
        match = _ID.fullmatch(device_id)
        return self.by_index(match[1]) if match else None

    def cards(self, holder: ContainerRef) -> Cards:
        """Read the annotation of the container."""
        details = self.view.details(holder)
        if details is None:
            return self.only_card()
        name = f"{CARDS}{holder.container}"
        if details.annotations.get(ASSUMED) != TRUE or name not in details.annotations:
            return ()
        return self.listed(holder, name, details.annotations[name], self.by_index)
