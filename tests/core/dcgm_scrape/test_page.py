"""Series of profiling are read under every name and label that they have had."""

import pytest

from exporter.dcgm_scrape import DcgmReading
from exporter.dcgm_scrape.fields import BLANK_DOUBLE, FIELDS, PREFIX
from exporter.dcgm_scrape.page import read_page
from exporter.metrics.dcgm import DCGM
from exporter.metrics.dcgm.dialects import RENAMED
from exporter.model import Profile
from tests.core.dcgm_scrape.serving import page, sample

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
    """DCGM 4.6 renamed its fields."""
    lines = [sample(name, f"{number / 100:f}") for number, name in enumerate(names)]

    assert _profile(*lines).active == {key: number / 100 for number, key in enumerate(names.values())}
    assert list(OLD.values()) == list(NEW.values())


def test_names_of_the_first_version_of_dcgm_exporter_are_read() -> None:
    """In lower case, with the label uuid."""
    line = f'dcgm_fi_prof_gr_engine_active{{gpu="0",uuid="GPU-9",device="nvidia0"}} {0.5:f}'

    assert _reading(line).profiles["GPU-9", None].active == {"graphics_engine": 0.5}


def test_traffic_is_a_rate() -> None:
    """In bytes per second, whether the page has a gauge or a counter."""
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
    lines = [
        sample(form.format("NVDEC", 0), "1.0"),
        sample(form.format("NVDEC", 4), "0.5"),
        sample(form.format("NVJPG", 0), "0.25"),
        sample(form.format("NVOFA", 1), "0.0"),
    ]

    assert _profile(*lines).engines == {"decoder": 0.75, "jpeg": 0.25, "ofa": 0.0}


def test_counters_are_exact_integers() -> None:
    profile = _profile(
        sample("SM_CYCLES_ELAPSED_TOTAL", 2**60 + 1),
        sample("SM_CYCLES_ACTIVE_TOTAL", 7),
        sample("PCIE_TX_BYTES_TOTAL", 2**53 + 1),
    )

    assert profile.cycles == {"sm_elapsed": 2**60 + 1, "sm_active": 7}
    assert profile.bytes_total == {"pcie_transmit": 2**53 + 1}
    assert not profile.active


def test_gpu_instances_are_devices_of_their_own() -> None:
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
def test_blanks_and_shares_above_one_are_left_out(value) -> None:
    assert _profile(sample("SM_ACTIVE", value), sample("DRAM_ACTIVE", "0.5")).active == {"dram": 0.5}


@pytest.mark.parametrize(
    "value", [0x7FFFFFF0, 0x7FFFFFF3, 0x7FFFFFFFFFFFFFF0, "140737488355328.000000", "NaN"]
)
@pytest.mark.parametrize("field", ["PCIE_TX_BYTES", "SM_CYCLES_ACTIVE_TOTAL"])
def test_blanks_are_neither_rates_nor_counts(field, value) -> None:
    reading = _reading(sample(field, value))

    assert reading.profiles == {}


def test_a_share_just_above_one_is_one() -> None:
    """From sampling and rounding."""
    assert _profile(sample("SM_ACTIVE", "1.004000")).active == {"sm": 1.0}


def test_equal_series_of_several_pods_are_one_reading() -> None:
    profile = _profile(
        sample("SM_ACTIVE", "0.5", namespace="a", pod="one", container="main"),
        sample("SM_ACTIVE", "0.5", namespace="a", pod="two", container="main", vgpu="1"),
    )

    assert profile.active == {"sm": 0.5}


def test_contradicting_series_are_left_out() -> None:
    """A third value does not decide."""
    profile = _profile(
        sample("SM_ACTIVE", "0.5", pod="one"),
        sample("SM_ACTIVE", "0.6", pod="two"),
        sample("SM_ACTIVE", "0.6", pod="three"),
        sample("SM_UTIL_RATIO", "0.6"),
        sample("DRAM_ACTIVE", "0.123457"),
    )

    assert profile.active == {"dram": 0.123457}


def test_a_page_with_old_and_new_names_has_each_value_once() -> None:
    """As while the file of counters lists both, whichever labels of the node and the driver they have."""
    old = {"Hostname": "a", "DCGM_FI_DRIVER_VERSION": "580.1"}
    new = {"hostname": "a", "DCGM_FI_SYSTEM_DRIVER_VERSION": "580.1"}
    lines = [
        *(sample(name, f"{number / 100:f}", **old) for number, name in enumerate(OLD)),
        *(sample(name, number / 100, **new) for number, name in enumerate(NEW)),
        sample("NVDEC0_ACTIVE", "1.0", **old),
        sample("NVDEC_UTIL_0_RATIO", "1.0", **new),
        sample("NVDEC_UTIL_4_RATIO", "0.5", **new),
        sample("PCIE_TX_BYTES", 7, **old),
        sample("PCIE_TX_BYTES", 7, **old, **new),
    ]
    profile = _profile(*lines)

    assert profile.active == {key: number / 100 for number, key in enumerate(OLD.values())}
    assert profile.engines == {"decoder": 0.75}
    assert profile.rates == {"pcie_transmit": 7}


def test_a_blank_under_one_name_leaves_the_value_of_the_other() -> None:
    assert _profile(sample("SM_ACTIVE", BLANK_DOUBLE), sample("SM_UTIL_RATIO", "0.5")).active == {"sm": 0.5}


def test_the_unit_is_that_of_the_name() -> None:
    """A percentage is not a ratio, however likely it looks; it is counted as impossible."""
    reading = _reading(sample("SM_UTIL_RATIO", "50"), sample("DRAM_UTIL_RATIO", "0.5"))

    assert reading.profiles["GPU-1", None].active == {"dram": 0.5}
    assert reading.unreadable == 1


def test_the_names_are_those_of_the_table_of_dialects() -> None:
    """Each field of profiling that this exporter prints is read, under both of its names."""
    renamed = {field.old: field.new for field in RENAMED if field.old.startswith(PREFIX)}
    printed = {family.name for family in DCGM["both"] if family.name.startswith(PREFIX)}

    assert len(renamed) == len(OLD)
    assert printed <= FIELDS.keys()
    assert [old for old, new in renamed.items() if FIELDS[old] != FIELDS[new]] == []


def test_series_without_a_device_are_left_out() -> None:
    reading = _reading(
        sample("SM_ACTIVE", "0.5", uuid=""),
        sample("SM_ACTIVE", "0.5", GPU_I_ID="all"),
        sample("SOMETHING_NEW", "0.5"),
    )

    assert (reading.profiles, reading.unreadable) == ({}, 0)
