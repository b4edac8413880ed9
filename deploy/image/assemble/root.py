"""The root file system of the image, as it grows."""

import os
import shutil
from pathlib import Path


class Root:
    """A new root in ``folder``: files of this one are placed in it under their own names.

    ``placed`` are the names of the files, none of them with a link in it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.placed: set[Path] = set()
        folder.mkdir()

    def place(self, path: Path, ignored: tuple[str, ...] = ()) -> None:
        """Copy a file, or a folder but for what in it has a name like one of ``ignored``.

        A link is copied as a link, and so is what it leads to.
        """
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
        """Make a link unless it is there."""
        place = self.inside(path)
        if not place.is_symlink():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(target)

    def write(self, path: Path, text: str) -> None:
        """Write a file that this root has otherwise, or not at all."""
        place = self.inside(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def inside(self, path: Path) -> Path:
        """Give where an absolute path lies until the folder is the root."""
        return self.folder / path.relative_to("/")
