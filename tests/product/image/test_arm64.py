"""The image for arm64 runs under QEMU: the image of this machine with compiled files for arm64.

They are from the same packages of Debian and the same locked distributions. docs/decisions.md explains why
the image is not built for arm64 here.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.utils import canonicalize_name, parse_wheel_filename

from tests.product.image.building import LOCKS, PYTHON, SUITE, wheels
from tests.product.image.engine import CACHE, digest_of, locked, output, podman, require_engine
from tests.product.image.test_image import LOADABLE
from tests.tools import tool

pytestmark = [
    pytest.mark.tools,
    pytest.mark.timeout(900),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="replaces the compiled files of amd64"),
]

# Newer processors sign return addresses, which QEMU emulates at a fifth of the speed.
EMULATOR, PROCESSOR = "qemu-aarch64-static", "cortex-a72"
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
SOURCE = f"deb [arch=arm64 target=Packages signed-by={KEYS}] http://deb.debian.org/debian {SUITE} main\n"
APT_OPTIONS = ("Architecture=arm64", "Architectures=arm64", "Sandbox::User=root")
PLATFORMS = [f"--platform=manylinux{version}_aarch64" for version in ("2014", "_2_17", "_2_28", "_2_34")]
SITE = f"opt/gpuslice/lib/python{PYTHON}/site-packages"
LOADER = "ld-linux-aarch64.so.1"
# The header of a compiled file begins with the first; the machine follows after 18 bytes.
ELF, MACHINE = b"\x7fELF", b"\xb7\x00"
Parts = Mapping[str, bytes]
PROGRAM = "/opt/gpuslice/bin/gpuslice-exporter"
SNAPSHOT = ("snapshot", "--scenario=gb200-nvl72", "--format=prometheus", "--metric-set=full")
# The machine, the compiled modules that load, and the errors of the others.
LOAD_ALL = """
import importlib, json, pathlib, platform, sys
loaded, failed = [], []
for folder in map(pathlib.Path, sys.path[-2:]):
    for file in folder.rglob("*.so"):
        name = ".".join(file.relative_to(folder).with_name(file.name.partition(".")[0]).parts)
        try:
            importlib.import_module(name)
            loaded.append(name)
        except ImportError as error:
            failed.append(str(error))
print(json.dumps([platform.machine(), sorted(loaded), failed]))
"""


@pytest.fixture(scope="module")
def arm64(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Compose the image; yield podman's words that run its Python by the emulator."""
    require_engine("apt-get", "dpkg-deb", EMULATOR)
    root = tmp_path_factory.mktemp("arm64")
    missing = _compose(unpacked, root, _parts(_fetched(unpacked)))
    assert not missing, f"neither Debian nor the wheels have these for arm64: {missing}"
    emulator = [f"--volume={tool(EMULATOR)}:/emulator:ro", f"--env=QEMU_CPU={PROCESSOR}"]
    yield [*emulator, "--rootfs", str(root), "/emulator", "/opt/gpuslice/bin/python"]
    shutil.rmtree(root)


def _fetched(unpacked: Path) -> Path:
    """Return a folder with the packages and the wheels for arm64, which are downloaded once."""
    status = unpacked / "var/lib/dpkg/status.d"
    folder = CACHE / "arm64" / digest_of(status, LOCKS[0])
    with locked("arm64"):
        if not folder.exists():
            shutil.rmtree(folder.parent, ignore_errors=True)
            part = folder.with_suffix(".part")
            part.mkdir(parents=True)
            _fetch_packages(
                part, [p.name for p in status.iterdir() if "\nArchitecture: all" not in p.read_text()]
            )
            _fetch_wheels(part)
            part.rename(folder)
    return folder


def _fetch_packages(folder: Path, packages: list[str]) -> None:
    state = folder / "state"
    for name in ("etc/apt", "var/lib/apt/lists/partial", "var/lib/dpkg", "var/cache/apt/archives/partial"):
        (state / name).mkdir(parents=True)
    (state / "var/lib/dpkg/status").touch()
    (state / "etc/apt/sources.list").write_text(SOURCE)
    settings = (f"Dir={state}", "Acquire::Retries=3", *(f"APT::{option}" for option in APT_OPTIONS))
    apt = ["env", f"--chdir={folder}", "apt-get", "-qq", *(f"--option={setting}" for setting in settings)]
    output(*apt, "update")
    output(*apt, "download", *packages)
    shutil.rmtree(state)


