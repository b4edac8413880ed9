"""The programs that tests run, and which lane has them: scripts/install-tools installs them."""

import os
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = ROOT / ".cache/tools"
# What `make test` installs, or every machine has. A test that needs another program is marked `tools`.
QUICK = frozenset(
    {"prometheus", "promtool", "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"}
    | {"openssl", "curl", "shellcheck", "git", "make", "bash"}
)

# The test that runs now, as conftest.py notes it.
current: pytest.Item | None = None


def tool(*names: str) -> str:
    """Return the path of the first of some programs that is installed.

    Without it the test is skipped, and fails in CI. A test fails too that needs one beyond QUICK and is not
    marked: it would fail on a fresh machine only.
    """
    if current is not None and not QUICK.intersection(names) and current.get_closest_marker("tools") is None:
        pytest.fail(f"a test that needs {names[0]} must be marked with pytest.mark.tools")
    search = f"{TOOLS / 'bin'}:{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    for name in names:
        if path := shutil.which(name, path=search):
            return path
    return lacks(f"{names[0]} is not installed (scripts/install-tools)")


def lacks(reason: str) -> str:
    """Skip the test, or fail it in CI, where nothing may be missing."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}; CI must have it")
    pytest.skip(reason)
