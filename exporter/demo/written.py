"""Files that are kept in step with something: written when they change, each replaced whole.

A reader sees the old one or the new one and nothing between.
"""

import contextlib
import shutil
from pathlib import Path


class Written:
    """Remembers what it wrote."""

    def __init__(self) -> None:
        self._content: dict[Path, str | bytes] = {}

    def write(self, path: Path, content: str | bytes) -> None:
        """Make a file say this, with the folders around it."""
        if self._content.get(path) == content:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.new")
        fresh.write_bytes(content.encode() if isinstance(content, str) else content)
        fresh.replace(path)
        self._content[path] = content

    def forget(self, path: Path) -> None:
        """Take one file away, with the folders around it that are empty then."""
        self._content.pop(path, None)
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            for folder in path.parents:
                folder.rmdir()

    def remove(self, folder: Path) -> None:
        """Take a folder away with all that is in it."""
        # Comparing texts takes a fiftieth of the time that comparing paths does.
        inside = f"{folder}/"
        self._content = {
            path: text for path, text in self._content.items() if not str(path).startswith(inside)
        }
        shutil.rmtree(folder)
