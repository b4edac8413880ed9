"""The stub and the questions of the side by side run: each must be able to say no."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import side_by_side
from benchmarks.document import page as page_of
from benchmarks.judge import verdicts
from benchmarks.side_by_side_parts import checks, programs, samples
from benchmarks.side_by_side_parts.driver import Control, DriverError, Layout, compile_driver
from benchmarks.side_by_side_parts.node import Node, NodeError, Pod
from benchmarks.side_by_side_parts.rounds import SMALLEST

SLICED = Layout(name="sliced", gpus=2, parts=2, mig=False)
CUT = Layout(name="cut", gpus=1, parts=2, mig=True)
PIDS = ((101, 102), (201, 202))
# What a program sees of the stub through the binding that all of them use.
ASKING = """
import pynvml as n
n.nvmlInit()
for gpu in range(n.nvmlDeviceGetCount()):
    try:
        handle = n.nvmlDeviceGetHandleByIndex(gpu)
        used = n.nvmlDeviceGetMemoryInfo(handle, version=n.nvmlMemory_v2).used
        held = [(p.pid, p.usedGpuMemory) for p in n.nvmlDeviceGetComputeRunningProcesses(handle)]
        print(n.nvmlDeviceGetUUID(handle), used, held)
    except n.NVMLError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the stub once; where there is no compiler that is only forgiven outside CI."""
    folder = tmp_path_factory.mktemp("driver")
    try:
        compile_driver(folder)
    except DriverError as error:
        if "no C compiler" not in str(error) or os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    return folder


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    """Give the file that steers a sliced node of two GPUs."""
    with Control(tmp_path / "control", SLICED, PIDS) as control:
        yield control


def asked(driver: Path, control: Control) -> list[str]:
    """Ask the stub from a process of its own; return a line for each GPU."""
    variables = {"LD_LIBRARY_PATH": str(driver), "STUB_CONTROL": str(control.path)}
    words = [sys.executable, "-c", ASKING]
    return subprocess.check_output(words, text=True, timeout=30, env=os.environ | variables).splitlines()


def test_the_stub_answers_what_the_benchmark_expects_of_it(driver: Path, control: Control) -> None:
    """Memory, processes and UUIDs are those that the layout tells, and all calls and cycles are counted."""
    first, second = asked(driver, control)

    held = [(101, SLICED.held(0, 0)), (102, SLICED.held(0, 1))]
    assert first == f"{SLICED.uuid(0)} {SLICED.used(0)} {held}"
    assert second == f"{SLICED.uuid(1)} {SLICED.used(1)} {[(201, None), (202, SLICED.held(1, 1))]}"
    # The count, and five calls for each GPU: the binding asks for a list twice.
    assert (control.counts().calls, control.counts().cycles) == (1 + 2 * 5, 1)


def test_a_gpu_of_the_stub_can_be_lost(driver: Path, control: Control) -> None:
    """A GPU that is lost says so, and the other one answers."""
    control.lose(0)

    first, second = asked(driver, control)

    assert first == "GPU is lost"
    assert second.startswith(SLICED.uuid(1))


def page(*lines: str, layout: Layout = SLICED) -> samples.Page:
    """Read a page of ours with these lines."""
    text = "".join(f"{line}\n" for line in lines)
    return samples.read(programs.ours({}, seconds=1, name=programs.OURS), layout, text)


def held(gpu: int, part: int, value: int, layout: Layout = SLICED) -> str:
    """Write what a holder has."""
    return f'gpuslice_container_memory_used_bytes{{pod="p{part}",uuid="{layout.uuid(gpu)}"}} {value}'


def rest(gpu: int, value: int) -> str:
    """Write what nobody was found to have."""
    return f'gpuslice_gpu_unattributed_memory_bytes{{uuid="{SLICED.uuid(gpu)}"}} {value}'


def test_sums_that_are_wrong_are_counted() -> None:
    """A GPU whose holders and rest give another sum than it has in use does not add up."""
    right = [held(0, part, SLICED.held(0, part)) for part in range(2)]
    wrong = [held(1, part, SLICED.held(1, part)) for part in range(2)]

    assert checks.adds_up(page(*right, *wrong, rest(0, 300 << 20), rest(1, 0))) == "1 of 2"
    assert checks.adds_up(page(*right, rest(0, 300 << 20))) == "1 of 2, and 1 whose rest is left out"


def test_memory_that_is_printed_twice_shows_in_the_share() -> None:
    """What all holders have, printed under the GPU and under its part, is twice what there is."""
    once = [held(0, part, CUT.held(0, part), CUT) for part in range(2)]
    share = CUT.used(0) - (300 << 20)

    assert checks.share(page(*once, layout=CUT)) == f"{share / CUT.used(0):.2f}"
    assert checks.share(page(*once, *once, layout=CUT)) == f"{2 * share / CUT.used(0):.2f}"


def test_a_figure_of_the_whole_gpu_in_the_row_of_a_holder_is_found() -> None:
    """A holder that carries the utilization of its GPU is counted, one with its own is not."""
    whole = f'gpuslice_gpu_utilization_ratio{{uuid="{SLICED.uuid(0)}"}} 0.63'
    rows = [f'use{{pod="p{part}",uuid="{SLICED.uuid(0)}"}} {value}' for part, value in enumerate((0.63, 0.1))]

    assert checks.whole(page(whole, *rows)) == "1 of 2 samples"


def test_a_zero_in_the_place_of_what_the_driver_does_not_tell_is_shown_as_one() -> None:
    """Of the process whose memory is not told the page's own word is repeated: absent, NaN or a number."""
    pods = tuple(tuple(_pod(f"p{gpu}{part}") for part in range(2)) for gpu in range(2))
    node = Node(layout=SLICED, pods=pods, pids=PIDS, environment={})
    name = "gpuslice_container_memory_used_bytes"

    assert checks.untold(page(), node) == "absent"
    assert checks.untold(page(f'{name}{{pod="p10"}} 0'), node) == "0"
    assert checks.untold(page(f'{name}{{pod="p10"}} NaN'), node) == "NaN"


def _pod(name: str) -> Pod:
    return Pod(namespace="n", name=name, uid="u", container_id="c", resource="r", device="d")


def test_a_page_tells_how_old_it_is() -> None:
    """The power that the stub told at a second of the clock gives that second's age."""
    power = f'gpuslice_gpu_power_watts{{uuid="{SLICED.uuid(0)}"}} 150.5'

    assert page(power).age(0, 2000.0 + 507) == pytest.approx(2.0)
    assert page().age(0, 2507.0) is None


@pytest.mark.slow
def test_all_that_is_judged_and_told_is_measured() -> None:
    """The smallest form, of ours alone as no network is there: its figures, twice, are judged and told."""
    form = replace(
        SMALLEST, programs=lambda variables: [programs.ours(variables, seconds=1, name=programs.OURS)]
    )
    try:
        found = side_by_side.run(form)
    except (DriverError, NodeError) as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    (node,) = found["nodes"].values()
    ours = node["programs"][programs.OURS]
    assert ours["idle"]["cpu_ms_a_cycle"] > 0 < ours["scraped"]["p50_ms"]
    assert node["questions"]["names the pod of each holder"] == {programs.OURS: "2 of 2"}
    node["programs"] = {programs.NVITOP: ours} | node["programs"]
    cycle, scrape = verdicts({"side-by-side": found})
    assert (cycle.found[:6], cycle.met, scrape.met) == ("1.00 x", True, False)
    told = page_of({"side-by-side": found})
    assert f"| samples on the page | {ours['page']['samples']} | {ours['page']['samples']} |" in told
    assert "nan" not in told
