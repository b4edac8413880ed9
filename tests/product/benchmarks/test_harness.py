"""The benchmarks measure, compare like with like, and judge."""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pynvml
import pytest
from aiohttp import web

from benchmarks import parts
from benchmarks.document import Verdict, page, texts, verdicts
from benchmarks.markdown import MIB
from benchmarks.nodes import NODES, load
from benchmarks.polls import GROWING, exponent
from benchmarks.processes import ROOT
from benchmarks.scrapes import scrape
from benchmarks.side_by_side import programs as names
from benchmarks.side_by_side.driver import MIG, WHOLE
from tests.core.poller.bench import polled

MEASURED = "polls", "scrapes", "startup", "memory"
POLLS = {
    "poll": 0.010,
    "bare_driver": 0.003,
    "bare_binding": 0.001,
    "bare_kubelet": 0.003,
    "client": 0.020,
    "native": 0.002,
}
SECTION = re.compile(r"^(?=#{1,2} )", re.MULTILINE)
# The lines below a text: a table, or the reason why there is none.
WRITTEN = re.compile(r"^(?:\|.*|This was not measured.*|This is of an earlier run.*)$\n?", re.MULTILINE)
# Their tables have headings and texts of their own.
IN_PARTS = {"side_by_side", "fleet"}


@pytest.mark.slow
def test_all_measures_of_a_node_have_figures_and_rows(tmp_path: Path) -> None:
    """A quick run finds figures above zero for every cell of the tables."""
    words = [
        "--quick",
        "--only",
        "exclusive",
        "--results",
        tmp_path,
        "--document",
        tmp_path / "page.md",
    ]
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks", *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found = {file.stem: json.loads(file.read_text()) for file in tmp_path.glob("*.json")}
    assert found.keys() == {f"{measure}-exclusive" for measure in MEASURED} | {"machine", "loads"}
    flat = {f"{name} {key}": value for name in found for key, value in _flat(found[name])}
    assert [name for name, value in flat.items() if value <= 0 and "slope" not in name] == []
    assert found["polls-exclusive"]["holders"] == 8
    written = page(found)
    assert written.count(f"| {NODES['exclusive'][0]} |") == 4 + len(found["scrapes-exclusive"])


def _flat(figures: dict[str, Any]) -> list[tuple[str, float]]:
    pairs = []
    for key, value in figures.items():
        if isinstance(value, dict):
            pairs += [(f"{key} {inner}", number) for inner, number in value.items()]
        elif isinstance(value, int | float):
            pairs.append((key, value))
    return pairs


def test_the_calls_that_are_made_again_are_those_of_the_poll() -> None:
    """Replaying the recorded calls makes the same driver calls as often as the poll did."""

    async def run() -> None:
        async with polled(load("crowd-4"), pcie_throughput=True) as (node, poller):
            for turn in range(3):
                await node.step(turn * 5.0)
                await poller.poll()
            await node.step(15.0)
            node.nvml.calls.clear()
            with parts.recorded() as calls:
                await poller.poll()
            asked = {call: count for call, count in node.nvml.calls.items() if "EventSetWait" not in call[0]}
            node.nvml.calls.clear()
            parts.replay(calls)
            again = {call: count for call, count in node.nvml.calls.items() if "EventSetWait" not in call[0]}
            assert len(asked) > 50
            assert again == asked
            with parts.idle_driver():
                node.nvml.calls.clear()
                parts.replay(calls)
                left = {name for name, _ in node.nvml.calls if "EventSetWait" not in name}
            assert left == set()
            assert pynvml.nvmlLib is node.nvml

    asyncio.run(run())


