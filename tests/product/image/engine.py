"""Runs buildah and podman on a store of this checkout, separate from the machine's images."""

import fcntl
import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.tools import ROOT, lacks, tool

CACHE = ROOT / ".cache/image-base"
# The state of running containers: a folder for each checkout, on a file system that a restart empties.
STATE = Path("/run/gpuslice-image") / hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]
NEEDED = ("buildah", "debootstrap", "podman", "runc")


def require_engine(*others: str) -> None:
    """Skip the test without the programs or the rights that a build needs; fail in CI."""
    for name in (*NEEDED, *others):
        tool(name)
    if os.getuid():
        lacks("only root can build and run images")


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program; it may fail."""
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


def output(*command: str | Path) -> str:
    """Return what a program prints; if it fails, the test fails with its message."""
    done = run(*command)
    if done.returncode:
        pytest.fail(f"{' '.join(map(str, command))}: {(done.stderr or done.stdout)[-4000:]}")
    return done.stdout


def buildah(command: str, *arguments: str | Path) -> str:
    """Return what one of buildah's commands prints."""
    return output("buildah", *_store(), command, *arguments)


def podman(command: str, *arguments: str | Path) -> list[str]:
    """Return the words of one of podman's commands.

    The runtime is runc: Debian's crun does not run on machines with control groups of both versions.
    """
    return ["podman", *_store(), "--runtime", "runc", command, *map(str, arguments)]


def _store() -> list[str]:
    return ["--root", str(CACHE / "store"), "--runroot", str(STATE), "--storage-driver", "overlay"]


@contextmanager
def locked(what: str, meanwhile: Callable[[], object] | None = None) -> Iterator[None]:
    """Let one test run at a time look for something in the cache, and make it if it is missing.

    If another one has the lock, this one does ``meanwhile`` first, instead of waiting idly.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{what}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if meanwhile is not None:
                meanwhile()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def digest_of(*folders: Path) -> str:
    """Return a hash of the names and contents of files, and of all files below folders."""
    total = hashlib.sha256()
    for folder in folders:
        for path in sorted([folder, *folder.rglob("*")]):
            if path.is_file():
                total.update(f"{path.relative_to(folder.parent)}\0{path.stat().st_size}\0".encode())
                total.update(path.read_bytes())
    return total.hexdigest()[:16]


def has_image(name: str) -> bool:
    """Return whether the store has an image."""
    return run("buildah", *_store(), "inspect", "--type", "image", name).returncode == 0
