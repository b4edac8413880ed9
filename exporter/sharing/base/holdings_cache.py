"""A cache of the holdings from poll to poll, while their inputs are unchanged.

Pods come and go in minutes, and polls in seconds. The systems get only the fixed part of a GPU, so that
holdings cannot depend on anything that is not compared. What this saves: docs/decisions.md.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from exporter.model import Allocations, DeviceProcess, GpuReading, Holdings, Memory, MigReading
from exporter.sharing.base.view import NodeFacts

Resolve = Callable[[tuple[GpuReading, ...], Allocations | None, NodeFacts], Holdings]
MPS = "mps"


class KeptHoldings:
    """Calls ``resolve`` if devices, ids, pods or files differ from those of the last call.

    ``resolve`` must depend on its arguments only, and not on the time when the kubelet was read.
    """

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._inputs: tuple[Any, ...] | None = None
        self._holdings = Holdings(known=False)

    def of(self, gpus: Iterable[GpuReading], allocations: Allocations | None, facts: NodeFacts) -> Holdings:
        """Return the holdings of the node."""
        fixed = tuple(map(fixed_part, gpus))
        inputs = (fixed, allocations and replace(allocations, read_at=0.0), facts)
        if inputs != self._inputs:
            # A failed call is repeated at the next poll.
            self._inputs = None
            self._holdings = self._resolve(fixed, allocations, facts)
            self._inputs = inputs
        return self._holdings


def fixed_part(gpu: GpuReading) -> GpuReading:
    """Return a reading without use, except that of vGPUs, which their meters need."""
    return GpuReading(
        identity=gpu.identity,
        up=gpu.up,
        memory=_size(gpu.memory),
        compute_mode=gpu.compute_mode,
        virtualization=gpu.virtualization,
        vgpus=gpu.vgpus,
        mig_enabled=gpu.mig_enabled,
        mig_slices=gpu.mig_slices,
        mig=None if gpu.mig is None else tuple(map(_fixed_part, gpu.mig)),
        mig_complete=gpu.mig_complete,
        processes=_clients(gpu.processes),
    )


def _fixed_part(mig: MigReading) -> MigReading:
    return replace(
        mig,
        memory=_size(mig.memory),
        bar1=None,
        profiling=None,
        utilization_percent=None,
        processes=_clients(mig.processes),
        process_utilization=None,
    )


def _size(memory: Memory | None) -> Memory | None:
    # Holdings do not depend on the memory in use.
    return memory and Memory(total=memory.total, used=0, free=memory.total)


def _clients(processes: tuple[DeviceProcess, ...] | None) -> tuple[DeviceProcess, ...] | None:
    """Return one MPS client if there is any: it shows that MPS is in use."""
    if processes is None:
        return None
    client = next((process for process in processes if MPS in process.kinds), None)
    return () if client is None else (replace(client, memory=None),)