@pytest.mark.parametrize(
    ("name", "gpus", "migs", "replicas", "pods"),
    [
        ("exclusive", 8, 0, 8, 8),
        ("mig", 8, 56, 56, 56),
        ("time-slices", 16, 0, 160, 160),
        ("mps", 8, 0, 384, 250),
    ],
)
def test_a_node_is_what_its_name_says(name: str, gpus: int, migs: int, replicas: int, pods: int) -> None:
    """Each measured node has the GPUs, instances, replicas and pods of its title, every replica held once."""
    scenario = load(name)
    held = [
        key
        for pod in scenario.pods
        for container in pod.containers
        for ids in container.devices.values()
        for key in ids
    ]
    offered = [key for offer in scenario.offers for key in offer.ids]
    instances = [instance for gpu in scenario.gpus if gpu.mig for instance in gpu.mig.instances]
    assert (len(scenario.gpus), len(instances), len(offered), len(scenario.pods)) == (
        gpus,
        migs,
        replicas,
        pods,
    )
    assert sorted(held) == sorted(offered)


@pytest.mark.parametrize("power", [0.5, 1, 2])
def test_the_power_of_growth_is_found(power: float) -> None:
    """The cost of a node without holders does not hide the power by which cost grows with them."""
    nodes = [
        {"holders": count, **dict.fromkeys(GROWING, 1e6 + count**power)} for count in (1, 10, 100, 1e3, 5e3)
    ]
    assert exponent(nodes, "poll") == pytest.approx(power, abs=0.03)


def test_targets_are_judged_by_what_was_found() -> None:
    """A poll of 10 ms over bare calls of 6 ms is 0.67 above them, and 0.16 % of a core without the driver."""
    judged = {verdict.target: verdict for verdict in verdicts({"polls-mig": POLLS})}
    assert judged["work above bare calls"].found == "0.67 x"
    assert judged["poll without the driver"].found == "0.16%"
    assert all(verdict.met for verdict in judged.values())
    slow = {
        verdict.target: verdict.met
        for verdict in verdicts({"polls-mig": POLLS | {"poll": 0.030, "native": 0.003}})
    }
    assert not any(slow.values())
    memory = {"closed": 61 * MIB, "opened": 79 * MIB, "slope": 5 * MIB, "slope_error": MIB}
    assert [verdict.met for verdict in verdicts({"memory-mps": memory})] == [False, True, False]
    unsure = memory | {"slope_error": 3 * MIB}
    assert [verdict.met for verdict in verdicts({"memory-mps": unsure})] == [False, True, None]


def beside(node: str, **programs: dict[str, float]) -> list[Verdict]:
    """Judge programs on a node by figures that are at their limit, unless given."""
    figures = {
        getattr(names, name): {
            "idle": {
                "cpu_ms_a_cycle": its.get("cycle"),
                "cpu_share": 0.002,
                "calls_a_minute": its.get("calls"),
            },
            "now_and_then": {"cpu_share": its.get("scraped", 0.003)},
            "scraped": {"p50_ms": its.get("scrape")},
            "page": {"bytes": 450_000, "gzip": its.get("gzip", 30_000)},
        }
        for name, its in programs.items()
    }
    return list(verdicts({"side-by-side": {"nodes": {node: {"programs": figures}}}}))


@pytest.mark.parametrize(
    ("node", "ours", "met"),
    [
        ("another", (4.0, 3.0), [True, True]),
        ("another", (4.1, 3.1), [False, False]),
        ("another", (float("nan"), 1.0), [None, True]),
        (WHOLE.name, (20.0, 3.0), [True, True]),
        (WHOLE.name, (20.1, 3.1), [False, False]),
    ],
)
def test_ours_is_judged_against_nvitop_exporter(
    node: str, ours: tuple[float, float], met: list[bool | None]
) -> None:
    """A cycle may take a fifth of theirs, with whole GPUs as much, a scrape a tenth; unseen is not judged."""
    cycle, scrape = ours
    theirs = {"cycle": 20.0, "scrape": 30.0}
    judged = beside(node, OURS={"cycle": cycle, "scrape": scrape}, NVITOP=theirs, SLOWER={"calls": 2200})
    assert [(verdict.node, verdict.met) for verdict in judged[:2]] == [(node, verdict) for verdict in met]


