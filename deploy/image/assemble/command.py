"""Running programs of the base."""

import subprocess
from pathlib import Path


def output_of(*command: str | Path, complete: bool = True) -> str:
    """Return the output of a program; with ``complete`` a failure raises CalledProcessError."""
    done = subprocess.run(command, check=complete, capture_output=True, text=True)  # noqa: S603 - the base's own
    return done.stdout
