"""The series of a profiling metric, and the rates that a counter replaces."""

import re
from types import SimpleNamespace

import pytest

from exporter.metrics.profiling import GPU_PROFILING, MIG_PROFILING
from exporter.model import GpuIdentity, GpuReading, GpuRow, MigReading, Profile

RATES = {"pcie_transmit": 5.5, "nvlink_receive": 7.0}


def gpu(up=True, **values) -> GpuRow:
    """Return the row of a GPU with these values in its reading."""
    identity = GpuIdentity(uuid="GPU-a", index=0)
    return GpuRow(identity=identity, reading=GpuReading(identity=identity, up=up, **values))


def printed(row, families=GPU_PROFILING) -> dict:
    """Return the values of the families for a row: numbers, and the labels of info families."""
    found = {}
    for family in families:
        value = list(family.samples(row)) if family.type == "info" else family.value(row)
        found |= {family.name: value} if value not in (None, []) else {}
    return found


@pytest.mark.parametrize("up", [True, False])
def test_a_meter_is_printed_while_its_gpu_answers(up):
    """Shares, engines and cycles under the names of their parts, with the name of the meter."""
    profile = Profile(source="gpm", active={"sm": 0.5}, engines={"ofa": 0.1}, cycles={"mma": 7})
    expected = {
        "gpuslice_gpu_profiling_info": [(("gpm",), 1)],
        "gpuslice_gpu_sm_active_ratio": 0.5,
        "gpuslice_gpu_ofa_active_ratio": 0.1,
        "gpuslice_gpu_tensor_active_cycles_total": 7,
    }
    assert printed(gpu(up, profiling=profile)) == (expected if up else {})


def test_a_rate_is_printed_without_a_byte_counter():
    """Prometheus can compute the rate of a counter itself, over any range."""
    profile = Profile(source="gpm", rates=RATES)
    found = printed(gpu(profiling=profile, traffic_bytes={"pcie_transmit": 9}))
    del found["gpuslice_gpu_profiling_info"]
    assert found == {
        "gpuslice_gpu_pcie_transmit_bytes_total": 9,
        "gpuslice_gpu_nvlink_receive_bytes_per_second": 7.0,
    }


def test_bytes_come_from_one_counter():
    """The bytes of another meter, which started at another time, never replace those of the driver."""
    profile = Profile(source="dcgm", rates=RATES, bytes_total={"pcie_transmit": 9})
    found = printed(gpu(profiling=profile, traffic_bytes={"nvlink_receive": 12}))
    assert "gpuslice_gpu_pcie_transmit_bytes_total" not in found
    assert found["gpuslice_gpu_nvlink_receive_bytes_total"] == 12
    assert printed(gpu(traffic_bytes={"pcie_receive": 3})) == {"gpuslice_gpu_pcie_receive_bytes_total": 3}


def test_a_mig_device_has_the_rows_of_a_gpu_but_its_links():
    """PCIe, NVLink and the counts of cycles are the whole GPU's."""
    names = {
        family.name.replace("_gpu_", "_mig_")
        for family in GPU_PROFILING
        if not re.search("_bytes_|_cycles_", family.name)
    }
    assert {family.name for family in MIG_PROFILING} == names
    reading = MigReading(uuid="MIG-a", gi=1, ci=0, profiling=Profile(source="dcgm", active={"dram": 0.2}))
    assert printed(SimpleNamespace(reading=reading), MIG_PROFILING) == {
        "gpuslice_mig_profiling_info": [(("dcgm",), 1)],
        "gpuslice_mig_dram_active_ratio": 0.2,
    }
