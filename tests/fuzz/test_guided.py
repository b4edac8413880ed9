"""A few seconds of ``make fuzz`` for each decoder: inputs that are guided by the code that they reach."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.fuzz.every import TARGETS
from tests.fuzz.report import outcome_of

ROOT = Path(__file__).parents[2]
SECONDS = 3

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def _atheris() -> None:
    """Skip without the fuzzer, but fail in CI."""
    if find_spec("atheris") is None:
        reason = "atheris is not installed (make fuzz)"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)


@pytest.mark.usefixtures("_atheris")
@pytest.mark.parametrize("name", [target.name for target in TARGETS])
def test_a_decoder_keeps_its_promises_on_guided_inputs(name: str, tmp_path: Path) -> None:
    """Inputs that go on from those that reached new code are decoded, or refused as documented."""
    command = [sys.executable, "-m", "tests.fuzz.guided", name, tmp_path, "--seconds", str(SECONDS)]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", check=False
    )
    outcome = outcome_of(name, done.stdout, tmp_path)

    assert outcome.findings == {}, done.stdout
    assert outcome.inputs > 0
