"""Builds the image from this tree: on a Debian that is made here, and from downloaded wheels."""

import hashlib
import json
import os
import shutil
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.product.image.engine import CACHE, ROOT, buildah, digest_of, has_image, locked, output
from tests.scratch import DISK

# The Debian and the Python of the default base image.
SUITE, PYTHON = "trixie", "3.13"
BASE = ["--variant=minbase", "--include=ca-certificates,python3,python3-venv", SUITE]
LOCKS = [ROOT / "deploy/image" / f"{name}.lock" for name in ("requirements", "build")]
NAME = "localhost/gpuslice-exporter"
# The time of everything in the image, in seconds since 1970.
TIME = 1_700_000_000
WHEELS = "/wheels-of-the-host"


def base() -> str:
    """Return the name of the base image; the first time debootstrap makes it, in a minute."""
    key = hashlib.sha256(" ".join(BASE).encode()).hexdigest()[:16]
    name = f"localhost/gpuslice-base:{key}"
    with locked("base", meanwhile=wheels):
        if not has_image(name):
            with TemporaryDirectory(dir=DISK) as folder:
                output("debootstrap", *BASE, f"{folder}/root")
                _import(Path(folder), name)
    return name


def _import(folder: Path, name: str) -> None:
    shutil.rmtree(folder / "root/var/cache/apt")
    with tarfile.open(folder / "root.tar", "w") as archive:
        archive.add(folder / "root", ".")
    shutil.rmtree(folder / "root")
    (folder / "Containerfile").write_text("FROM scratch\nADD root.tar /\n")
    buildah("build", "--isolation=chroot", "--tag", name, "--file", folder / "Containerfile", folder)


def wheels() -> Path:
    """Return a folder with the files of the lock files, downloaded by this machine's pip."""
    key = f"{digest_of(*LOCKS)}-{PYTHON}"
    folder = CACHE / "wheels" / key
    with locked("wheels"):
        if not folder.exists():
            shutil.rmtree(folder.parent, ignore_errors=True)
            part = folder.with_suffix(".part")
            for lock in LOCKS:
                pip = [sys.executable, "-m", "pip", "download", "--quiet", "--python-version", PYTHON]
                output(*pip, "--only-binary=:all:", "--require-hashes", "--requirement", lock, "--dest", part)
            part.rename(folder)
    return folder


def tree(folder: Path, time: int | None = None) -> Path:
    """Copy the build context to a folder, so that it does not change during the build.

    ``time`` is that of all files, in seconds since 1970.
    """
    included = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"]
    for name in (*included, "Dockerfile", ".dockerignore"):
        source, place = ROOT / name, folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(
                source, place, ignore=shutil.ignore_patterns("__pycache__"), copy_function=shutil.copy
            )
        else:
            shutil.copy(source, place)
    for path in () if time is None else folder.rglob("*"):
        os.utime(path, (time, time))
    return folder


def image() -> str:
    """Return the name of the image of this tree; one of the same files is used again."""
    # A test will need the second one.
    return _built("image", NAME, meanwhile=again)


def again() -> str:
    """Return the name of an image that is built again, from a copy of the tree with other times."""
    return _built("again", f"{NAME}-again", time=0)


def with_client() -> str:
    """Return the name of the image of this tree with the client of the Kubernetes API."""
    return _built("client", f"{NAME}-client", extras="kubernetes")


def _built(
    what: str,
    repository: str,
    *,
    time: int | None = None,
    extras: str = "",
    meanwhile: Callable[[], object] | None = None,
) -> str:
    of = base()
    with TemporaryDirectory(dir=DISK) as folder:
        context = tree(Path(folder) / what, time)
        key = hashlib.sha256(f"{digest_of(context)} {of} {wheels().name}".encode()).hexdigest()[:16]
        name = f"{repository}:{key}"
        with locked(what, meanwhile):
            if not has_image(name):
                _forget(repository)
                _build(context, name, extras)
    return name


def _build(context: Path, name: str, extras: str) -> None:
    mounted = wheels()
    with TemporaryDirectory(dir=DISK) as folder:
        settings = Path(folder) / "pip.conf"
        settings.write_text(f"[global]\nno-index = true\nfind-links = {WHEELS}\n")
        given = {"PYTHON_IMAGE": base(), "SOURCE_DATE_EPOCH": str(TIME), "EXTRAS": extras}
        buildah(
            "build",
            *("--isolation=chroot", "--no-cache", "--format=docker", f"--timestamp={TIME}", f"--tag={name}"),
            *(f"--build-arg={key}={value}" for key, value in given.items()),
            f"--secret=id=pip.conf,src={settings}",
            f"--volume={mounted}:{WHEELS}:ro",
            context,
        )


def _forget(name: str) -> None:
    """Remove all images of a name, whatever their tags."""
    listed = json.loads(buildah("images", "--json"))
    tags = [tag for image in listed for tag in image["names"] or () if tag.rpartition(":")[0] == name]
    if tags:
        buildah("rmi", "--force", *tags)
