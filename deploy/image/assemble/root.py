"""The root file system of the image."""

import os
import shutil
from pathlib import Path


class Root:
    """A new root in ``folder``; files of the current root are copied into it under the same paths.

    ``placed`` are the paths of the copied files, with links resolved.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.placed: set[Path] = set()
        folder.mkdir()

    def place(self, path: Path, ignored: tuple[str, ...] = ()) -> None:
        """Copy a file, or a folder without names that match ``ignored``; a link with its target."""
        link = next((part for part in (*reversed(path.parents), path) if part.is_symlink()), None)
        if link is not None:
            self.link(link, link.readlink())
            self.place(
                Path(os.path.normpath(link.parent / link.readlink() / path.relative_to(link))), ignored
            )
        elif path.is_dir():
            self.inside(path).mkdir(parents=True, exist_ok=True)
            names = sorted(entry.name for entry in path.iterdir())
            for name in sorted({*names} - shutil.ignore_patterns(*ignored)(str(path), names)):
                self.place(path / name, ignored)
        elif path not in self.placed:
            self.inside(path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, self.inside(path))
            self.placed.add(path)

    def link(self, path: Path, target: Path) -> None:
        """Create a link unless it exists."""
        place = self.inside(path)
        if not place.is_symlink():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(target)

    def write(self, path: Path, text: str) -> None:
        """Write a file that the current root has with other content, or not at all."""
        place = self.inside(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def inside(self, path: Path) -> Path:
        """Return an absolute path of the new root as a path of the current one."""
        return self.folder / path.relative_to("/")
