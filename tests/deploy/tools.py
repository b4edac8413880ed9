"""The programs that render what is deployed, helm and kustomize, as scripts/install-tools puts them here."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".cache/tools"


@cache
def _found(name: str) -> str | None:
    return shutil.which(name, path=f"{TOOLS / 'bin'}:{os.environ.get('PATH', '')}")


def tool(name: str) -> str:
    """Give the path of a program; without it, skip, but fail in CI."""
    path = _found(name)
    if path is None and os.environ.get("CI") == "true":
        pytest.fail(f"{name} is not installed; CI must have it (scripts/install-tools)")
    return path or pytest.skip(f"{name} is not installed (scripts/install-tools)")


def output(name: str, *arguments: str | Path, cwd: Path = ROOT) -> str:
    """Run a program and give what it prints; what it says on failure becomes the failure of the test."""
    done = subprocess.run(
        [tool(name), *map(str, arguments)], cwd=cwd, capture_output=True, text=True, check=False, timeout=100
    )
    if done.returncode:
        pytest.fail(f"{name} {' '.join(map(str, arguments))}: {done.stderr or done.stdout}")
    return done.stdout
