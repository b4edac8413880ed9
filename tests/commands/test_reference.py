"""What the program says of itself."""

from pathlib import Path

import pytest

from exporter import __version__
from exporter.demo.scenario import catalog
from tests.commands.program import output_of, run, run_anew

METRICS_PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_version():
    """Name and number."""
    assert output_of("--version") == f"gpuslice-exporter {__version__}\n"


@pytest.mark.slow
def test_metrics_is_the_reference_page():
    """The table of series, as the docs have it."""
    assert output_of("metrics") == METRICS_PAGE.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_list_of_scenarios():
    """One line each, name first."""
    lines = output_of("demo", "--list").splitlines()
    assert [line.split()[0] for line in lines] == list(catalog.names())
    assert [line.split(maxsplit=1)[1] for line in lines] == [each.description for each in catalog.scenarios()]


@pytest.mark.parametrize("words", [["--help"], ["-h"]])
def test_help_lists_the_commands(words: list[str]):
    """Every command with what it does."""
    text = output_of(*words)
    for command in ("serve", "demo", "snapshot", "doctor", "record", "metrics"):
        assert f"    {command} " in text


@pytest.mark.parametrize("command", ["serve", "demo", "snapshot", "doctor", "record", "metrics"])
def test_help_of_a_command(command: str):
    """Every option with its default and its variable."""
    text = output_of(command, "--help")
    assert "--poll-interval DURATION" in text
    assert "Also GPUSLICE_POLL_INTERVAL" in " ".join(text.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("--version",),
        ("metrics",),
        ("inspect",),
        *((command, "--scenario", "no-gpu") for command in ("snapshot", "doctor", "record")),
    ],
    ids=" ".join,
)
def test_a_command_needs_nothing_imported_before_it(words: tuple[str, ...]):
    """In a new interpreter a command does what it does in one that has all modules."""
    anew, forked = run_anew(*words), run(*words)
    assert (anew.returncode, anew.stderr) == (forked.returncode, forked.stderr)
    assert anew.stdout.splitlines()[:1] == forked.stdout.splitlines()[:1]
