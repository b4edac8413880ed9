"""The worked-out examples of CONTRIBUTING.md, and copies of the tree in which they are followed."""

import os
import re
import shutil
import subprocess
import sys
from filecmp import cmp
from pathlib import Path

from markdown_it import MarkdownIt

from tests.tools import ROOT

GUIDE = ROOT / "CONTRIBUTING.md"
_LEFT_OUT = ("__pycache__", ".*_cache", ".git", ".venv", ".cache", ".hypothesis", "build", "*.egg-info")


def section(title: str) -> str:
    """Return the text of a section of the guide."""
    text = GUIDE.read_text()
    lines = text.splitlines(keepends=True)
    # Code may have lines that look like headings.
    headings = [token for token in MarkdownIt("commonmark").parse(text) if token.type == "heading_open"]
    begin = lines.index(f"## {title}\n")
    starts = [token.map[0] for token in headings if token.tag == "h2" and token.map is not None]
    end = next((start for start in starts if start > begin), len(lines))
    return "".join(lines[begin:end])


def blocks(title: str) -> list[str]:
    """Return the blocks of code of a section, in order."""
    return re.findall(r"^```\w+\n(.*?)^```$", section(title), re.DOTALL | re.MULTILINE)


def copied(folder: Path) -> Path:
    """Copy the tree into a folder, with links to the programs that tests run."""
    tree = folder / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    if (ROOT / ".cache").exists():
        (tree / ".cache").symlink_to(ROOT / ".cache")
    return tree


def edit(path: Path, old: str, new: str) -> None:
    """Replace the only occurrence of a text in a file."""
    text = path.read_text()
    assert text.count(old) == 1, f"{path} has {old!r} {text.count(old)} times"
    path.write_text(text.replace(old, new))


def append(path: Path, text: str) -> None:
    """Add lines at the end of a file."""
    path.write_text(f"{path.read_text().rstrip()}\n\n\n{text}")


def changed(tree: Path) -> set[str]:
    """Return the files of a copy that are new or differ from the original."""
    files = (path.relative_to(tree) for path in tree.rglob("*") if path.is_file())
    own = {path for path in files if not {"__pycache__", ".cache", ".pytest_cache"}.intersection(path.parts)}
    return {str(path) for path in own if not _same(tree / path, ROOT / path)}


def _same(one: Path, other: Path) -> bool:
    return other.exists() and cmp(one, other, shallow=False)


def run(tree: Path, *words: str) -> str:
    """Run Python in a copy, with the modules of the copy, and return its output."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