def test_ours_is_judged_against_nvidia_gpu_exporter() -> None:
    """With whole GPUs ours may take as much CPU time; without the binary the reason is shown."""
    nvitop = {"cycle": 20.0, "scrape": 30.0}
    given = beside(
        WHOLE.name, OURS=nvitop, NVITOP=nvitop, SLOWER={"calls": 2200}, GPU_EXPORTER={"scraped": 0.002}
    )
    assert [(verdict.found[:6], verdict.met) for verdict in given[2:4]] == [
        ("1.00 x", True),
        ("1.50 x", False),
    ]
    missing = beside(WHOLE.name, OURS=nvitop, NVITOP=nvitop, SLOWER={"calls": 2201})
    assert [(verdict.found, verdict.met) for verdict in missing[2:]] == [(names.NO_BINARY, None)] * 2 + [
        ("2201", False)
    ]


def test_calls_and_the_page_of_ours_are_judged() -> None:
    """Calls in a minute and both sizes of the page have limits on the node of MIG devices."""
    nvitop = {"cycle": 20.0, "scrape": 30.0}
    judged = beside(MIG.name, OURS=nvitop, NVITOP=nvitop, SLOWER={"calls": 4000, "gzip": 30_001})
    assert [(verdict.target, verdict.met) for verdict in judged[2:]] == [
        ("driver calls in a minute", True),
        ("page, bytes", True),
        ("page, gzip", False),
    ]


@pytest.mark.parametrize("name", ["side-by-side", "fleet"])
def test_a_measure_that_cannot_be_made_is_reported(name: str, tmp_path: Path) -> None:
    """Without a compiler, or a Prometheus, one line and the page have the reason; nothing else is lost."""
    asked = [
        sys.executable,
        "-m",
        "benchmarks",
        "--results",
        str(tmp_path),
        "--document",
        str(tmp_path / "page.md"),
    ]
    (tmp_path / "startup-mig.json").write_text(json.dumps({"wall": 0.5, "wall_median": 0.6, "cpu": 0.4}))
    first, second = (
        subprocess.run(
            [*asked, *words],
            cwd=ROOT,
            env=os.environ | {"PATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        for words in (["--quick", "--only", name], ["--write"])
    )
    assert (first.returncode, first.stderr, second.returncode, second.stderr) == (1, "", 0, "")
    (reason,) = re.findall(rf"^{name}: not measured: (.*on PATH.*)$", first.stdout, re.MULTILINE)
    written = (tmp_path / "page.md").read_text()
    assert f"\nThis was not measured: {reason}\n" in written
    assert "| 0.50 s | 0.60 s | 0.40 s |" in written


def test_the_page_says_what_was_not_measured() -> None:
    """The section contains the reason."""
    written = page({"missing": {"side-by-side": "no C compiler on PATH"}})
    assert "## Side by side" in written
    assert "\nThis was not measured: no C compiler on PATH\n" in written
    assert "nan" not in written
    assert written.index("## Side by side") < written.index("## A fleet")


def test_the_page_was_written_by_the_generator() -> None:
    """Each section of docs/performance.md has its text of performance.txt, and tables."""
    written = [
        part.strip() for part in SECTION.split((ROOT / "docs/performance.md").read_text("utf-8")) if part
    ]
    wanted = texts()
    assert [part.splitlines()[0] for part in written] == [text.splitlines()[0] for text in wanted.values()]
    for part, (name, text) in zip(written, wanted.items(), strict=True):
        if name in IN_PARTS:
            assert part.startswith(f"{text}\n\n"), name
        else:
            assert WRITTEN.sub("", part).strip() == text, name


def test_a_scrape_that_fails_is_no_fast_scrape() -> None:
    """Scrapers raise the status of an answer unless it is 200."""

    async def run() -> None:
        runner = web.AppRunner(web.Application())
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            with pytest.raises(RuntimeError, match="404"):
                await asyncio.to_thread(scrape, runner.addresses[0][1], 1, 0.1)
        finally:
            await runner.cleanup()

    asyncio.run(run())


def test_quick_results_are_not_kept_as_results() -> None:
    """``--quick`` refuses to write where real results and the real page lie."""
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick"],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2
    assert "--results" in run.stderr
