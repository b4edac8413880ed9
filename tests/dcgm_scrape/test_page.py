"""Each series of profiling is read for what it is, under every name and label it has had."""

import math

import pytest

from exporter.dcgm_scrape import DcgmReading
from exporter.dcgm_scrape.page import read_page
from exporter.model import Profile
from tests.dcgm_scrape.serving import page, sample

OLD = {
    "GR_ENGINE_ACTIVE": "graphics_engine",
    "SM_ACTIVE": "sm",
    "SM_OCCUPANCY": "sm_occupancy",
    "PIPE_TENSOR_ACTIVE": "tensor",
    "PIPE_TENSOR_IMMA_ACTIVE": "tensor_imma",
    "PIPE_TENSOR_HMMA_ACTIVE": "tensor_hmma",
    "PIPE_TENSOR_DFMA_ACTIVE": "tensor_dfma",
    "DRAM_ACTIVE": "dram",
    "PIPE_FP64_ACTIVE": "fp64",
    "PIPE_FP32_ACTIVE": "fp32",
    "PIPE_FP16_ACTIVE": "fp16",
    "PIPE_INT_ACTIVE": "integer",
}
NEW = {
    "GR_ENGINE_UTIL_RATIO": "graphics_engine",
    "SM_UTIL_RATIO": "sm",
    "SM_OCCUPANCY_RATIO": "sm_occupancy",
    "TENSOR_UTIL_RATIO": "tensor",
    "IMMA_UTIL_RATIO": "tensor_imma",
    "HMMA_UTIL_RATIO": "tensor_hmma",
    "DFMA_UTIL_RATIO": "tensor_dfma",
    "DRAM_UTIL_RATIO": "dram",
    "FP64_UTIL_RATIO": "fp64",
    "FP32_UTIL_RATIO": "fp32",
    "FP16_UTIL_RATIO": "fp16",
    "INT_UTIL_RATIO": "integer",
}


def _reading(*samples: str) -> DcgmReading:
    return read_page(page(*samples).decode(), oldest=0.0)


def _profile(*samples: str) -> Profile:
    (profile,) = _reading(*samples).profiles.values()
    return profile


@pytest.mark.parametrize("names", [OLD, NEW], ids=["old", "new"])
def test_shares_are_read_by_old_and_new_names(names) -> None:
    """Each field of DCGM is the same activity before and after DCGM 4.6 renamed it."""
    lines = [sample(name, f"{number / 100:f}") for number, name in enumerate(names)]

    assert _profile(*lines).active == {key: number / 100 for number, key in enumerate(names.values())}
    assert list(OLD.values()) == list(NEW.values())


def test_the_names_of_its_first_version_are_read() -> None:
    """The compatible file of counters has the fields in lower case and the label uuid."""
    line = f'dcgm_fi_prof_gr_engine_active{{gpu="0",uuid="GPU-9",device="nvidia0"}} {0.5:f}'

    assert _reading(line).profiles["GPU-9", None].active == {"graphics_engine": 0.5}


def test_traffic_is_a_rate() -> None:
    """Bytes per second, whether the page calls them a gauge or a counter; transmitted is by the GPU."""
    lines = (
        sample("PCIE_TX_BYTES", 3_000_000_000),
        sample("PCIE_RX_BYTES", 2),
        sample("NVLINK_TX_BYTES", 3),
        sample("NVLINK_RX_BYTES", 0),
    )
    expected = {
        "pcie_transmit": 3_000_000_000,
        "pcie_receive": 2,
        "nvlink_transmit": 3,
        "nvlink_receive": 0,
    }
    as_counters = page(*lines).decode().replace(" gauge", " counter")

    assert _profile(*lines).rates == expected
    assert read_page(as_counters, oldest=0.0).profiles["GPU-1", None].rates == expected


@pytest.mark.parametrize("form", ["{}{}_ACTIVE", "{}_UTIL_{}_RATIO"])
def test_engines_of_a_kind_are_averaged(form) -> None:
    """The share of decoders is that of all decoders that were told."""
    lines = [
        sample(form.format("NVDEC", 0), "1.0"),
        sample(form.format("NVDEC", 4), "0.5"),
        sample(form.format("NVJPG", 0), "0.25"),
        sample(form.format("NVOFA", 1), "0.0"),
    ]

    assert _profile(*lines).engines == {"decoder": 0.75, "jpeg": 0.25, "ofa": 0.0}


