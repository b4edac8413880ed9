"""Decoding of GPM metrics, and drivers that fail on an unknown id."""

import math
from collections.abc import Mapping
from typing import Any

import pynvml
import pytest

from exporter.model import Profile
from exporter.nvml.driver.calls import Calls
from exporter.nvml.readings.gpm import GpmReader
from exporter.nvml.readings.gpm_metrics import (
    ENTRY,
    METRICS,
    OF_COMPUTE_INSTANCE,
    OF_GPU,
    OF_GPU_WITHOUT_SWITCHES,
    decode,
    first_known,
)
from tests.core.hardware import tiny
from tests.core.hardware.making import ticking

GRAPHICS, SM, DRAM, ENCODER, ELAPSED = 1, 2, 10, 166, 248


def decoded(values: list[tuple[int, float]]) -> Profile:
    """Decode values by metric number."""
    return decode((METRICS[number], raw) for number, raw in values)[0]


@pytest.mark.parametrize(
    ("raw", "share"),
    [
        (0.0, 0.0),
        (37.5, 0.375),
        (100.0, 1.0),
        (100.6, 1.0),
        (102.0, None),
        (4e9, None),
        (-0.5, None),
        (math.nan, None),
        (math.inf, None),
    ],
)
def test_implausible_shares_are_unknown(raw: float, share: float | None):
    """Slightly above 100 % is the noise of sampling."""
    assert decoded([(SM, raw)]).active.get("sm") == share


def test_traffic_is_in_bytes_per_second_by_direction():
    """The driver counts MiB, and receives on NVLink before it transmits."""
    profile = decoded([(20, 1.0), (21, 2.0), (60, 3.5), (61, math.nan), (255, 1e15), (256, -1.0)])
    assert profile.rates == {
        "pcie_transmit": 1 << 20,
        "pcie_receive": 2 << 20,
        "nvlink_receive": 3.5 * (1 << 20),
    }
    assert profile.bytes_total == {"pcie_transmit": 10**15}


def test_engines_of_one_kind_are_averaged():
    assert decoded([(30, 100.0), (31, 50.0), (32, math.nan), (166, 30.0)]).engines == {
        "decoder": 0.75,
        "encoder": pytest.approx(0.3),
    }


def test_context_switches_are_by_engine():
    """Five numbers for each of eight engines from 170 on; what cannot be is left out."""
    values = [(173, 90_000.0), (174, 12.5), (174 + 35, 250.0), (173 + 35, 7.0), (173 + 5, math.nan)]
    assert decoded(values).context_switches == {
        (0, "cycles_per_request"): 90_000,
        (0, "active"): 0.125,
        (7, "cycles_per_request"): 7,
    }


def test_context_switches_are_asked_for_on_request_only():
    """A driver that refuses their ids refuses all newer ones with them."""
    meter = Meter({GRAPHICS: 50.0, ENCODER: 10.0}, last=169)
    meter.reader = GpmReader(ticking(), ("profiling.context_switches",))
    meter.read()
    meter.read()
    assert meter.asked == [len(OF_GPU_WITHOUT_SWITCHES), len(first_known(OF_GPU))]
    assert set(OF_GPU) - set(OF_GPU_WITHOUT_SWITCHES) == {n for n in range(170, 210) if n % 5 in (3, 4)}


def test_a_profile_without_answers_is_empty():
    assert decoded([]) == Profile(source="gpm")


def test_every_metric_is_requested_once():
    assert len(OF_GPU) == len(set(OF_GPU)) == len(METRICS) <= 210
    assert all(type(number) is int for number in OF_GPU)
    assert set(OF_COMPUTE_INSTANCE) < set(OF_GPU)


class Meter:
    """A library with ``values`` by metric; its call fails with ``code`` if an id is above ``last``."""

    def __init__(self, values: Mapping[int, float], last: int = 1000, code: int = 2) -> None:
        self.values, self.last, self.code = dict(values), last, code
        self.asked: list[int] = []
        self.calls = tiny.installed(
            nvmlGpmQueryDeviceSupport=tiny.fills(isSupportedDevice=1),
            nvmlGpmSampleAlloc=tiny.answers(0),
            nvmlGpmSampleFree=tiny.answers(0),
            nvmlGpmSampleGet=tiny.answers(0),
            nvmlGpmMetricsGet=self._function(),
        )
        self.reader = GpmReader(ticking())

    def read(self, uuid: str = "GPU-a") -> Profile | None:
        """Read a GPU."""
        return self.reader.read_gpu(self.calls, uuid, tiny.HANDLE)

    def _function(self) -> Any:
        def metrics(reference: Any) -> int:
            struct = reference._obj
            self.asked.append(struct.numMetrics)
            asked = struct.metrics[: struct.numMetrics]
            if any(entry.metricId > self.last for entry in asked):
                return self.code
            for entry in asked:
                if entry.metricId in self.values:
                    entry.nvmlReturn, entry.value = 0, self.values[entry.metricId]
            return 0

        return metrics


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_INVALID_ARGUMENT, pynvml.NVML_ERROR_NOT_SUPPORTED])
@pytest.mark.parametrize("last", [97, 169])
def test_an_unknown_metric_does_not_cost_the_others(code: int, last: int):
    """The oldest metrics are requested at once, and only they from then on."""
    meter = Meter({GRAPHICS: 50.0, ENCODER: 10.0, ELAPSED: 1e9}, last, code)
    meter.read()
    for _ in range(3):
        assert meter.read() == Profile(source="gpm", active={"graphics_engine": 0.5})
    oldest = len(first_known(OF_GPU))
    assert meter.asked == [len(OF_GPU), oldest, oldest, oldest]
    assert meter.calls.records.failures == (code == pynvml.NVML_ERROR_INVALID_ARGUMENT)


def test_newer_metrics_are_kept_when_the_oldest_fail_too():
    meter = Meter({GRAPHICS: 50.0, ELAPSED: 1e9}, last=-1)
    meter.read()
    assert meter.read() is None
    meter.last = 1000
    assert meter.read().cycles == {"sm_elapsed": 10**9}


def test_a_reopened_driver_is_asked_for_all_metrics_again():
    meter = Meter({GRAPHICS: 50.0, ELAPSED: 1e9}, last=97)
    meter.read()
    assert meter.read().cycles == {}
    meter.reader.free_all(Calls())
    meter.last = 1000
    meter.read()
    assert meter.read().cycles == {"sm_elapsed": 10**9}


def test_an_unwritten_entry_does_not_repeat_the_previous_answer():
    """The struct is used again for the next device."""
    meter = Meter({GRAPHICS: 50.0, DRAM: 20.0})
    meter.read("GPU-a")
    meter.read("GPU-b")
    assert meter.read("GPU-a").active == {"graphics_engine": 0.5, "dram": 0.2}
    del meter.values[DRAM]
    assert meter.read("GPU-b").active == {"graphics_engine": 0.5}


def test_entries_are_packed_as_the_binding_lays_them_out():
    entry = pynvml.c_nvmlGpmMetric_t(metricId=1, nvmlReturn=2, value=3.5)
    assert ENTRY.unpack(bytes(entry)) == (1, 2, 3.5)
    assert ENTRY.pack(1, 2, 3.5) == bytes(entry)
