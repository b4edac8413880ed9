"""Running the programs that test what is deployed."""

import subprocess
from pathlib import Path

import pytest

from tests.tools import ROOT, TOOLS, tool

__all__ = ["ROOT", "TOOLS", "output", "tool"]


def output(name: str, *arguments: str | Path, cwd: Path = ROOT) -> str:
    """Return what a program prints; if it fails, the test fails with its message."""
    done = subprocess.run(
        [tool(name), *map(str, arguments)], cwd=cwd, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.fail(f"{name} {' '.join(map(str, arguments))}: {done.stderr or done.stdout}")
    return done.stdout
