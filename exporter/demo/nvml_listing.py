"""Which GPUs an open driver's library counts: those that were there when it was opened.

One that is plugged in later is not listed. One that is unplugged stays in its place and answers that it is
lost, even when it is plugged in again, until the library is opened anew.
"""

from collections.abc import Collection

from exporter.demo.machine import GpuState


class Listing:
    """Keeps the order of one library's GPUs, and what was last seen of each."""

    def __init__(self) -> None:
        self.lost: frozenset[str] = frozenset()
        self._there: dict[str, GpuState] = {}
        self._listed: dict[str, GpuState] | None = None

    @property
    def gpus(self) -> Collection[GpuState]:
        """The GPUs that are counted, in order, with those of ``lost`` as they were."""
        return (self._there if self._listed is None else self._listed).values()

    def show(self, gpus: tuple[GpuState, ...]) -> None:
        """Have these GPUs from now on."""
        self._there = {state.gpu.uuid: state for state in gpus}
        if self._listed is not None:
            self.lost |= self._listed.keys() - self._there.keys()
            for uuid in self._listed.keys() - self.lost:
                self._listed[uuid] = self._there[uuid]

    def open(self) -> None:
        """Count the GPUs that are there now, and stay with them."""
        self._listed, self.lost = dict(self._there), frozenset()

    def close(self) -> None:
        """Count whatever is there."""
        self._listed, self.lost = None, frozenset()
