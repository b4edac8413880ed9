"""Readings of a dcgm-exporter fill in what the driver does not report, and nothing else."""

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


def test_a_gpu_without_a_profile_of_its_driver_gets_that_of_its_uuid() -> None:
    """Drivers have none before Hopper."""
    gpu = GpuReading(identity=IDENTITY)

    assert _merged(gpu, {("GPU-1", None): _dcgm(sm=0.5)}).profiling == _dcgm(sm=0.5)
    assert _merged(gpu, {("GPU-2", None): _dcgm(sm=0.5)}) == gpu


def test_values_of_the_driver_stay_and_missing_ones_are_added() -> None:
    own = Profile(source="gpm", active={"sm": 0.4}, rates={"pcie_transmit": 10.0})
    scraped = Profile(
        source="dcgm",
        active={"sm": 0.9, "dram": 0.2},
        rates={"pcie_transmit": 99.0, "pcie_receive": 5.0},
        engines={"decoder": 0.3},
    )

    merged = _merged(GpuReading(identity=IDENTITY, profiling=own), {("GPU-1", None): scraped})

    assert merged.profiling == Profile(
        source="gpm",
        active={"sm": 0.4, "dram": 0.2},
        rates={"pcie_transmit": 10.0, "pcie_receive": 5.0},
        engines={"decoder": 0.3},
    )


@pytest.mark.parametrize("own", [None, Profile(source="gpm", cycles={"sm_elapsed": 20})])
def test_counters_of_dcgm_never_replace_those_of_the_driver(own: Profile | None) -> None:
    """If the driver's fail for a moment, another count would look like a counter that fell."""
    scraped = Profile(
        source="dcgm", active={"sm": 0.5}, cycles={"sm_active": 8}, bytes_total={"pcie_receive": 9}
    )
    metered = GpuReading(identity=IDENTITY, profiling=own, mig=(_mig("MIG-a", 7, profiling=own),))
    page = {("GPU-1", None): scraped, ("GPU-1", 7): scraped}

    merged = _merged(metered, page)
    bare = _merged(replace(metered, unsupported=("nvmlGpmQueryDeviceSupport",), profiling=None), page)

    counted = {} if own is None else {"sm_elapsed": 20}
    for profile in (merged.profiling, merged.mig[0].profiling):
        assert (profile.active, profile.cycles, profile.bytes_total) == ({"sm": 0.5}, counted, {})
    assert bare.profiling == scraped


def test_a_mig_device_that_fills_its_gpu_instance_gets_its_profile() -> None:
    gpu = GpuReading(identity=IDENTITY, mig=(_mig("MIG-a", 7), _mig("MIG-b", 9, slices=3, of=3)))

    merged = _merged(gpu, {("GPU-1", 7): _dcgm(sm=0.1), ("GPU-1", 9): _dcgm(sm=0.9)})

    assert [mig.profiling for mig in merged.mig] == [_dcgm(sm=0.1), _dcgm(sm=0.9)]
    assert merged.profiling is None


def test_compute_instances_that_share_a_gpu_instance_get_no_profile() -> None:
    gpu = GpuReading(
        identity=IDENTITY, mig=(_mig("MIG-a", 7, 0, 1, 2), _mig("MIG-b", 7, 1, 1, 2), _mig("MIG-c", 8))
    )

    merged = _merged(gpu, {("GPU-1", 7): _dcgm(sm=0.1), ("GPU-1", 8): _dcgm(sm=0.2)})

    assert [mig.profiling for mig in merged.mig] == [None, None, _dcgm(sm=0.2)]


def test_a_device_that_does_not_fill_its_gpu_instance_gets_no_profile() -> None:
    """Nor if the sizes are unknown."""
    gpu = GpuReading(
        identity=IDENTITY, mig=(_mig("MIG-a", 7, slices=1, of=3), _mig("MIG-b", 8, slices=None, of=None))
    )

    merged = _merged(gpu, {("GPU-1", 7): _dcgm(sm=0.3), ("GPU-1", 8): _dcgm(sm=0.3)})

    assert merged == gpu


def test_with_an_incomplete_list_only_devices_with_readings_get_a_profile() -> None:
    """A device without readings may no longer exist."""
    complete = _mig("MIG-a", 7, memory=MEMORY)
    gpu = GpuReading(identity=IDENTITY, mig=(complete, _mig("MIG-b", 8)), mig_complete=False)

    merged = _merged(gpu, {("GPU-1", 7): _dcgm(sm=0.1), ("GPU-1", 8): _dcgm(sm=0.2)})

    assert [mig.profiling for mig in merged.mig] == [_dcgm(sm=0.1), None]


@pytest.mark.parametrize("complete", [True, False])
def test_two_devices_that_both_fill_one_instance_get_no_profile(complete: bool) -> None:
    """A driver with wrong attributes must not make two whole instances of one."""
    mig = (_mig("MIG-a", 7, 0, memory=MEMORY), _mig("MIG-b", 7, 1, memory=MEMORY))
    gpu = GpuReading(identity=IDENTITY, mig=mig, mig_complete=complete)

    assert _merged(gpu, {("GPU-1", 7): _dcgm(sm=0.1)}) == gpu


def test_a_lost_gpu_stays_unknown() -> None:
    lost = GpuReading(identity=IDENTITY, up=False, mig=None)

    assert _merged(lost, {("GPU-1", None): _dcgm(sm=0.1)}) == lost


def test_unknown_mig_devices_stay_unknown() -> None:
    gpu = GpuReading(identity=IDENTITY, mig=None)

    assert _merged(gpu, {("GPU-1", None): _dcgm(sm=0.1)}).mig is None
