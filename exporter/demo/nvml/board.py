"""Devices by their handles, and the list of GPUs that an open library keeps.

A handle is an opaque pointer. It stays the same while its device exists and is never reused, so that the
handle of a destroyed MIG device is recognised as such.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

from exporter.demo.machine import GpuState, InstanceState
from exporter.demo.scenario.gpus import Gpu, MigInstance

_FIRST, _STRIDE = 0x7F00_0000_0000, 0x40
# The pointer of a GPU instance, from that of its first MIG device.
GPU_INSTANCE = 0x20


@dataclass(frozen=True, slots=True, kw_only=True)
class MigDevice:
    """A MIG device of ``gpu``."""

    address: int
    parent_address: int
    state: InstanceState
    gpu: GpuState

    @property
    def spec(self) -> MigInstance:
        """The device in the scenario."""
        return self.state.instance


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDevice:
    """A physical GPU."""

    address: int
    state: GpuState
    migs: Mapping[int, MigDevice]  # by their index

    @property
    def spec(self) -> Gpu:
        """The GPU in the scenario."""
        return self.state.gpu

    @property
    def gpu(self) -> GpuState:
        """The state, under the name that a MIG device has for its parent's."""
        return self.state


Device = GpuDevice | MigDevice


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """All devices at one moment."""

    gpus: tuple[GpuDevice, ...] = ()
    by_address: Mapping[int, Device] = field(default_factory=dict)  # GPUs and MIG devices
    lost: frozenset[str] = frozenset()  # uuids of GPUs


class GpuList:
    """The GPUs of one library, in NVML's order, and the handles of all devices."""

    def __init__(self) -> None:
        self._addresses: dict[tuple[object, ...], int] = {}
        self._handles = count(_FIRST, _STRIDE)
        self._lost: frozenset[str] = frozenset()
        self._present: dict[str, GpuState] = {}
        self._opened: dict[str, GpuState] | None = None

    def show(self, gpus: tuple[GpuState, ...]) -> Board:
        """Replace the GPUs of the node; an open library keeps its list, and loses those that are missing."""
        self._present = {state.gpu.uuid: state for state in gpus}
        if self._opened is not None:
            self._lost |= self._opened.keys() - self._present.keys()
            for uuid in self._opened.keys() - self._lost:
                self._opened[uuid] = self._present[uuid]
        return self._board()

    def open(self) -> Board:
        """Keep to the GPUs that are present now."""
        self._opened, self._lost = dict(self._present), frozenset()
        return self._board()

    def close(self) -> None:
        """List whatever GPUs are present."""
        self._opened, self._lost = None, frozenset()

    def _board(self) -> Board:
        """Return the devices now, lost GPUs as they last were; handles of vanished devices become invalid."""
        states = (self._present if self._opened is None else self._opened).values()
        gpus = tuple(map(self._gpu, states))
        by_address: dict[int, Device] = {}
        for gpu in gpus:
            by_address[gpu.address] = gpu
            by_address.update({mig.address: mig for mig in gpu.migs.values()})
        self._addresses = {key: address for key, address in self._addresses.items() if address in by_address}
        return Board(gpus=gpus, by_address=by_address, lost=self._lost)

    def _gpu(self, state: GpuState) -> GpuDevice:
        address = self._address(state.gpu.uuid)
        migs: dict[int, MigDevice] = {}
        for inside in state.instances:
            instance = inside.instance
            # NVML's indexes follow the placement, so a GPU that is not full has unused ones in between.
            index = instance.start + instance.ci
            while index in migs:
                index += 1
            key = state.gpu.uuid, instance.uuid, instance.gi, instance.ci, instance.profile
            own_address = self._address(*key)
            migs[index] = MigDevice(address=own_address, parent_address=address, state=inside, gpu=state)
        return GpuDevice(address=address, state=state, migs=migs)

    def _address(self, *key: object) -> int:
        if key not in self._addresses:
            self._addresses[key] = next(self._handles)
        return self._addresses[key]
