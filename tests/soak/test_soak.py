"""As many polls as the judge needs of a lively day; ``make soak`` acts a whole one."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(1600)
def test_nothing_grows_in_a_lively_day() -> None:
    """No figure of the process grows with the pods that it has seen, and the counts are those of the node."""
    # The other tests have deadlines, and the soak has none.
    command = ["nice", "-n", "5", sys.executable, ROOT / "scripts/soak", "--short"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
