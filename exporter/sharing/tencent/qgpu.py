"""Tencent's qGPU: percents and gibibytes of cards, which the kernel enforces.

More than a hundred percent is spread evenly over as few cards as have room for it, each part rounded down.
Pods that ask for ``qgpu-core-greedy`` take what computing power the others leave: of that nothing is theirs.

How qGPU notes the card of a container is not published. The annotations of Elastic GPU, whose scheduler
has been published, are taken where a pod has them; else only the cards of nodes with one card are known.
"""

import re

from exporter.model import ContainerRef
from exporter.sharing.base.cards import TRUE, Cards, CardSystem, hundreds
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.view import View

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


PREFIX = "tke.cloud.tencent.com/"
GIBIBYTE = 1 << 30


class Qgpu(CardSystem):
    """The shares of one poll."""

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
        """Return a gibibyte."""
        return GIBIBYTE

    def offered_on(self, resource: str, device_id: str) -> Device | None:
        """Count a hundred percents on each card."""
        return self._offered.get(device_id) if resource in self.cores else None

    def cards(self, holder: ContainerRef) -> Cards:
        """Read the annotation that may be there, or take the only card."""
        details = self.view.details(holder)
        annotations = details.annotations if details is not None else {}
        name = f"{CARDS}{holder.container}"
        if annotations.get(ASSUMED) == TRUE and name in annotations:
            return self.listed(holder, name, annotations[name], self.by_index)
        return self.only_card()
