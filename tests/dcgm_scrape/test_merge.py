"""What a dcgm-exporter says goes where the driver said nothing, and nowhere else."""

from dataclasses import replace

import pytest

from exporter.dcgm_scrape import DcgmReading, with_dcgm
from exporter.model import GpuIdentity, GpuReading, Memory, MigReading, Profile

IDENTITY = GpuIdentity(uuid="GPU-1", index=0)
MEMORY = Memory(total=4, used=1, free=3)


def _dcgm(**shares: float) -> Profile:
    return Profile(source="dcgm", active=shares)


def _mig(uuid: str, gi: int, ci: int = 0, slices: int | None = 1, of: int | None = 1, **more) -> MigReading:
    return MigReading(uuid=uuid, gi=gi, ci=ci, compute_slices=slices, instance_slices=of, **more)


def _merged(gpu: GpuReading, profiles: dict) -> GpuReading:
    (merged,) = with_dcgm((gpu,), DcgmReading(profiles=profiles))
    return merged


def test_a_gpu_without_a_meter_of_its_own_gets_the_profile() -> None:
    """Before Hopper the driver has none; the GPU is found by its UUID."""
    gpu = GpuReading(identity=IDENTITY)

    assert _merged(gpu, {("GPU-1", None): _dcgm(sm=0.5)}).profiling == _dcgm(sm=0.5)
    assert _merged(gpu, {("GPU-2", None): _dcgm(sm=0.5)}) == gpu


def test_the_driver_is_not_contradicted() -> None:
    """A value of the driver stays, and only what it lacks is filled in."""
    own = Profile(source="gpm", active={"sm": 0.4}, rates={"pcie_transmit": 10.0})
    told = Profile(
        source="dcgm",
        active={"sm": 0.9, "dram": 0.2},
        rates={"pcie_transmit": 99.0, "pcie_receive": 5.0},
        engines={"decoder": 0.3},
    )

    merged = _merged(GpuReading(identity=IDENTITY, profiling=own), {("GPU-1", None): told})

    assert merged.profiling == Profile(
        source="gpm",
        active={"sm": 0.4, "dram": 0.2},
        rates={"pcie_transmit": 10.0, "pcie_receive": 5.0},
        engines={"decoder": 0.3},
    )


@pytest.mark.parametrize("own", [None, Profile(source="gpm", cycles={"sm_elapsed": 20})])
def test_what_counts_never_changes_between_the_two(own: Profile | None) -> None:
    """A count that DCGM has read before the driver's own failed would look like a counter that fell."""
    told = Profile(
        source="dcgm", active={"sm": 0.5}, cycles={"sm_active": 8}, bytes_total={"pcie_receive": 9}
    )
    metered = GpuReading(identity=IDENTITY, profiling=own, mig=(_mig("MIG-a", 7, profiling=own),))
    page = {("GPU-1", None): told, ("GPU-1", 7): told}

    merged = _merged(metered, page)
    bare = _merged(replace(metered, unsupported=("nvmlGpmQueryDeviceSupport",), profiling=None), page)

    counted = {} if own is None else {"sm_elapsed": 20}
    for profile in (merged.profiling, merged.mig[0].profiling):
        assert (profile.active, profile.cycles, profile.bytes_total) == ({"sm": 0.5}, counted, {})
    assert bare.profiling == told


def test_mig_devices_get_the_profile_of_their_instance() -> None:
    """A device that fills its GPU instance is found by the GPU's UUID and the instance's id."""
    gpu = GpuReading(identity=IDENTITY, mig=(_mig("MIG-a", 7), _mig("MIG-b", 9, slices=3, of=3)))

    merged = _merged(gpu, {("GPU-1", 7): _dcgm(sm=0.1), ("GPU-1", 9): _dcgm(sm=0.9)})

    assert [mig.profiling for mig in merged.mig] == [_dcgm(sm=0.1), _dcgm(sm=0.9)]
    assert merged.profiling is None


def test_devices_that_share_an_instance_get_nothing() -> None:
    """The profile of a GPU instance says nothing about which of its compute instances was busy."""
    gpu = GpuReading(
        identity=IDENTITY, mig=(_mig("MIG-a", 7, 0, 1, 2), _mig("MIG-b", 7, 1, 1, 2), _mig("MIG-c", 8))
    )

    merged = _merged(gpu, {("GPU-1", 7): _dcgm(sm=0.1), ("GPU-1", 8): _dcgm(sm=0.2)})

    assert [mig.profiling for mig in merged.mig] == [None, None, _dcgm(sm=0.2)]


def test_a_device_that_does_not_fill_its_instance_gets_nothing() -> None:
    """Shares of a larger instance are not its shares; nor are they where the sizes are not known."""
    gpu = GpuReading(
        identity=IDENTITY, mig=(_mig("MIG-a", 7, slices=1, of=3), _mig("MIG-b", 8, slices=None, of=None))
    )

    merged = _merged(gpu, {("GPU-1", 7): _dcgm(sm=0.3), ("GPU-1", 8): _dcgm(sm=0.3)})

    assert merged == gpu


def test_a_device_that_was_not_told_costs_its_neighbours_nothing() -> None:
    """What fills its GPU instance has no neighbour there; what stands there bare may no longer exist."""
    told = _mig("MIG-a", 7, memory=MEMORY)
    gpu = GpuReading(identity=IDENTITY, mig=(told, _mig("MIG-b", 8)), mig_complete=False)

    merged = _merged(gpu, {("GPU-1", 7): _dcgm(sm=0.1), ("GPU-1", 8): _dcgm(sm=0.2)})

    assert [mig.profiling for mig in merged.mig] == [_dcgm(sm=0.1), None]


@pytest.mark.parametrize("complete", [True, False])
def test_several_that_are_said_to_fill_one_instance_get_nothing(complete: bool) -> None:
    """A driver whose attributes are wrong must not make two whole instances out of one."""
    mig = (_mig("MIG-a", 7, 0, memory=MEMORY), _mig("MIG-b", 7, 1, memory=MEMORY))
    gpu = GpuReading(identity=IDENTITY, mig=mig, mig_complete=complete)

    assert _merged(gpu, {("GPU-1", 7): _dcgm(sm=0.1)}) == gpu


def test_a_lost_gpu_stays_unknown() -> None:
    """Of a GPU that the driver lost, an older page of a dcgm-exporter proves nothing."""
    lost = GpuReading(identity=IDENTITY, up=False, mig=None)

    assert _merged(lost, {("GPU-1", None): _dcgm(sm=0.1)}) == lost


def test_unknown_mig_devices_stay_unknown() -> None:
    """A GPU whose MIG devices could not be listed does not look as if it had none."""
    gpu = GpuReading(identity=IDENTITY, mig=None)

    assert _merged(gpu, {("GPU-1", None): _dcgm(sm=0.1)}).mig is None
