"""Runs buildah and podman on a store of this checkout's own, apart from the machine's images."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache/image-base"
# What a container leaves while it runs; a name for each checkout, on a file system that a restart empties.
STATE = Path("/run/gpuslice-image") / hashlib.sha256(str(ROOT).encode()).hexdigest()[:12]
NEEDED = ("buildah", "debootstrap", "podman", "runc")


def require_engine(*others: str) -> None:
    """Skip where programs or the rights that a build needs are not there, but fail in CI."""
    # Some lie where only root looks for programs.
    missing = [name for name in (*NEEDED, *others) if shutil.which(name) is None]
    reason = f"not installed: {', '.join(missing)} (scripts/install-tools)" if missing else ""
    if reason := "only root can build and run images" if os.getuid() else reason:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)


def run(*command: str | Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, whatever that is."""
    words = list(map(str, command))
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=timeout)


def output(*command: str | Path, timeout: float = 300) -> str:
    """Run a program and give what it prints; what it says on failure becomes the failure of the test."""
    done = run(*command, timeout=timeout)
    if done.returncode:
        pytest.fail(f"{' '.join(map(str, command))}: {(done.stderr or done.stdout)[-4000:]}")
    return done.stdout


def buildah(command: str, *arguments: str | Path) -> str:
    """Run one of buildah's commands and give what it prints."""
    return output("buildah", *_store(), command, *arguments)


def podman(command: str, *arguments: str | Path) -> list[str]:
    """Give the words of one of podman's commands.

    The runtime is runc: Debian's crun does not run on machines whose control groups are of both versions.
    """
    return ["podman", *_store(), "--runtime", "runc", command, *map(str, arguments)]


def _store() -> list[str]:
    return ["--root", str(CACHE / "store"), "--runroot", str(STATE), "--storage-driver", "overlay"]


@contextmanager
def locked(what: str, meanwhile: Callable[[], object] | None = None) -> Iterator[None]:
    """Let one test run look for something in the cache at a time, and make it where it lacks.

    Where another one is at it, this one does ``meanwhile`` first, instead of waiting idly.
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
    """Give a hash over the names and contents of all files below folders, and of files."""
    total = hashlib.sha256()
    for folder in folders:
        for path in sorted([folder, *folder.rglob("*")]):
            if path.is_file():
                total.update(f"{path.relative_to(folder.parent)}\0{path.stat().st_size}\0".encode())
                total.update(path.read_bytes())
    return total.hexdigest()[:16]


def has_image(name: str) -> bool:
    """Say whether the store has an image."""
    return run("buildah", *_store(), "inspect", "--type", "image", name).returncode == 0
