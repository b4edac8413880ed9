"""What long runs leave behind: a table for the documentation, and what they found as tests to be kept."""

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

BEGIN, END = "<!-- fuzz: begin -->", "<!-- fuzz: end -->"
_REACHED = re.compile(r"\bcov: ([0-9]+) ft: ([0-9]+)")
# An input as long as this still fits into a test; of a longer one the test reads the file.
LONGEST_INLINE = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one run came to. ``edges`` are the branches of the instrumented code that any input took.

    ``findings`` are the files of inputs by kind. ``seconds`` are of the processor.
    """

    target: str
    inputs: int
    seconds: float
    slowest: float
    megabytes: int
    edges: int
    findings: Mapping[str, str] = field(default_factory=dict)


def outcome_of(target: str, output: str, folder: Path) -> Outcome:
    """Read the output of a run; one that did not come to its end is a finding by itself."""
    reached = _REACHED.findall(output)
    edges = int(reached[-1][0]) if reached else 0
    told = next((line for line in reversed(output.splitlines()) if line.startswith('{"target"')), "")
    if told:
        return Outcome(**json.loads(told), edges=edges)
    kept = {
        path.name.split("-")[-2]: str(path)
        for kind in ("timeout", "oom", "crash", "leak")
        for path in folder.glob(f"{target}-{kind}-*")
    }
    log = folder / f"{target}.log"
    return Outcome(
        target=target,
        inputs=0,
        seconds=0,
        slowest=0,
        megabytes=0,
        edges=edges,
        findings=kept or {"ended": str(log)},
    )


def table(outcomes: Iterable[Outcome], machine: str) -> str:
    """Make the table as Markdown."""
    rows = sorted(outcomes, key=lambda each: each.target)
    lines = [
        f"*Made by `make fuzz` on {machine}.*",
        "",
        "| Target | Inputs | Processor seconds | Edges reached | Slowest input | Findings |",
        "|---|--:|--:|--:|--:|--:|",
        *(_row(each.target, [each]) for each in rows),
        _row(f"**all {len(rows)}**", rows),
    ]
    return "\n".join(lines) + "\n"


def _row(name: str, of: Sequence[Outcome]) -> str:
    figures = (
        f"{sum(each.inputs for each in of):,}".replace(",", " "),
        f"{sum(each.seconds for each in of):.0f}",
        f"{sum(each.edges for each in of)}",
        f"{max((each.slowest for each in of), default=0) * 1000:.1f} ms",
        f"{sum(len(each.findings) for each in of)}",
    )
    return f"| {name} | {' | '.join(figures)} |"


def keep(outcome: Outcome, folder: Path) -> None:
    """Keep what a run came to, in place of the run of that target before."""
    (folder / f"{outcome.target}.json").write_text(json.dumps(asdict(outcome)), encoding="utf-8")


def kept(targets: Iterable[str], folder: Path) -> list[Outcome]:
    """Give the last run of each target that was run."""
    files = (folder / f"{target}.json" for target in targets)
    return [Outcome(**json.loads(file.read_text(encoding="utf-8"))) for file in files if file.exists()]


def regression(target: str, kind: str, content: bytes, path: str) -> str:
    """Write a test that fails as long as a finding is not mended."""
    name = re.sub(r"\W+", "_", f"{target}_{kind}").strip("_").lower()[:80]
    short = len(content) <= LONGEST_INLINE
    given = (
        f"base64.b64decode({base64.b64encode(content).decode()!r})"
        if short
        else f"Path({path!r}).read_bytes()"
    )
    return (
        f"# {target}: {kind}\n"
        f"# or keep the input: cp {path} tests/fuzz/corpus/{target}/\n"
        f"def test_{name}() -> None:\n"
        f"    examine(BY_NAME[{target!r}], {given})\n"
    )
