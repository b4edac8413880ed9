"""The benchmark against other exporters: its stub of the driver, and the figures that it measures."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import side_by_side
from benchmarks.document import page as page_of
from benchmarks.document import verdicts
from benchmarks.processes import MissingError
from benchmarks.side_by_side import programs
from benchmarks.side_by_side.driver import WHOLE, Control, Layout, compile_driver
from tests.tools import tool

GPU_EXPORTER = Path(__file__).with_name("nvidia_gpu_exporter.py")
SLICED = Layout(name="sliced", gpus=2, parts=2, mig=False)
MIB = 1 << 20
PIDS = ((101, 102), (201, 202))
# Prints the stub's answers through the binding that all programs use.
QUERIES = """
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
    """Compile the stub."""
    tool("gcc", "cc")
    folder = tmp_path_factory.mktemp("driver")
    compile_driver(folder)
    return folder


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    """Return the file that makes the stub a sliced node of two GPUs."""
    with Control(tmp_path / "control", SLICED, PIDS) as control:
        yield control


@pytest.mark.tools
def test_the_stub_is_a_node_of_the_layout(driver: Path, control: Control) -> None:
    """It has the layout's memory, processes and UUIDs, and counts all calls and cycles."""
    variables = {"LD_LIBRARY_PATH": str(driver), "STUB_CONTROL": str(control.path)}
    words = [sys.executable, "-c", QUERIES]
    first, second = subprocess.check_output(words, text=True, env=os.environ | variables).splitlines()

    assert first == f"{SLICED.uuid(0)} {(300 + 256 + 512) * MIB} {[(101, 256 * MIB), (102, 512 * MIB)]}"
    assert second == f"{SLICED.uuid(1)} {(300 + 257 + 513) * MIB} {[(201, None), (202, 513 * MIB)]}"
    # The count, and five calls for each GPU: the binding requests a list twice.
    assert (control.counts().calls, control.counts().cycles) == (1 + 2 * 5, 1)


def without_network(variables: dict[str, str]) -> list[programs.Program]:
    """Return the programs that need no installation from the network."""
    return [program for program in programs.all_programs(variables) if not program.packages]


@pytest.mark.slow
@pytest.mark.tools
def test_a_quick_run_has_all_figures_of_the_tables_and_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of our exporter and a small nvidia_gpu_exporter. No verdict depends on the speed of the machine."""
    tool("gcc", "cc")
    monkeypatch.setenv("GPU_EXPORTER", str(GPU_EXPORTER))
    found = side_by_side.measure("", quick=True, programs=without_network)
    (node,) = found["nodes"].values()
    theirs, ours, _ = node["programs"].values()
    assert ours["idle"]["cpu_ms_a_cycle"] > 0 < ours["scraped"]["p50_ms"]
    # A GPU's handle and its memory.
    assert theirs["idle"]["calls_a_cycle"] == 2
    assert theirs["idle"]["calls_a_minute"] > 0
    assert 0 < ours["page"]["gzip"] < ours["page"]["bytes"] / 5
    node["programs"] = {programs.NVITOP: ours} | node["programs"]
    cycle, scrape, unscraped, scraped, calls = verdicts({"side-by-side": {"nodes": {WHOLE.name: node}}})
    assert (cycle.found[:6], cycle.met) == ("1.00 x", True)
    assert scrape.found
    assert calls.found
    assert unscraped.found[-1] == scraped.found[-1] == ")"
    written = page_of({"side-by-side": found})
    assert f"| samples on the page | {ours['page']['samples']} | 1 | {ours['page']['samples']} |" in written
    assert f"- {programs.GPU_EXPORTER}: nvidia_gpu_exporter, version 0\n" in written
    assert "nan" not in written


def test_a_binary_that_does_not_run_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The message names the program; without a binary the others are measured."""
    monkeypatch.setenv("GPU_EXPORTER", str(tmp_path / "missing"))
    with pytest.raises(MissingError, match=r"nvidia_gpu_exporter: .*missing"):
        programs.all_programs({})
    monkeypatch.delenv("GPU_EXPORTER")
    assert programs.GPU_EXPORTER not in [program.name for program in programs.all_programs({})]
