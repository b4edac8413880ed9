"""The lock files suit arm64, as of a node with Grace: its wheels are installed and run, under qemu.

Not the image itself: its build runs programs of its base, which needs a machine or a kernel that executes
those of arm64. Debian's packages are unpacked without their scripts, and qemu gets the interpreter to run.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.image.building import PYTHON, SUITE
from tests.image.engine import CACHE, ROOT, digest_of, locked, output

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

QEMU = "qemu-aarch64-static"
NEEDED = ("debootstrap", "dpkg-deb", QEMU)
BASE = ("--download-only", "--arch=arm64", "--variant=minbase", "--include=python3", SUITE)
LOCK = ROOT / "deploy/image/requirements.lock"
# Wheels for the C library of Debian 13 and older ones.
PLATFORMS = (
    "manylinux2014_aarch64",
    "manylinux_2_17_aarch64",
    "manylinux_2_28_aarch64",
    "manylinux_2_34_aarch64",
)
NODE = "gb200-nvl72"


def require_emulator() -> None:
    """Skip where the programs are not there, but fail in CI."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    reason = f"not installed: {', '.join(missing)} (scripts/install-tools)" if missing else ""
    if reason := "only root can unpack a Debian" if os.getuid() else reason:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)


@pytest.fixture(scope="module")
def system() -> Path:
    """Give a root folder of arm64 with Python and the locked distributions, made once for each lock file."""
    require_emulator()
    folder = CACHE / "arm64" / f"{SUITE}-{digest_of(LOCK)}"
    with locked("arm64"):
        if not folder.exists():
            shutil.rmtree(folder.parent, ignore_errors=True)
            part = folder.with_suffix(".part")
            _unpack(part)
            _install(part)
            shutil.rmtree(part / "var")
            part.rename(folder)
    return folder


def _unpack(folder: Path) -> None:
    folder.mkdir(parents=True)
    output("debootstrap", *BASE, folder, timeout=400)
    # Since Debian 12 these are links into /usr.
    for name in ("bin", "lib", "sbin"):
        (folder / "usr" / name).mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(f"usr/{name}")
    for package in sorted((folder / "var/cache/apt/archives").glob("*.deb")):
        # Unlike dpkg-deb's own extraction, tar keeps to the links.
        command = (
            f"dpkg-deb --fsys-tarfile '{package}' | tar --extract --keep-directory-symlink -C '{folder}'"
        )
        output("sh", "-c", command)


def _install(folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--require-hashes"]
    platforms = [f"--platform={platform}" for platform in PLATFORMS]
    place = ["--only-binary=:all:", f"--python-version={PYTHON}", "--target", folder / "wheels"]
    output(*pip, *platforms, *place, "--requirement", LOCK, timeout=400)


def run(system: Path, *arguments: str) -> str:
    """Run the program of this tree on the interpreter of arm64; return what it prints."""
    paths = f"{system}/wheels:{ROOT}"
    environment = {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/usr/bin:/bin"}
    words = [
        QEMU,
        "-L",
        str(system),
        f"{system}/usr/bin/python{PYTHON}",
        "-I",
        "-c",
        START.format(paths=paths),
    ]
    done = subprocess.run(
        [*words, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


# As ``python -m exporter``, without the folders of this machine's own Python.
START = "import runpy, sys; sys.path[:0] = '{paths}'.split(':'); runpy.run_module('exporter', alter_sys=True)"


def test_it_starts(system: Path):
    """Every module that the program imports has a wheel for arm64, or is Python alone."""
    assert run(system, "--version").split()[0] == "gpuslice-exporter"


def test_it_runs_on_arm64(system: Path):
    """The interpreter is the other machine's, and so are the compiled parts."""
    code = (
        "import json, platform, sys; sys.path[:0] = '{paths}'.split(':'); "
        "import grpc._cython.cygrpc as grpc, aiohttp._http_parser as http, google._upb._message as upb; "
        "print(json.dumps([platform.machine(), *(part.__file__ for part in (grpc, http, upb))]))"
    )
    words = [QEMU, "-L", str(system), f"{system}/usr/bin/python{PYTHON}", "-I", "-c"]
    done = subprocess.run(
        [*words, code.format(paths=f"{system}/wheels")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    machine, *parts = json.loads(done.stdout)
    assert machine == "aarch64"
    assert all("aarch64" in Path(part).name or ".abi3." in part for part in parts)


def test_it_polls_a_fake_grace_node(system: Path):
    """One poll through the binding of NVML, a socket with gRPC, and the files of a node."""
    text = run(system, "snapshot", f"--scenario={NODE}", "--format=prometheus", "--metric-set=full")
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    counts = {
        name: sum(line.startswith(f"{name}{{") for line in samples)
        for name in (
            "gpuslice_gpu_info",
            "gpuslice_gpu_c2c_links_active",
            "gpuslice_container_memory_used_bytes",
        )
    }
    assert set(counts.values()) == {4}
