"""The directory of NVIDIA's MPS daemons: ``<vendor>/<resource>/.started`` says that one serves the resource.

The file is made when the daemon is up and removed when it ends in good order. One that was killed leaves it
behind until the node starts anew.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from exporter.model import FileProblem, SystemFiles
from exporter.sharing.files.reading import names, problem
from exporter.sharing.system import Roots

STARTED = ".started"
# A node has a handful of resources; beside them lie the sockets and logs of the daemons.
MOST = 64


def read_daemons(roots: Roots) -> SystemFiles:
    """Return the resources that an MPS daemon serves as ``names``, each with the path of its file."""
    started: dict[str, str] = {}
    problems: list[FileProblem] = []
    for folder in _folders(roots.mps, problems):
        for path in _folders(folder, problems):
            try:
                if stat.S_ISREG(os.lstat(path / STARTED).st_mode):
                    started[f"{folder.name}/{path.name}"] = str(path / STARTED)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                problems.append(problem(path / STARTED, error.strerror))
    return SystemFiles(names=started, problems=tuple(problems))


def _folders(parent: Path, problems: list[FileProblem]) -> Iterator[Path]:
    try:
        found = names(parent, MOST)
    except OSError as error:
        problems.append(problem(parent, error.strerror))
        return
    yield from (parent / name for name in found if not name.startswith("."))
