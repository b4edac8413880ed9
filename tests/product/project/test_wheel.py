"""The wheel and the archive of sources contain the whole program, and pip installs it from either."""

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from sysconfig import get_path

import pytest

from exporter import __version__

ROOT = Path(__file__).parents[3]
PACKAGES = ("exporter", "podresources")


def _run(*command: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=cwd, env=_bare(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _bare() -> dict[str, str]:
    # No variables of this tree and this test run.
    own = ("PYTHON", "PIP_", "GPUSLICE_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    return kept | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """Return a folder with the wheel and the archive of sources."""
    folder = tmp_path_factory.mktemp("dist")
    _run(sys.executable, "-m", "hatchling", "build", "--directory", folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built) -> zipfile.ZipFile:
    """Open the wheel."""
    (path,) = built.glob("*.whl")
    return zipfile.ZipFile(path)


def _installed(package: Path, folder: Path) -> Path:
    """Install into a new environment with the dependencies of this one; return its folder of programs."""
    _run(sys.executable, "-m", "venv", "--without-pip", folder)
    (libraries,) = folder.glob("lib/python3.*/site-packages")
    # A line in a .pth file adds a folder, but reads no .pth file there, such as the one with this tree.
    (libraries / "dependencies.pth").write_text(f"{get_path('purelib')}\n{get_path('platlib')}\n")
    options = "--no-index --no-deps --no-build-isolation --no-compile --ignore-installed --quiet"
    pip = (sys.executable, "-m", "pip", f"--python={folder}", "install")
    _run(*pip, *options.split(" "), package, cwd=folder)
    return folder / "bin"


@pytest.fixture(scope="module")
def programs(built, tmp_path_factory) -> Path:
    """Install the wheel with pip."""
    (path,) = built.glob("*.whl")
    return _installed(path, tmp_path_factory.mktemp("environment"))


@contextmanager
def _demo(programs: Path) -> Iterator[int]:
    """Serve the fake node from an installation; yield its port."""
    process = subprocess.Popen(
        [programs / "gpuslice-exporter", "demo", "--listen=127.0.0.1:0"],
        cwd=programs,
        env=_bare(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield int(re.findall(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())[0])
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def _answer(port: int, path: str) -> str:
    """Return a page as a browser gets it."""
    connection = HTTPConnection("127.0.0.1", port)
    try:
        connection.request("GET", path, headers={"Accept": "text/html,*/*;q=0.8"})
        answer = connection.getresponse()
        assert answer.status == 200, path
        return answer.read().decode()
    finally:
        connection.close()


def test_every_file_of_the_packages_is_in_the_wheel(wheel) -> None:
    """Code, scenarios, templates and static files, but no bytecode."""
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file())
    expected = {str(path.relative_to(ROOT)) for path in files if path.suffix != ".pyc"}

    assert expected == {name for name in wheel.namelist() if name.startswith(PACKAGES)}


def test_the_license_is_in_the_wheel(wheel) -> None:
    (name,) = [name for name in wheel.namelist() if name.endswith("licenses/LICENSE")]

    assert "Apache License" in wheel.read(name).decode()
    assert "END OF TERMS AND CONDITIONS" in wheel.read(name).decode()


@pytest.mark.slow
def test_the_installed_program_is_that_of_the_wheel(programs) -> None:
    """Its code is in the new environment, and its version is the wheel's."""
    code = "import exporter, podresources; print(exporter.__file__, podresources.__file__)"

    for file in _run(programs / "python", "-c", code, cwd=programs).split():
        assert Path(file).is_relative_to(programs.parent)
    assert _run(programs / "gpuslice-exporter", "--version", cwd=programs).split()[-1] == __version__
    assert "usage" in _run(programs / "kubectl-gpuslice", "--help", cwd=programs)


@pytest.mark.slow
def test_the_installed_program_has_its_scenarios(programs) -> None:
    """All scenarios of the tree are listed, and one can be shown."""
    listed = _run(programs / "gpuslice-exporter", "demo", "--list", cwd=programs).splitlines()
    shown = _run(
        programs / "gpuslice-exporter", "snapshot", "--scenario=showcase", "--format=json", cwd=programs
    )

    assert {line.split()[0] for line in listed} == {
        path.stem for path in (ROOT / "exporter/demo/scenarios").glob("*.json")
    }
    assert json.loads(shown)["gpus"]


@pytest.mark.slow
def test_the_installed_program_serves_its_page(programs) -> None:
    """And every file that it links to: templates and static files are installed."""
    with _demo(programs) as port:
        page = _answer(port, "/")
        linked = set(re.findall(r'(?:href|src)="(?:\./)?(static/[^"?]+)', page))
        files = {path: _answer(port, f"/{path}") for path in linked}

    assert "<title>" in page
    assert {Path(path).suffix for path in files} >= {".css", ".js"}
    assert all(files.values())


@pytest.mark.slow
def test_the_archive_of_sources_installs_too(built, tmp_path) -> None:
    """Pip builds the same files from it."""
    (archive,) = built.glob("*.tar.gz")
    (wheel,) = built.glob("*.whl")
    programs = _installed(archive, tmp_path / "environment")

    (libraries,) = (tmp_path / "environment").glob("lib/python3.*/site-packages")
    files = (path for package in PACKAGES for path in (libraries / package).rglob("*") if path.is_file())
    assert {str(path.relative_to(libraries)) for path in files} == {
        name for name in zipfile.ZipFile(wheel).namelist() if name.startswith(PACKAGES)
    }
    assert _run(programs / "gpuslice-exporter", "--version", cwd=tmp_path).split()[-1] == __version__


def test_the_archive_of_sources_has_what_a_packager_needs(built) -> None:
    """License, changelog, readme and the pages of documentation."""
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}

    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")}
    assert {"LICENSE", "CHANGELOG.md", "README.md", "pyproject.toml", *pages} <= names
