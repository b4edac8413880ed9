"""A running container with a file of a sharing system, and what such a file says."""

from collections.abc import Mapping
from dataclasses import dataclass

from exporter.demo.machine import GpuState, ProcessState
from exporter.demo.scenario.pods import Container, MeterFile, Pod, Share
from exporter.model import DeviceUse

# Contents by path below the root of the node.
Files = Mapping[str, str | bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeteredContainer:
    """A running container with a file of a sharing system."""

    pod: Pod
    container: Container
    meter: MeterFile
    shares: tuple[Share, ...]
    processes: tuple[ProcessState, ...]  # of the container
    gpus: tuple[GpuState, ...]  # of the node

    @property
    def pids(self) -> tuple[int, ...]:
        """The pids of the container's processes on the host."""
        return tuple(state.pid for state in self.processes)

    def uses(self) -> list[DeviceUse]:
        """Return the limits and the use of each GPU of the container, in the order of the node's GPUs."""
        shares = {share.device: share for share in self.shares}
        uuids = [state.gpu.uuid for state in self.gpus]
        return [self._use(shares[uuid]) for uuid in uuids if uuid in shares]

    def _use(self, share: Share) -> DeviceUse:
        processes = [state for state in self.processes if state.running.process.device == share.device]
        return DeviceUse(
            device=share.device,
            memory_limit=share.memory or None,
            compute_limit=share.cores / 100 if share.cores else None,
            memory_used=sum(state.memory for state in processes),
            compute_used=sum(state.sm for state in processes) / 100,
        )
