"""AMD's own library: what it fills, and that nothing is lost without it, or with one that is broken.

The module here stands in for the real one, with the functions, arguments and answers that it has.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.demo import amd_tree
from exporter.model.readings import Ecc
from tests.core.hardware.amd.conftest import Stuck
from tests.core.hardware.amd.tree import ADDRESS, UUID, Tree
from tests.core.hardware.hanging import CALL_TIMEOUT

Install = Callable[[str], int]
STAND_IN = """
CALLS = []

class AmdSmiLibraryException(Exception):
    pass

def amdsmi_init(flag=2):
    CALLS.append("init")

def amdsmi_shut_down():
    CALLS.append("shut down")

def amdsmi_get_processor_handles():
    return ["handle 0", "handle 1"]

def amdsmi_get_gpu_device_bdf(handle):
    return {"handle 0": "0000:43:00.0", "handle 1": "0000:19:00.0"}[handle]

def amdsmi_get_energy_count(handle):
    assert handle == "handle 1"
    return {"power": 70, "energy_accumulator": 2_000_000, "counter_resolution": 15.3, "timestamp": 1}

def amdsmi_get_gpu_total_ecc_count(handle):
    return {"correctable_count": 12, "uncorrectable_count": 1, "deferred_count": 0}

def amdsmi_get_power_cap_info(handle):
    return {"power_cap": 280_000_000, "default_power_cap": 300_000_000, "dpm_cap": 0,
            "min_power_cap": 0, "max_power_cap": 300_000_000}
"""
WITHOUT_ENERGY = (
    STAND_IN
    + """
def amdsmi_get_energy_count(handle):
    raise AmdSmiLibraryException("not supported")

def amdsmi_get_power_cap_info(handle):
    return {"cap": 1}
"""
)
# What the real one does without its native half.
NO_NATIVE_HALF = """
print("Unable to find libamd_smi.so library try installing amd-smi-lib from your package manager")
raise KeyError("ROCM_HOME")
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return a function that writes the module amdsmi."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    yield (folder / "amdsmi.py").write_text
    sys.modules.pop("amdsmi", None)


def bare(tree: Tree) -> None:
    """Write a first card that reports neither energy nor errors nor limits."""
    shutil.rmtree(tree.device(), ignore_errors=True)
    limits = ("", "_default", "_min", "_max")
    missing = {f"hwmon__hwmon6__power1_cap{limit}": None for limit in limits}
    tree.card(**missing, ras__umc_err_count=None, ras__gfx_err_count=None)


async def test_amdsmi_fills_what_files_lack(tree: Tree, install: Install) -> None:
    install(STAND_IN)
    bare(tree)
    reading = await tree.read()
    (gpu,) = reading.gpus
    assert gpu.energy_millijoules == 30_600
    assert gpu.ecc == Ecc(errors={("corrected", "volatile"): 12, ("uncorrected", "volatile"): 1})
    assert gpu.power_limits_milliwatts == {"enforced": 280_000, "default": 300_000, "max": 300_000}
    assert reading.errors == {}
    assert sys.modules["amdsmi"].CALLS == ["init", "shut down"]


async def test_files_are_preferred_to_amdsmi(tree: Tree, install: Install) -> None:
    install(STAND_IN)
    tree.card()
    gpu = await tree.gpu()
    assert gpu.energy_millijoules == 30_600
    assert gpu.ecc is not None
    assert gpu.ecc.errors["corrected", "volatile"] == 6
    assert gpu.power_limits_milliwatts["min"] == 0


async def test_energy_never_changes_from_the_table_to_amdsmi(tree: Tree, install: Install) -> None:
    """The two count in different units."""
    install(STAND_IN)
    table = amd_tree.table("1.6", {"energy_accumulator": 65536 * 25})
    tree.card(gpu_metrics=table)
    amd = tree.source()
    for content, energy in ((table, 25_000), (b"", None), (table, 25_000)):
        (tree.device() / "gpu_metrics").write_bytes(content)
        assert (await amd.read()).gpus[0].energy_millijoules == energy


async def test_a_failing_function_costs_its_own_reading(tree: Tree, install: Install) -> None:
    install(WITHOUT_ENERGY)
    bare(tree)
    reading = await tree.read()
    (gpu,) = reading.gpus
    assert (gpu.up, gpu.energy_millijoules, gpu.power_limits_milliwatts) == (True, None, {})
    assert gpu.ecc is not None
    assert reading.errors == {
        (UUID, "amdsmi_get_energy_count", "AmdSmiLibraryException"): 1,
        (UUID, "amdsmi_get_power_cap_info", "KeyError"): 1,
    }


@pytest.mark.parametrize("content", [NO_NATIVE_HALF, "raise OSError", "amdsmi_init = None", None])
async def test_a_library_that_does_not_work_costs_nothing_and_prints_nothing(
    tree: Tree, install: Install, capfd: pytest.CaptureFixture[str], content: str | None
) -> None:
    if content is not None:
        install(content)
    bare(tree)
    reading = await tree.read()
    assert (reading.gpus[0].up, reading.gpus[0].energy_millijoules, reading.errors) == (True, None, {})
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("function", ["amdsmi_init()", "amdsmi_get_gpu_device_bdf(handle)"])
async def test_a_library_that_hangs_costs_its_own_readings_until_it_returns(
    two: Tree, install: Install, tmp_path: Path, stuck: Stuck, function: str
) -> None:
    file = stuck.hang(tmp_path / "stuck")
    file.touch()
    hang = f"import pathlib; pathlib.Path({str(file)!r}).open().close()"
    install(f"{STAND_IN}\ndef {function}:\n    {hang}\n    return {ADDRESS!r}\n")
    bare(two)
    amd = two.source(call_timeout=CALL_TIMEOUT)
    for _ in range(2):
        reading = await amd.read()
        assert [gpu.up for gpu in reading.gpus] == [True, True]
        assert reading.gpus[0].energy_millijoules is None
        assert {error for _, _, error in reading.errors} == {"Hangs"}
    stuck.release(file)
    await stuck.settle()
    assert (await amd.read()).gpus[0].energy_millijoules == 30_600


async def test_a_library_that_failed_is_imported_once(
    tree: Tree, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIES", "")
    install("import os\nos.environ['TRIES'] += 'x'\nraise OSError")
    bare(tree)
    amd = tree.source()
    await amd.read()
    await amd.read()
    assert os.environ["TRIES"] == "x"


async def test_a_node_without_amd_gpus_does_not_import_the_library(tree: Tree, install: Install) -> None:
    install(STAND_IN)
    await tree.read()
    assert "amdsmi" not in sys.modules


async def test_a_gpu_that_amdsmi_does_not_list_has_no_values_from_it(tree: Tree, install: Install) -> None:
    install(STAND_IN.replace(ADDRESS, "0000:99:00.0"))
    bare(tree)
    gpu = await tree.gpu()
    assert (gpu.energy_millijoules, gpu.ecc) == (None, None)
