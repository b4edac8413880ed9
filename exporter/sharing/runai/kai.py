"""KAI-Scheduler: fractions of GPUs that a reservation pod holds.

A pod requests a fraction of a GPU, or an amount of its memory, which KAI converts to a fraction. Memory is
limited only if the cluster is configured for it: by NvFractions, or by HAMi's library libvgpu, whose cache
shows it.
"""

from typing import ClassVar

from exporter.model import ContainerRef, Meter, PodDetails, PodIdentity
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.system import Granted
from exporter.sharing.hami.cache_owners import CACHE, meter_of
from exporter.sharing.runai import nv_fractions
from exporter.sharing.runai.reservation import Reservations


class Kai(Reservations):
    """Fractions without enforcement."""

    name = "kai"
    isolation = "none"
    of_runai = False
    limited: ClassVar[bool] = False  # whether the class is for fractions with a memory limit

    def has(self, holder: ContainerRef, details: PodDetails) -> bool:
        """Return True if the limit of a container's memory is as this class has it."""
        by_annotation = nv_fractions.is_limited(details.annotations, holder.container)
        return self.limited == (by_annotation or self._is_limited_by_library(holder))

    def meter(self, _pod: PodIdentity, holder: ContainerRef, device: Device) -> Meter | None:
        """Return libvgpu's figures if it is in the container."""
        return meter_of(self.view.file(CACHE, holder), device)

    def _is_limited_by_library(self, holder: ContainerRef) -> bool:
        """Return True if libvgpu has a limit for a container, which it may have without KAI."""
        file = self.view.file(CACHE, holder)
        return file is not None and any(use.memory_limit is not None for use in file.devices)


class KaiLimited(Kai):
    """Fractions with a memory limit."""

    isolation = "soft"
    limited = True

    def grants(self) -> Granted:
        """Return the grants of fractions only: Kai settles the reservations of both classes."""
        return Granted(grants=tuple(self.of_fractions()))
