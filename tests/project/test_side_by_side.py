"""The stub of the driver, and the measures on it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import side_by_side
from benchmarks.document import page as page_of
from benchmarks.judge import verdicts
from benchmarks.processes import MissingError
from benchmarks.side_by_side import programs
from benchmarks.side_by_side.driver import Control, Layout, compile_driver

SLICED = Layout(name="sliced", gpus=2, parts=2, mig=False)
MIB = 1 << 20
PIDS = ((101, 102), (201, 202))
# What a program sees of the stub through the binding that all of them use.
ASKING = """
import pynvml as n
n.nvmlInit()
for gpu in range(n.nvmlDeviceGetCount()):
    handle = n.nvmlDeviceGetHandleByIndex(gpu)
    used = n.nvmlDeviceGetMemoryInfo(handle, version=n.nvmlMemory_v2).used
    held = [(p.pid, p.usedGpuMemory) for p in n.nvmlDeviceGetComputeRunningProcesses(handle)]
    print(n.nvmlDeviceGetUUID(handle), used, held)
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the stub once; without a compiler skip, but fail in CI."""
    folder = tmp_path_factory.mktemp("driver")
    try:
        compile_driver(folder)
    except MissingError as error:
        if "no C compiler" not in str(error) or os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    return folder


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    """Return the file that controls the stub as a sliced node of two GPUs."""
    with Control(tmp_path / "control", SLICED, PIDS) as control:
        yield control


def asked(driver: Path, control: Control) -> list[str]:
    """Ask the stub from a process of its own; return a line for each GPU."""
    variables = {"LD_LIBRARY_PATH": str(driver), "STUB_CONTROL": str(control.path)}
    words = [sys.executable, "-c", ASKING]
    return subprocess.check_output(words, text=True, timeout=30, env=os.environ | variables).splitlines()


def test_the_stub_answers_what_the_benchmark_expects_of_it(driver: Path, control: Control) -> None:
    """Memory, processes and UUIDs are those of the layout, and all calls and cycles are counted."""
    first, second = asked(driver, control)

    assert first == f"{SLICED.uuid(0)} {(300 + 256 + 512) * MIB} {[(101, 256 * MIB), (102, 512 * MIB)]}"
    assert second == f"{SLICED.uuid(1)} {(300 + 257 + 513) * MIB} {[(201, None), (202, 513 * MIB)]}"
    # The count, and five calls for each GPU: the binding asks for a list twice.
    assert (control.counts().calls, control.counts().cycles) == (1 + 2 * 5, 1)


@pytest.mark.slow
def test_all_figures_of_the_tables_and_targets_are_measured() -> None:
    """A quick run of ours alone, as there may be no network, has all figures, which are judged and shown."""

    def only_ours(variables: dict[str, str]) -> list[programs.Program]:
        return [programs.ours(variables, seconds=1, name=programs.OURS)]

    try:
        found = side_by_side.measure("", quick=True, programs=only_ours)
    except MissingError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    (node,) = found["nodes"].values()
    ours = node["programs"][programs.OURS]
    assert ours["idle"]["cpu_ms_a_cycle"] > 0 < ours["scraped"]["p50_ms"]
    node["programs"] = {programs.NVITOP: ours} | node["programs"]
    cycle, scrape = verdicts({"side-by-side": found})
    assert (cycle.found[:6], cycle.met, scrape.met) == ("1.00 x", True, False)
    written = page_of({"side-by-side": found})
    assert f"| samples on the page | {ours['page']['samples']} | {ours['page']['samples']} |" in written
    assert "nan" not in written
