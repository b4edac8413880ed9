"""The outcome of a soak, as a line and as the table in the documentation."""

import os
from collections.abc import Sequence
from pathlib import Path

from tests.together.faults import reliability
from tests.together.soak.day import PERIOD, happened
from tests.together.soak.judge import Claim, most
from tests.together.soak.soak import Run

BEGIN, END = "<!-- soak -->", "<!-- /soak -->"


def failures(run: Run, claims: Sequence[Claim]) -> list[str]:
    """Return what did not hold, one line each."""
    grown = [
        f"{claim.name}: {claim.begin} → {claim.end} ({claim.grew})" for claim in claims if not claim.holds
    ]
    return [*grown, *run.books.objections, *run.broken]


def summary(run: Run, claims: Sequence[Claim]) -> str:
    """Return the result in one line."""
    wrong = len(failures(run, claims))
    memory = claims[0]
    verdict = "holds" if not wrong else f"FAILS in {wrong} points"
    return (
        f"soak {verdict}: {run.polls} polls, {run.pods} pods in {run.seconds / 60:.1f} min; "
        f"{memory.name} {memory.begin} → {memory.end} ({memory.grew})"
    )


def markdown(run: Run, claims: Sequence[Claim]) -> str:
    """Return the table, after a paragraph on what was done."""
    caches = [claim for claim in claims if claim.name.startswith("entries of ")]
    rows = [
        f"| {claim.name} | {claim.begin} | {claim.end} | {claim.grew} | {_verdict(claim.holds)} |"
        for claim in claims
        if claim not in caches
    ]
    full = all(claim.holds for claim in caches)
    rows.append(f"| {len(caches)} caches and books | bounded | bounded | | {_verdict(full)} |")
    return "\n".join(
        [
            _summary_of(run),
            "",
            "| | after warm-up | at the end | growth | |",
            "|---|---|---|---|---|",
            *rows,
            "",
            _books(run),
        ]
    )


def write(page: Path, text: str) -> None:
    """Put the table between its marks in a page, as ``reliability.write`` does."""
    reliability.write(page, BEGIN, END, text)


def _summary_of(run: Run) -> str:
    hours = run.polls * PERIOD / 3600
    every = ", ".join(f"{count} {what}" for what, count in happened(run.polls).items())
    return (
        f"{run.polls:,} polls ({hours:.1f} h at {PERIOD} s) in {run.seconds / 60:.0f} minutes on "
        f"{os.cpu_count()} cores, in which {run.pods:,} pods came and went on seven GPUs: {every}. "
        f"{run.requests:,} requests were answered, and {run.events:,} events sent to an open page. "
        f"The exporter took {run.cpu / run.polls * 1000:.0f} ms of CPU time for each poll, with the fake "
        f"driver and all that was asked of it, and {most(run.samples) / 1e6:.0f} MB at the most."
    )


def _books(run: Run) -> str:
    books, wrong = run.books, [*run.books.objections, *run.broken]
    if wrong:
        return f"**{len(wrong)} objections**, the first: {wrong[0]}"
    return (
        f"{books.pods:,} pods were entitled to a share. {books.exact:,} of them lived through no fault, and "
        f"held on the pages exactly what they had. All held {books.held:,.0f} GPU-seconds there, of "
        f"{books.true:,.0f} in truth. "
        f"The GPUs drew {books.drawn:,.0f} J, and {books.joules:,.0f} J were attributed or unattributed. "
        f"{run.looked} pages kept all laws of a page."
    )


def _verdict(holds: bool) -> str:
    return "holds" if holds else "**fails**"
