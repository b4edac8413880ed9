"""The fake driver on errors of the memories and on repairs, through the unmodified binding."""

from itertools import product

import pynvml
import pytest

from tests.fake.demo.driver import INVALID, NOT_SUPPORTED, code_of, fields_of, gpu_at, mig_at
from tests.fake.demo.making import gpu, instance, made, node_of

L1, DRAM, SRAM = (
    pynvml.NVML_MEMORY_LOCATION_L1_CACHE,
    pynvml.NVML_MEMORY_LOCATION_DRAM,
    pynvml.NVML_MEMORY_LOCATION_SRAM,
)
ERRORS = {
    "corrected/volatile/dram": 2,
    "corrected/volatile/sram": 1,
    "corrected/aggregate/dram": 40,
    "uncorrected/aggregate/sram": 5,
}
CUT = {"instances": [instance(1, 0)]}


def test_error_totals_are_the_sum_over_all_locations(bench):
    bench(made(gpus=[gpu(health={"errors": ERRORS})]))
    kinds = ((0, 0), (1, 0), (0, 1), (1, 1))
    totals = fields_of(gpu_at(), 3, 4, 5, 6)
    assert totals == [3, 0, 40, 5]
    assert totals == [
        sum(pynvml.nvmlDeviceGetMemoryErrorCounter(gpu_at(), *kind, place) for place in (DRAM, SRAM))
        for kind in kinds
    ]
    assert pynvml.nvmlDeviceGetEccMode(gpu_at()) == [1, 1]
    assert code_of(pynvml.nvmlDeviceGetMemoryErrorCounter, gpu_at(), 2, 0, DRAM) == INVALID


def test_error_locations_depend_on_the_architecture(bench):
    bench(made(gpus=[gpu(architecture=5), gpu(architecture=6)]))
    for index, known in ((0, {0, 1, 2, 3, 4, 5, 6}), (1, {DRAM, SRAM})):
        handle = gpu_at(index)
        for place in range(8):
            if place in known:
                assert pynvml.nvmlDeviceGetMemoryErrorCounter(handle, 0, 0, place) == 0
            else:
                assert code_of(pynvml.nvmlDeviceGetMemoryErrorCounter, handle, 0, 0, place) == NOT_SUPPORTED


@pytest.mark.parametrize("ecc", [False, None])
def test_without_ecc_no_errors_are_counted(bench, ecc):
    """A board without ECC has no mode either."""
    bench(made(gpus=[gpu(health={"ecc": ecc})]))
    assert fields_of(gpu_at(), 3, 4, 5, 6) == [None] * 4
    assert code_of(pynvml.nvmlDeviceGetMemoryErrorCounter, gpu_at(), 0, 0, DRAM) == NOT_SUPPORTED
    if ecc is None:
        assert code_of(pynvml.nvmlDeviceGetEccMode, gpu_at()) == NOT_SUPPORTED
    else:
        assert pynvml.nvmlDeviceGetEccMode(gpu_at()) == [0, 0]


def test_with_mig_the_gpu_has_aggregate_errors_and_a_mig_device_volatile_ones(bench):
    bench(made(gpus=[gpu(health={"errors": ERRORS}, mig=CUT)]))
    assert fields_of(gpu_at(), 3, 4, 5, 6) == [None, None, 40, 5]
    assert code_of(pynvml.nvmlDeviceGetMemoryErrorCounter, gpu_at(), 0, 0, DRAM) == NOT_SUPPORTED
    assert pynvml.nvmlDeviceGetMemoryErrorCounter(gpu_at(), 0, 1, DRAM) == 40
    for severity, scope, place in product((0, 1), (0, 1), (DRAM, SRAM)):
        asked = (mig_at(0), severity, scope, place)
        if (severity, scope, place) == (1, 0, SRAM):
            assert pynvml.nvmlDeviceGetMemoryErrorCounter(*asked) == 0
        else:
            assert code_of(pynvml.nvmlDeviceGetMemoryErrorCounter, *asked) == NOT_SUPPORTED


def test_remapped_rows_exist_from_ampere_on(bench):
    health = {
        "remapped_rows": {"corrected": 3, "uncorrected": 1},
        "row_remap_pending": True,
        "row_banks": {"max": 600, "partial": 2, "none": 1},
        "retired_pages": {"single_bit": 9},
    }
    bench(made(gpus=[gpu(health=health)]))
    assert fields_of(gpu_at(), 142, 143, 144, 145) == [3, 1, 1, 0]
    banks = pynvml.nvmlDeviceGetRowRemapperHistogram(gpu_at())
    assert (banks.max, banks.high, banks.partial, banks.low, banks.none) == (600, 0, 2, 0, 1)
    assert fields_of(gpu_at(), 29, 30, 31) == [None] * 3


@pytest.mark.parametrize("board", [{"architecture": 6}, {"mig": CUT}])
def test_boards_before_ampere_or_with_mig_report_no_remapped_rows(bench, board):
    bench(made(gpus=[gpu(**board)]))
    assert fields_of(gpu_at(), 142, 143, 144, 145) == [None] * 4
    assert code_of(pynvml.nvmlDeviceGetRowRemapperHistogram, gpu_at()) == NOT_SUPPORTED


def test_retired_pages_exist_before_ampere(bench):
    health = {"retired_pages": {"single_bit": 2, "double_bit": 1}, "retired_pages_pending": True}
    bench(made(gpus=[gpu(architecture=5, health=health)]))
    assert fields_of(gpu_at(), 29, 30, 31) == [2, 1, 1]


@pytest.mark.parametrize(("branch", "expected"), [(560, None), (570, 1)])
def test_newer_drivers_report_the_recovery_action(bench, branch, expected):
    bench(made(node=node_of(branch), gpus=[gpu(health={"recovery_action": "reset"})]))
    assert fields_of(gpu_at(), 230) == [expected]
