"""The devices as the driver's handles show them, and the pointers that stand for them.

A handle is an opaque pointer. It stays the same while its device exists and is never given out again, so
that the handle of a MIG device that was destroyed is recognised as such.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from exporter.demo.machine import GpuState, InstanceState
from exporter.demo.scenario.gpus import Gpu, MigInstance

_FIRST, _STRIDE = 0x7F00_0000_0000, 0x40
# Behind the pointer of each MIG device lies that of the GPU instance around it.
GPU_INSTANCE = 0x20


@dataclass(frozen=True, slots=True, kw_only=True)
class MigDevice:
    """A MIG device; ``slot`` is the index under its parent by which it is found."""

    address: int
    parent_address: int
    slot: int
    state: InstanceState
    gpu: GpuState
    lists_pids: bool

    @property
    def spec(self) -> MigInstance:
        """The device in the scenario."""
        return self.state.instance


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDevice:
    """A physical GPU with the MIG devices it is cut into, by slot.

    ``index`` is the one by which it is found. ``lists_pids`` is False where the caller sees none of the pids,
    so that process lists are empty. ``driver`` is the branch of the driver (550).
    """

    address: int
    index: int
    state: GpuState
    lists_pids: bool
    driver: int
    migs: Mapping[int, MigDevice]

    @property
    def spec(self) -> Gpu:
        """The GPU in the scenario."""
        return self.state.gpu


Device = GpuDevice | MigDevice


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """All devices at one moment. ``by_address`` holds MIG devices too, ``lost`` are uuids of GPUs."""

    gpus: tuple[GpuDevice, ...] = ()
    by_address: Mapping[int, Device] = field(default_factory=dict)
    lost: frozenset[str] = frozenset()

    def is_lost(self, device: Device) -> bool:
        """Whether the GPU of a device, or the GPU that it is, is lost."""
        return (device.gpu.gpu if isinstance(device, MigDevice) else device.spec).uuid in self.lost


class Handles:
    """Gives every device its pointer."""

    def __init__(self, *, driver: int, lists_pids: bool = True) -> None:
        self._driver = driver
        self._lists_pids = lists_pids
        self._addresses: dict[tuple[object, ...], int] = {}
        self._given = 0

    def board(self, gpus: Collection[GpuState], lost: Iterable[str] = ()) -> Board:
        """Make the board of these GPUs; devices that are no longer among them lose their pointer for good."""
        devices = tuple(self._gpu(state, index) for index, state in enumerate(gpus))
        known: dict[int, Device] = {}
        for device in devices:
            known[device.address] = device
            known.update({mig.address: mig for mig in device.migs.values()})
        self._addresses = {key: address for key, address in self._addresses.items() if address in known}
        return Board(gpus=devices, by_address=known, lost=frozenset(lost))

    def _gpu(self, state: GpuState, index: int) -> GpuDevice:
        address = self._address(state.gpu.uuid)
        return GpuDevice(
            address=address,
            index=index,
            state=state,
            migs=self._migs(state, address),
            lists_pids=self._lists_pids,
            driver=self._driver,
        )

    def _migs(self, gpu: GpuState, parent: int) -> dict[int, MigDevice]:
        migs: dict[int, MigDevice] = {}
        for state in gpu.instances:
            cut = state.instance
            # The driver's slots follow the placement, so a GPU that is not full has empty ones between.
            slot = cut.start + cut.ci
            while slot in migs:
                slot += 1
            address = self._address(gpu.gpu.uuid, cut.uuid, cut.gi, cut.ci, cut.profile)
            migs[slot] = MigDevice(
                address=address,
                parent_address=parent,
                slot=slot,
                state=state,
                gpu=gpu,
                lists_pids=self._lists_pids,
            )
        return migs

    def _address(self, *key: object) -> int:
        if key not in self._addresses:
            self._given += 1
            self._addresses[key] = _FIRST + self._given * _STRIDE
        return self._addresses[key]
