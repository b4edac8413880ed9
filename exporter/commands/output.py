"""What a command prints, and the file that one writes: whole, or a clear error."""

import os
import sys
from pathlib import Path

from exporter.settings import SettingsError


def say(text: str) -> None:
    """Print text as it is, at once; raises SettingsError when it cannot be, BrokenPipeError to nobody."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # What is left of it would fail again at the end of the program.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SettingsError(f"cannot write to standard output: {error.strerror}") from None


def write_whole(path: Path, text: str) -> None:
    """Write a file, which is there whole or as it was before; OSError.

    What is no regular file, such as a terminal, is written to as it is.
    """
    if path.exists() and not path.is_file():
        path.write_text(text)
        return
    target = path.resolve()
    part = target.with_name(f".{target.name[:200]}.{os.getpid()}")
    try:
        part.write_text(text)
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
