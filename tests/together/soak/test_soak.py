"""As many polls as the judge needs of a busy day; ``make soak`` runs a whole one."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_nothing_grows_on_a_busy_day() -> None:
    """No figure of the process grows with the pods that it has seen, and the counts are those of the node."""
    command = [sys.executable, ROOT / "scripts/soak", "--short"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
