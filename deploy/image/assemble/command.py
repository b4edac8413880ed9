"""Calling the programs of the base."""

import subprocess
from pathlib import Path


def told(*command: str | Path, complete: bool = True) -> str:
    """Give what a program prints; it must succeed, unless what it tells need not be complete."""
    done = subprocess.run(command, check=complete, capture_output=True, text=True)  # noqa: S603 - the base's own
    return done.stdout