def test_counters_are_whole_numbers() -> None:
    """Cycles and bytes since start are kept to the last digit."""
    profile = _profile(
        sample("SM_CYCLES_ELAPSED_TOTAL", 2**60 + 1),
        sample("SM_CYCLES_ACTIVE_TOTAL", 7),
        sample("PCIE_TX_BYTES_TOTAL", 2**53 + 1),
    )

    assert profile.cycles == {"sm_elapsed": 2**60 + 1, "sm_active": 7}
    assert profile.bytes_total == {"pcie_transmit": 2**53 + 1}
    assert not profile.active


def test_instances_of_mig_are_devices_of_their_own() -> None:
    """A GPU instance is told by the UUID of its GPU and its id; a whole GPU beside it is another device."""
    reading = _reading(
        sample("SM_ACTIVE", "0.1", GPU_I_PROFILE="1g.5gb", GPU_I_ID=7),
        sample("SM_ACTIVE", "0.2", GPU_I_PROFILE="1g.5gb", GPU_I_ID=13),
        sample("SM_ACTIVE", "0.3", uuid="GPU-2"),
    )

    assert {device: profile.active["sm"] for device, profile in reading.profiles.items()} == {
        ("GPU-1", 7): 0.1,
        ("GPU-1", 13): 0.2,
        ("GPU-2", None): 0.3,
    }
    assert {profile.source for profile in reading.profiles.values()} == {"dcgm"}


@pytest.mark.parametrize(
    "value",
    [
        "NaN",
        "+Inf",
        "-0.01",
        "1.02",
        "1.294",
        "50",
        *(str(0x7FFFFFF0 + kind) for kind in range(4)),
        *(str(0x7FFFFFFFFFFFFFF0 + kind) for kind in range(4)),
        *(f"{140737488355328.0 + kind:f}" for kind in range(4)),
    ],
)
def test_what_is_no_share_is_left_out(value) -> None:
    """Blanks of every kind, and shares of more than everything, leave no reading behind."""
    assert _profile(sample("SM_ACTIVE", value), sample("DRAM_ACTIVE", "0.5")).active == {"dram": 0.5}


@pytest.mark.parametrize(
    "value", [0x7FFFFFF0, 0x7FFFFFF3, 0x7FFFFFFFFFFFFFF0, "140737488355328.000000", "NaN"]
)
@pytest.mark.parametrize("field", ["PCIE_TX_BYTES", "SM_CYCLES_ACTIVE_TOTAL"])
def test_blanks_are_neither_rates_nor_counts(field, value) -> None:
    """A field that DCGM has no value for is not known."""
    reading = _reading(sample(field, value))

    assert reading.profiles == {}


def test_a_share_just_above_everything_is_everything() -> None:
    """Sampling and rounding may put a share a hair above one."""
    assert _profile(sample("SM_ACTIVE", "1.004000")).active == {"sm": 1.0}


def test_a_series_per_pod_counts_once() -> None:
    """On a shared GPU each pod has the series of the whole GPU; that is one reading."""
    profile = _profile(
        sample("SM_ACTIVE", "0.5", namespace="a", pod="one", container="main"),
        sample("SM_ACTIVE", "0.5", namespace="a", pod="two", container="main", vgpu="1"),
    )

    assert profile.active == {"sm": 0.5}


def test_series_that_contradict_each_other_are_not_believed() -> None:
    """Of two values for the same thing neither is taken, and a third does not decide."""
    profile = _profile(
        sample("SM_ACTIVE", "0.5", pod="one"),
        sample("SM_ACTIVE", "0.6", pod="two"),
        sample("SM_ACTIVE", "0.6", pod="three"),
        sample("SM_UTIL_RATIO", "0.6"),
        sample("DRAM_ACTIVE", "0.1"),
    )

    assert profile.active == {"dram": 0.1}


def test_what_belongs_to_no_device_is_left_out() -> None:
    """A series needs the UUID of its GPU, and an instance a number."""
    reading = _reading(
        sample("SM_ACTIVE", "0.5", uuid=""),
        sample("SM_ACTIVE", "0.5", GPU_I_ID="all"),
        sample("SOMETHING_NEW", "0.5"),
    )

    assert (reading.profiles, reading.unreadable) == ({}, 0)


def test_values_keep_six_digits() -> None:
    """Nothing is rounded on the way."""
    assert math.isclose(_profile(sample("SM_ACTIVE", "0.123457")).active["sm"], 0.123457, abs_tol=1e-12)
