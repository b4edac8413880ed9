"""The example of docs/join.md is the program's output for that fake node."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[3] / "docs/join.md").read_text(encoding="utf-8")
MEBIBYTE = 2**20
EXAMPLE = PAGE.partition("## An example, step by step")[2].partition("## The rules")[0]
NUMBER = re.compile(r"[*]*([\d.]+) (?:MiB|GPU|%)[*]*")


def table(heading: str) -> list[list[str]]:
    """Return the cells of the example's table below a bold heading, without the table's head."""
    text = EXAMPLE.partition(f"**{heading}")[2]
    lines = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert lines is not None
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[0].splitlines()[2:]]


def numbers(cells: Sequence[str]) -> list[float]:
    """Return the amounts in cells that have only one."""
    matches = [NUMBER.fullmatch(cell) for cell in cells]
    return [float(number[1]) for number in matches if number is not None]


@pytest.fixture(scope="module")
def printed() -> dict[str, Any]:
    """Return the output of the example's command, as JSON."""
    (command,) = re.findall(r"^\$ gpuslice-exporter (.*)$", EXAMPLE, re.MULTILINE)
    done = subprocess.run(
        (sys.executable, "-m", "exporter", *command.split(), "--format", "json"),
        capture_output=True,
        check=True,
    )
    return dict(json.loads(done.stdout))


def on_gpu(printed: Mapping[str, Any], kind: str, index: int) -> list[dict[str, Any]]:
    """Return the rows of a kind that are on one GPU."""
    uuid = printed["gpus"][index]["uuid"]
    return [row for row in printed[kind] if row["uuid"] == uuid]


def test_the_holders_of_the_example(printed: dict[str, Any]) -> None:
    """Their use and entitlement."""
    rows = {
        f"`{row['namespace']}/{row['pod']}`": [
            row["memory_used_bytes"] / MEBIBYTE,
            row["memory_entitled_bytes"] / MEBIBYTE,
            row["compute_used_ratio"],
            row["compute_entitled_ratio"],
        ]
        for row in on_gpu(printed, "containers", 0)
    }
    written = {cells[0]: numbers(cells[1:]) for cells in table("What comes out")}

    assert {name: written[name] for name in written if name.startswith("`")} == rows


def test_the_sums_of_the_example(printed: dict[str, Any]) -> None:
    """The rest and the whole are the program's, and the parts on the page add up to the whole."""
    gpu = printed["gpus"][0]
    rows = {cells[0]: numbers([cells[1], cells[3]]) for cells in table("What comes out")}
    whole, rest = rows.pop("**the GPU**"), rows["unattributed"]

    assert whole == [gpu["memory_used_bytes"] / MEBIBYTE, gpu["utilization_ratio"]]
    assert rest == [gpu["unattributed_memory_bytes"] / MEBIBYTE, gpu["unattributed_utilization_ratio"]]
    assert [sum(column) for column in zip(*rows.values(), strict=True)] == whole


def test_the_processes_of_the_example(printed: dict[str, Any]) -> None:
    """The driver's list is the one on the page, with the pod of each process."""
    listed = {
        (
            f"`{row['command']}`",
            row["memory_used_bytes"] / MEBIBYTE,
            row["compute_used_ratio"] * 100,
            row["pod"] and f"`{row['namespace']}/{row['pod']}`",
        )
        for row in on_gpu(printed, "processes", 0)
    }
    rows = table("Who runs there")
    pods = {cells[3]: re.search(r"`[\w-]+/[\w-]+`", cells[3]) for cells in rows}
    written = {(cells[0], *numbers(cells[1:3]), (pod := pods[cells[3]]) and pod[0]) for cells in rows}

    assert written == listed


def test_the_user_without_a_slice(printed: dict[str, Any]) -> None:
    """The page has the numbers of the pod without an allocation."""
    (row,) = [row for row in on_gpu(printed, "containers", 3) if row["pod"] == "shell-oskar"]
    use = f"{row['memory_used_bytes'] // MEBIBYTE} MiB and {row['compute_used_ratio']:.2f} GPU"

    assert (row["slices"], row["memory_entitled_bytes"]) == (0, None)
    assert f"`dev/shell-oskar` uses {use}" in " ".join(EXAMPLE.split())


def test_rules_that_are_named_exist() -> None:
    """Code, tests and pages name rules by their numbers."""
    root = Path(__file__).parents[3]
    files = [
        *(root / "exporter").rglob("*.py"),
        *(root / "tests/core/attribution").glob("*.py"),
        *(root / "docs").glob("*.md"),
    ]
    named = {number for path in files for number in re.findall(r"\b[Rr]ule (\d+)\b", path.read_text())}
    rules = re.findall(r"^(\d+)\. ", PAGE.partition("## The rules")[2], re.MULTILINE)

    assert named
    assert named <= set(rules)
