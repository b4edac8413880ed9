"""The files of rules that are in the repository."""

import subprocess
from pathlib import Path

import pytest

from alerts.thresholds import load_thresholds
from alerts.write import ALERTS, RECORDING, rule_files
from tests.end_to_end.programs import program

ALERTS_ROOM = Path(__file__).parents[2] / "alerts"


def test_the_files_are_what_the_code_makes() -> None:
    """Who changed the code or a threshold has run `make rules`."""
    made = rule_files(load_thresholds())

    assert made
    assert {path: (ALERTS_ROOM / path).read_text() for path in made} == made


@pytest.mark.parametrize("path", [RECORDING, ALERTS])
def test_promtool_finds_nothing_wrong(path: str) -> None:
    """Every expression and template can be read, and no two rules are the same."""
    done = subprocess.run(
        [program("promtool"), "check", "rules", "--lint-fatal", ALERTS_ROOM / path],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
