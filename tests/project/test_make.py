"""The Makefile explains itself, and its scripts say what is missing."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess:
    # What this test run itself was told about CI and make says nothing about the run under test.
    own = {key: value for key, value in os.environ.items() if key not in {"CI", "MAKEFLAGS", "MAKELEVEL"}}
    return subprocess.run(
        command, cwd=ROOT, env=own | environment, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture
def bare_path(tmp_path) -> Path:
    """Give a folder for PATH with the few programs that any machine has, and no package manager."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for program in ("bash", "dirname", "id", "rm"):
        (folder / program).symlink_to(shutil.which(program))
    return folder


@pytest.fixture
def install_tools(tmp_path) -> Path:
    """Copy the script to where nothing was built yet."""
    shutil.copytree(ROOT / "scripts", tmp_path / "clone/scripts")
    return tmp_path / "clone/scripts/install-tools"


def _program(path: Path, text: str) -> Path:
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.slow
def test_make_alone_lists_every_target() -> None:
    """``make`` prints one line for each target that is meant to be typed."""
    (phony,) = re.findall(r"^\.PHONY: (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)

    listed = _run("make").stdout

    assert phony.split() == re.findall(r"^  make ([\w-]+) +\S", listed, re.MULTILINE)


@pytest.mark.parametrize("target", ["demo", "test", "test-all", "lint", "docs", "bench", "clean"])
def test_every_target_has_its_commands(target) -> None:
    """Make knows how to make each target, from the files that are here."""
    assert _run("make", "--dry-run", "--always-make", target).returncode == 0


def test_ci_runs_every_test() -> None:
    """The script of CI can be started as it is, and leaves no test out."""
    script = ROOT / ".ci/run"

    assert os.access(script, os.X_OK)
    assert script.read_text().startswith("#!/usr/bin/env bash\n")
    assert "export CI=true\n" in script.read_text()
    assert script.read_text().endswith("\nexec make test-all </dev/null\n")


@pytest.mark.slow
def test_only_make_test_leaves_tests_out() -> None:
    """``make test`` leaves out the slow tests, and ``make test-all`` none."""
    quick, every = (_run("make", "--dry-run", target).stdout for target in ("test", "test-all"))

    assert "scripts/run-tests -m 'not slow'\n" in quick
    assert "scripts/run-tests\n" in every


def test_no_python_is_a_clear_error(tmp_path) -> None:
    """Without a Python that is new enough, the version that is needed and the remedy are named."""
    done = _run("scripts/make-venv", "", tmp_path / "venv")

    assert done.returncode == 1
    assert "Python 3.11" in done.stderr
    assert "make PYTHON=" in done.stderr


def test_an_old_python_is_a_clear_error(tmp_path) -> None:
    """A Python that was named and is too old is refused by name."""
    old = _program(tmp_path / "python", "exit 1")

    done = _run("scripts/make-venv", old, tmp_path / "venv")

    assert done.returncode == 1
    assert f"{old} is not Python 3.11 or newer" in done.stderr


def test_a_python_without_venv_names_its_package(tmp_path, bare_path) -> None:
    """Where venv is a package of its own and cannot be installed from here, the package is named."""
    half = _program(
        tmp_path / "python",
        'case "$2" in *ensurepip*) exit 1 ;; *python%d*) echo python3.12-venv ;; esac',
    )

    done = _run(ROOT / "scripts/make-venv", half, tmp_path / "venv", PATH=str(bare_path))

    assert done.returncode == 1
    assert "sudo apt-get install python3.12-venv" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_missing_tools_are_named_and_not_fatal_at_home(bare_path, install_tools) -> None:
    """Where the programs cannot be installed, tests go on, and it is said how to get them."""
    done = _run(install_tools, PATH=str(bare_path))

    assert done.returncode == 0
    assert "sudo apt-get install prometheus prometheus-alertmanager chromium" in done.stderr
    assert "helm (built by Go 1.26 or newer), " in done.stderr
    assert "command not found" not in done.stderr


def test_missing_tools_are_fatal_in_ci(bare_path, install_tools) -> None:
    """In CI nothing is left out: what is missing and cannot be installed is an error."""
    done = _run(install_tools, PATH=str(bare_path), CI="true")

    assert done.returncode == 1
    assert "could not be installed: prometheus, prometheus-alertmanager, chromium, " in done.stderr


def test_lists_of_packages_are_fetched_once(bare_path, install_tools) -> None:
    """Many packages are installed after one update, whether that succeeds or not, each by itself."""
    calls = bare_path.parent / "calls"
    _program(bare_path / "sudo", '[[ $2 == true ]] || exec "${@:2}"')
    _program(bare_path / "env", 'shift; exec "$@"')
    _program(bare_path / "apt-get", f'echo "${{@: -1}}" >>{calls}; [[ ${{@: -1}} != update ]]')

    done = _run(install_tools, PATH=str(bare_path))

    asked = calls.read_text().split()
    assert asked[0] == "update"
    assert asked.count("update") == 1
    assert {"prometheus", "buildah"} <= {*asked}
    assert "sudo apt-get install" not in done.stderr
