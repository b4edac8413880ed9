"""The series of a profiling metric, and the rates that a counter replaces."""

import re
from types import SimpleNamespace

import pytest

from exporter.metrics import Family
from exporter.metrics.profiling import GPU_PROFILING, MIG_PROFILING
from exporter.model import GpuIdentity, GpuReading, GpuRow, MigReading, Profile

RATES = {"pcie_transmit": 5.5, "nvlink_receive": 7.0}


def gpu(up=True, **values) -> GpuRow:
    """Return the row of a GPU with these values in its reading."""
    identity = GpuIdentity(uuid="GPU-a", index=0)
    return GpuRow(identity=identity, reading=GpuReading(identity=identity, up=up, **values))


def printed(row, families=GPU_PROFILING) -> dict:
    """Return the values of the families for a row: numbers, and the labels of info families."""
    values = {}
    for family in families:
        value = family.value(row) if isinstance(family, Family) else list(family.samples(row))
        values |= {family.name: value} if value not in (None, []) else {}
    return values


@pytest.mark.parametrize("up", [True, False])
def test_a_profile_is_printed_while_its_gpu_answers(up):
    profile = Profile(source="gpm", active={"sm": 0.5}, engines={"ofa": 0.1}, cycles={"mma": 7})
    expected = {
        "gpuslice_gpu_profiling_info": [(("gpm",), 1)],
        "gpuslice_gpu_sm_active_ratio": 0.5,
        "gpuslice_gpu_ofa_active_ratio": 0.1,
        "gpuslice_gpu_tensor_active_cycles_total": 7,
    }
    assert printed(gpu(up, profiling=profile)) == (expected if up else {})


def test_a_rate_is_printed_only_without_a_byte_counter():
    """Prometheus can compute the rate of a counter over any range."""
    profile = Profile(source="gpm", rates=RATES)
    values = printed(gpu(profiling=profile, traffic_bytes={"pcie_transmit": 9}))
    del values["gpuslice_gpu_profiling_info"]
    assert values == {
        "gpuslice_gpu_pcie_transmit_bytes_total": 9,
        "gpuslice_gpu_nvlink_receive_bytes_per_second": 7.0,
    }


def test_bytes_of_a_profile_never_replace_those_of_the_driver():
    """They started at another time."""
    profile = Profile(source="dcgm", rates=RATES, bytes_total={"pcie_transmit": 9})
    values = printed(gpu(profiling=profile, traffic_bytes={"nvlink_receive": 12}))
    assert "gpuslice_gpu_pcie_transmit_bytes_total" not in values
    assert values["gpuslice_gpu_nvlink_receive_bytes_total"] == 12
    assert printed(gpu(traffic_bytes={"pcie_receive": 3})) == {"gpuslice_gpu_pcie_receive_bytes_total": 3}


def test_a_mig_device_has_the_families_of_a_gpu_except_links_cycles_and_switches():
    names = {
        family.name.replace("_gpu_", "_mig_")
        for family in GPU_PROFILING
        if not re.search("_bytes_|_cycles_|_context_switch_", family.name)
    }
    assert {family.name for family in MIG_PROFILING} == names
    reading = MigReading(uuid="MIG-a", gi=1, ci=0, profiling=Profile(source="dcgm", active={"dram": 0.2}))
    assert printed(SimpleNamespace(reading=reading), MIG_PROFILING) == {
        "gpuslice_mig_profiling_info": [(("dcgm",), 1)],
        "gpuslice_mig_dram_active_ratio": 0.2,
    }
