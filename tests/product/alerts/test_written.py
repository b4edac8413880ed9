"""The rule files in the repository."""

import subprocess
from pathlib import Path

from alerts.thresholds import load_thresholds
from alerts.write import ALERTS, RECORDING, rule_files
from tests.tools import tool

FOLDER = Path(__file__).parents[3] / "alerts"


def test_committed_rules_are_what_the_code_makes() -> None:
    """After a change of the code or a threshold, run `make rules`."""
    made = rule_files(load_thresholds())

    assert made
    assert {path: (FOLDER / path).read_text() for path in made} == made


def test_promtool_accepts_the_rules() -> None:
    command = [tool("promtool"), "check", "rules", "--lint-fatal", FOLDER / RECORDING, FOLDER / ALERTS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
