"""KAI-Scheduler: fractions of GPUs that a reservation pod holds.

A pod asks for a part of a GPU, or for an amount of its memory, which KAI counts as that part of the GPU.
Nothing keeps a pod from taking more, unless the cluster is set up so that containers get limits of memory.
"""

from typing import ClassVar

from exporter.model import ContainerRef, PodDetails
from exporter.sharing import nv_fractions
from exporter.sharing.reservation import Reservations
from exporter.sharing.system import Granted


class Kai(Reservations):
    """The fractions of KAI that nothing enforces. ``limited``: whether a class is about the others."""

    name = "kai"
    isolation = "none"
    of_runai = False
    limited: ClassVar[bool] = False

    def has(self, holder: ContainerRef, details: PodDetails) -> bool:
        """Tell the fractions with a limit of memory from the others."""
        return self.limited == nv_fractions.is_limited(details.annotations, holder.container)


class KaiLimited(Kai):
    """The fractions of KAI whose memory is limited."""

    isolation = "soft"
    limited = True

    def grants(self) -> Granted:
        """Tell its fractions; what is to be said of the reservations, the other class says."""
        return Granted(grants=tuple(self.of_fractions()))
