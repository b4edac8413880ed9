"""What the program reports about itself."""

from pathlib import Path

import pytest

from exporter import __version__
from exporter.demo.scenario import catalog
from tests.core.commands.program import output_of, run, run_anew

METRICS_PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
COMMANDS = ("serve", "demo", "snapshot", "doctor", "record", "metrics")


def test_version():
    assert output_of("--version") == f"gpuslice-exporter {__version__}\n"


def test_metrics_prints_the_reference_page():
    assert output_of("metrics") == METRICS_PAGE.read_text(encoding="utf-8")


def test_the_list_of_scenarios_has_names_and_descriptions():
    lines = run("demo", "--list").stdout.splitlines()
    assert [tuple(line.split(maxsplit=1)) for line in lines] == [
        (name, scenario.description)
        for name, scenario in zip(catalog.names(), catalog.scenarios(), strict=True)
    ]


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_lists_the_commands(option: str):
    text = output_of(option)
    assert not [command for command in COMMANDS if f"    {command} " not in text]


@pytest.mark.parametrize(
    "words",
    [
        ("metrics",),
        ("inspect",),
        *((command, "--scenario", "no-gpu") for command in ("doctor", "record")),
    ],
    ids=" ".join,
)
def test_a_command_imports_all_that_it_needs(words: tuple[str, ...]):
    """In a new interpreter a command prints what it prints in one that has all modules."""
    new, here = run_anew(*words), run(*words)
    assert new.returncode == here.returncode
    assert "Error" not in new.stderr
    assert new.stdout.splitlines()[:1] == here.stdout.splitlines()[:1]
