"""Tencent's qGPU: percents and gibibytes of cards, which the kernel enforces.

More than a hundred percent is spread evenly over as few cards as have room for it, each part rounded down.
Pods that ask for ``qgpu-core-greedy`` take what computing power the others leave: of that nothing is theirs.

How qGPU notes the card of a container is not published. The annotations of Elastic GPU, whose scheduler
has been published, are taken where a pod has them; else only the cards of nodes with one card are known.
"""

from exporter.model import ContainerRef
from exporter.sharing.cards import TRUE, Cards, CardSystem, hundreds
from exporter.sharing.elastic_gpu import ASSUMED, CARDS
from exporter.sharing.inventory import Device
from exporter.sharing.view import View

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
