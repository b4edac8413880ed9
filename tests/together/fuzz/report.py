"""The results of long runs: a table for the documentation, and findings as tests."""

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

BEGIN, END = "<!-- fuzz: begin -->", "<!-- fuzz: end -->"
_REACHED = re.compile(r"\bcov: ([0-9]+) ft: ([0-9]+)")
# An input of at most this length is written into the test; a longer one is read from its file.
LONGEST_INLINE = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one run."""

    target: str
    inputs: int
    seconds: float  # of the processor
    slowest: float
    megabytes: int
    edges: int  # branches of the instrumented code that inputs took
    findings: Mapping[str, str] = field(default_factory=dict)


def outcome_of(target: str, output: str, folder: Path) -> Outcome:
    """Return the outcome from the output of a run; a run without an end is a finding."""
    reached = _REACHED.findall(output)
    edges = int(reached[-1][0]) if reached else 0
    last = next((line for line in reversed(output.splitlines()) if line.startswith('{"target"')), "")
    if last:
        return Outcome(**json.loads(last), edges=edges)
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
    """Return the table as Markdown."""
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
    """Write the outcome of a run, in place of the last one of that target."""
    (folder / f"{outcome.target}.json").write_text(json.dumps(asdict(outcome)), encoding="utf-8")


def kept(targets: Iterable[str], folder: Path) -> list[Outcome]:
    """Return the last outcome of each target that has one."""
    files = (folder / f"{target}.json" for target in targets)
    return [Outcome(**json.loads(file.read_text(encoding="utf-8"))) for file in files if file.exists()]


def regression(target: str, kind: str, content: bytes, path: str) -> str:
    """Return a test that fails until a finding is fixed."""
    name = re.sub(r"\W+", "_", f"{target}_{kind}").strip("_").lower()[:80]
    short = len(content) <= LONGEST_INLINE
    given = (
        f"base64.b64decode({base64.b64encode(content).decode()!r})"
        if short
        else f"Path({path!r}).read_bytes()"
    )
    return (
        f"# {target}: {kind}\n"
        f"# or keep the input: cp {path} tests/together/fuzz/corpus/{target}/\n"
        f"def test_{name}() -> None:\n"
        f"    examine(BY_NAME[{target!r}], {given})\n"
    )
