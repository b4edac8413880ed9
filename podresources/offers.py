"""What the node has on offer, remembered over the gaps in what the kubelet says about it.

While a device plugin registers again after a restart, the kubelet leaves its resource out of the answer
although nothing has changed on the node.
"""

import logging
from collections.abc import Callable, Collection
from itertools import groupby
from operator import attrgetter
from typing import Final

from exporter.model import OfferedDevice
from podresources.errors import KubeletError

KEPT: Final = 300.0  # seconds for which the last good answer stands in for one that fails
_PERMANENT: Final = frozenset({"unimplemented", "internal"})
_log = logging.getLogger(__name__)


class Offers:
    """The last good answer by resource, and what is to be shown of it now."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last: dict[str, tuple[OfferedDevice, ...]] | None = None
        self._read_at = 0.0
        self._failure = ""

    def answered(
        self, fresh: tuple[OfferedDevice, ...], *, in_use: Collection[str], settling: bool
    ) -> tuple[OfferedDevice, ...]:
        """Take a sorted answer in and give what is on offer.

        A resource missing from it is kept while the kubelet is ``settling`` after a restart, and while
        it is ``in_use``: what is held must have been offered.
        """
        now = {name: tuple(group) for name, group in groupby(fresh, attrgetter("resource"))}
        for resource, devices in (self._last or {}).items():
            if settling or resource in in_use:
                now.setdefault(resource, devices)
        self._last, self._read_at, self._failure = now, self._clock(), ""
        return self._shown(now)

    def failed(self, error: KubeletError) -> tuple[OfferedDevice, ...] | None:
        """Give what stands in for an answer that failed, None where there is none."""
        if error.reason != self._failure:
            _log.warning("the devices on offer are not known afresh: %s", error)
        self._failure = error.reason
        if error.reason in _PERMANENT or self._clock() - self._read_at > KEPT:
            self.forget()
        return None if self._last is None else self._shown(self._last)

    def forget(self) -> None:
        """Drop the last good answer: the kubelet no longer tells what is on offer."""
        self._last = None

    @staticmethod
    def _shown(offers: dict[str, tuple[OfferedDevice, ...]]) -> tuple[OfferedDevice, ...]:
        return tuple(device for resource in sorted(offers) for device in offers[resource])
