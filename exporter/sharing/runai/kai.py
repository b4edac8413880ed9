"""KAI-Scheduler: fractions of GPUs that a reservation pod holds.

A pod asks for a part of a GPU, or for an amount of its memory, which KAI counts as that part of the GPU.
Nothing keeps a pod from taking more, unless the cluster is set up so that containers get limits of memory: by
NvFractions, or by HAMi's library libvgpu, whose cache tells.
"""

from typing import ClassVar

from exporter.model import ContainerRef, Meter, PodDetails, PodIdentity
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.system import Granted
from exporter.sharing.hami.cache_owners import CACHE, meter_of
from exporter.sharing.runai import nv_fractions
from exporter.sharing.runai.reservation import Reservations


class Kai(Reservations):
    """The fractions of KAI that nothing enforces. ``limited``: whether a class is about the others."""

    name = "kai"
    isolation = "none"
    of_runai = False
    limited: ClassVar[bool] = False

    def has(self, holder: ContainerRef, details: PodDetails) -> bool:
        """Return whether the fractions have a limit of memory."""
        by_annotation = nv_fractions.is_limited(details.annotations, holder.container)
        return self.limited == (by_annotation or self._is_limited_by_library(holder))

    def meter(self, _pod: PodIdentity, holder: ContainerRef, device: Device) -> Meter | None:
        """Return what libvgpu counted, where it is in the container."""
        return meter_of(self.view.file(CACHE, holder), device)

    def _is_limited_by_library(self, holder: ContainerRef) -> bool:
        """Whether libvgpu has a limit for a container; KAI need not be told to give it one."""
        file = self.view.file(CACHE, holder)
        return file is not None and any(use.memory_limit is not None for use in file.devices)


class KaiLimited(Kai):
    """The fractions of KAI whose memory is limited."""

    isolation = "soft"
    limited = True

    def grants(self) -> Granted:
        """Return its fractions; the other class returns those of the reservations."""
        return Granted(grants=tuple(self.of_fractions()))