def _fetch_wheels(folder: Path) -> None:
    """Download the wheels of all distributions that have compiled files."""
    names = [
        parse_wheel_filename(path.name)[0] for path in wheels().glob("*.whl") if "-none-any" not in path.name
    ]
    entries = re.split(r"\n(?=\S)", LOCKS[0].read_text())
    lock = folder / "compiled.lock"
    lock.write_text(
        "\n".join(entry for entry in entries if canonicalize_name(entry.partition("==")[0]) in names)
    )
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", f"--python-version={PYTHON}"]
    source = ["--only-binary=:all:", "--require-hashes", f"--requirement={lock}", f"--dest={folder}"]
    output(*pip, *PLATFORMS, *source)


def _parts(folder: Path) -> Parts:
    """Return the compiled files for arm64 by path in the image, libraries also by the paths of links."""
    parts = {}
    for wheel in folder.glob("*.whl"):
        with ZipFile(wheel) as archive:
            parts |= {f"{SITE}/{name}": archive.read(name) for name in archive.namelist() if ".so" in name}
    for package in folder.glob("*.deb"):
        command = ["dpkg-deb", "--fsys-tarfile", package]
        data = subprocess.run(command, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=BytesIO(data)) as archive:
            parts |= dict(_members(archive))
    return {path: data for path, data in parts.items() if data[:4] == ELF and data[18:20] == MACHINE}


def _members(archive: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    """Yield all files by path, and the targets of a library's links in the same folder."""
    for member in archive:
        library_link = member.issym() and "/" not in member.linkname and ".so." in member.linkname
        file = archive.extractfile(member) if member.isfile() or library_link else None
        if file is not None:
            yield member.name.removeprefix("./"), file.read()


def _compose(unpacked: Path, root: Path, parts: Parts) -> list[str]:
    """Copy the image with the parts instead of the files of this machine; return the paths without a part."""
    missing = []
    for folder, folders, files in os.walk(unpacked):
        for path in (Path(folder) / name for name in (*folders, *files)):
            name = _translated(str(path.relative_to(unpacked)))
            place = root / name
            if name in parts:
                place.write_bytes(parts[name])
                place.chmod(0o755)
            elif path.is_symlink():
                place.symlink_to(_translated(str(path.readlink())))
            elif path.is_dir():
                place.mkdir()
            elif path.read_bytes()[:4] == ELF:
                missing.append(name)
            else:
                shutil.copy2(path, place)
    (root / "usr/lib" / LOADER).symlink_to(f"aarch64-linux-gnu/{LOADER}")
    return missing


def _translated(path: str) -> str:
    return path.replace("x86_64-linux-gnu", "aarch64-linux-gnu").replace("ld-linux-x86-64.so.2", LOADER)


def _run(where: list[str], *arguments: str) -> str:
    """Run a Python of an image, by podman's words for it; return what it prints."""
    limits = ("--network=none", "--read-only", "--ulimit=nofile=1024:4096", "--ulimit=nproc=4096:4096")
    return output(*podman("run", "--rm", *limits, *where, *arguments))


def _series(page: str) -> list[str]:
    return sorted(line.rpartition(" ")[0] for line in page.splitlines() if line[:1] != "#")


def test_it_starts(arm64: list[str]):
    assert _run(arm64, PROGRAM, "--version").startswith("gpuslice-exporter ")


def test_each_compiled_module_loads(image: str, arm64: list[str]):
    """Of Python and the distributions: the same that load on this machine, and none fails."""
    machine, loaded, failed = json.loads(_run(arm64, "-c", LOAD_ALL))

    assert (machine, failed) == ("aarch64", [])
    assert loaded == json.loads(_run(["--entrypoint=python", image], "-c", LOAD_ALL))[1]
    assert {"_ctypes", "grpc._cython.cygrpc", "google._upb._message"} <= {*loaded}


def test_libraries_of_a_driver_are_found(arm64: list[str]):
    assert int(_run(arm64, "-c", LOADABLE)) > 100


def test_it_polls_a_node_with_grace_processors(image: str, arm64: list[str]):
    """With the same series as on this machine."""
    series = _series(_run(arm64, PROGRAM, *SNAPSHOT))

    assert series == _series(_run(["--entrypoint=python", image], PROGRAM, *SNAPSHOT))
    assert sum(name.startswith("gpuslice_gpu_info{") for name in series) == 4
