"""The sample outputs in README.md and the quick start are what the commands print.

A line with an ellipsis stands for lines that are left out. Numbers with a fraction, ages, and whether a
holder has just computed differ from run to run: they are compared by their form, so that a unit or a column
that changes is noticed.
"""

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.core.commands.program import output_of, run
from tests.product.alerts.committed import quick_rules
from tests.product.project.documented_commands import blocks
from tests.together.end_to_end.programs import Prometheus, demo, free_port, prometheus, until

README, QUICKSTART = "README.md", "docs/quickstart.md"
LEFT_OUT = "…"
# The nodes of the sample of the cluster; polls are rare, so that all is of one moment.
NODES = ("h100-exclusive", "t4-timeslicing")
ONCE = ("--poll-interval", "1h", "--stale-after", "2h")


def samples(page: str) -> list[str]:
    """Return the blocks of output of a page."""
    return [text for language, text in blocks(page) if language == "text"]


def sample(page: str, word: str) -> str:
    """Return the block of output with a word in it, which only one has."""
    (found,) = [text for text in samples(page) if word in text]
    return found


def form(line: str) -> str:
    """Return a line with its numbers, and the widths of columns that follow from them, as marks."""
    line = re.sub(r"/\S+/gpuslice-\w+(?=/)", "", line)
    line = re.sub(r"\d+(?:\.\d+)+(?= (?:GiB|GPU)| / )", "N", line)
    line = re.sub(r"\b\d+(?= (?:W|°C|%))", "N", line)
    line = re.sub(r"(?:\b\d+ (?:s|min|h)\b ?)+", "N ", line)
    line = re.sub(r" (?:active|(?:quiet|idle) \(N \))$", " STATE", line)
    return re.sub(r" {2,}", "  ", line).rstrip()


def missing(excerpt: str, output: str) -> list[str]:
    """Return the lines of an excerpt that the output lacks at their place."""
    lines = [form(line) for line in output.splitlines()]
    at, skips, lacking = 0, False, []
    for line in map(form, excerpt.splitlines()):
        if line == LEFT_OUT:
            skips = True
            continue
        place = _place(lines, line, at, skips=skips)
        if place is None:
            lacking.append(line)
        else:
            at, skips = place + 1, False
    return lacking if skips or at == len(lines) else [*lacking, "the end"]


def _place(lines: Sequence[str], line: str, start: int, *, skips: bool) -> int | None:
    end = len(lines) if skips else start + 1
    return next((at for at in range(start, min(end, len(lines))) if lines[at] == line), None)


@pytest.mark.parametrize(
    ("excerpt", "lacking"),
    [
        ("a 1.0 GiB\nb\nc", []),
        ("a 9.25 GiB\n…", []),
        ("…\nc", []),
        ("a 1.0 GiB\nc", ["c", "the end"]),
        ("a 1.0 GB\n…", ["a 1.0 GB"]),
        ("a 1.0 GiB\nb", ["the end"]),
        ("…\nd\n…", ["d"]),
        ("…\nc\n…\na 1.0 GiB\n…", ["a N GiB"]),
    ],
)
def test_a_wrong_excerpt_is_noticed(excerpt: str, lacking: list[str]) -> None:
    assert missing(excerpt, "a 2.5 GiB\nb\nc\n") == lacking


@pytest.mark.parametrize(
    ("page", "word", "command"),
    [
        (QUICKSTART, "13 of 14", ("doctor", "--scenario", "t4-timeslicing")),
        (QUICKSTART, "hostPID", ("doctor", "--scenario", "gke")),
        (README, "nb-chloe", ("snapshot", "--scenario", "showcase")),
    ],
)
def test_a_sample_of_a_node_is_what_is_printed(page: str, word: str, command: Sequence[str]) -> None:
    lacking = missing(_with_ends(sample(page, word)), run(*command).stdout)

    assert lacking == []


def _with_ends(excerpt: str) -> str:
    """Return an excerpt of a page, which may begin and end anywhere."""
    return f"{LEFT_OUT}\n{excerpt.rstrip()}\n{LEFT_OUT}\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Scrape the nodes until the rules have records of both."""
    folder = tmp_path_factory.mktemp("samples")
    ports = {name: free_port() for name in NODES}
    urls = {name: f"http://127.0.0.1:{port}/metrics" for name, port in ports.items()}
    scrape = {"honor_labels": True}
    with ExitStack() as running, ThreadPoolExecutor() as at_once:
        found = running.enter_context(prometheus(folder, urls, scrape=scrape, rules=[quick_rules(folder)]))
        nodes = [demo(name, *ONCE, "--listen", f"127.0.0.1:{ports[name]}") for name in NODES]
        list(at_once.map(running.enter_context, nodes))
        until(lambda: len(found.query("node:gpuslice_total_gpus:count")) == len(NODES), "records of both")
        found.settle()
        yield found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "word", "options"),
    [(README, "SLICES HELD", ()), (QUICKSTART, "nb-chloe", ("gpu-t4-1", "--details"))],
)
def test_a_sample_of_the_cluster_is_what_is_printed(
    server: Prometheus, page: str, word: str, options: Sequence[str]
) -> None:
    printed = output_of("inspect", "--prometheus-url", server.url, *options)

    assert missing(sample(page, word), printed) == [], printed


def test_every_sample_is_compared() -> None:
    assert [len(samples(page)) for page in (README, QUICKSTART)] == [2, 3]
