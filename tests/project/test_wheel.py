"""The wheel holds the whole program and runs by itself."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("exporter", "podresources")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    """Build the wheel and open it."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=60,
    )
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_every_file_of_the_packages_is_in_the_wheel(wheel) -> None:
    """Code, scenarios, templates and static files are in, and bytecode is not."""
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file())
    expected = {str(path.relative_to(ROOT)) for path in files if path.suffix != ".pyc"}

    assert expected == {name for name in wheel.namelist() if name.startswith(PACKAGES)}


def test_the_licence_is_in_the_wheel(wheel) -> None:
    """The full text of the licence comes with the program."""
    (name,) = [name for name in wheel.namelist() if name.endswith("licenses/LICENSE")]

    assert "Apache License" in wheel.read(name).decode()
    assert "END OF TERMS AND CONDITIONS" in wheel.read(name).decode()


def test_the_program_runs_from_the_wheel_alone(wheel, tmp_path) -> None:
    """Unpacked elsewhere, the program shows a fake node: nothing is taken from the source tree."""
    wheel.extractall(tmp_path)
    code = "import exporter, sys; from exporter.cli import main; print(exporter.__file__); sys.exit(main())"

    done = subprocess.run(
        [sys.executable, "-c", code, "snapshot", "--scenario", "showcase"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (done.returncode, done.stderr) == (0, "")
    first, *table = done.stdout.splitlines()
    assert first == str(tmp_path / "exporter/__init__.py")
    assert table
