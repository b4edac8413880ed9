"""The Makefile lists its targets, and its scripts name what is missing."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def _run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess:
    # The variables of this test run for CI and make are not those of the run under test.
    own = {key: value for key, value in os.environ.items() if key not in {"CI", "MAKEFLAGS", "MAKELEVEL"}}
    return subprocess.run(
        command, cwd=ROOT, env=own | environment, capture_output=True, text=True, check=False
    )


def _phony_targets() -> list[str]:
    (targets,) = re.findall(r"^\.PHONY: (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return str(targets).split()


@pytest.fixture
def bare_path(tmp_path) -> Path:
    """Return a folder for PATH with a few programs of any machine, and no package manager."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for program in ("bash", "dirname", "id", "rm"):
        (folder / program).symlink_to(shutil.which(program))
    return folder


@pytest.fixture
def install_tools(tmp_path) -> Path:
    """Return a copy of the script in a clone in which nothing is built."""
    shutil.copytree(ROOT / "scripts", tmp_path / "clone/scripts")
    return tmp_path / "clone/scripts/install-tools"


def _program(path: Path, text: str) -> Path:
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)
    return path


def test_make_alone_lists_every_target() -> None:
    listed = _run("make").stdout

    assert _phony_targets() == re.findall(r"^  make ([\w-]+) +\S", listed, re.MULTILINE)


def test_make_has_the_commands_of_every_target() -> None:
    done = _run("make", "--dry-run", "--always-make", *_phony_targets())

    assert done.returncode == 0, done.stderr


@pytest.fixture
def clone(tmp_path) -> Path:
    """Return a folder with this Makefile, in which the program is installed that the test writes."""
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    for stamp in ("bin/python", ".installed-runtime"):
        (tmp_path / ".venv" / stamp).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("variables", "arguments"),
    [
        ((), "demo --scenario showcase"),
        (("PORT=9999",), "demo --scenario showcase --listen :9999"),
        (("SCENARIO=mi300x-cpx",), "demo --scenario mi300x-cpx"),
        (("SCENARIO=a10-mps", "PORT=80"), "demo --scenario a10-mps --listen :80"),
    ],
)
def test_make_demo_takes_a_scenario_and_a_port(clone, variables, arguments) -> None:
    _program(clone / ".venv/bin/gpuslice-exporter", 'echo "$@"')

    done = _run("make", "--no-print-directory", "-C", clone, "demo", *variables)

    assert done.stdout == f"{arguments}\n"


def test_make_stack_takes_scenarios() -> None:
    """Without one it has its own, and not that of `make demo`."""
    ran = {
        name: _run("make", "--dry-run", "stack", *filter(None, [name])).stdout
        for name in ("", "SCENARIO=cluster")
    }

    assert ran["SCENARIO=cluster"].split()[-2:] == ["scripts/stack", "cluster"]
    assert ran[""].split()[-1] == "scripts/stack"


@pytest.mark.parametrize("code", [0, 2, 130])
def test_make_demo_names_its_variables_if_the_port_is_taken(clone, code) -> None:
    """The program names options, which make does not have."""
    _program(clone / ".venv/bin/gpuslice-exporter", f"echo >&2 choose another with --listen; exit {code}")

    done = _run("make", "-C", clone, "demo")

    assert bool(done.returncode) == bool(code)
    assert ("PORT=number" in done.stderr) == (code == 2)


@pytest.mark.parametrize("target", ["demo", "stack"])
def test_targets_that_serve_take_a_port(target) -> None:
    """The list of targets and the commands say so."""
    (line,) = re.findall(rf"^  make {target} .*", _run("make").stdout, re.MULTILINE)

    assert "PORT=" in line
    assert "9999" in _run("make", "--dry-run", target, "PORT=9999").stdout


def test_ci_runs_the_tests() -> None:
    """Its script can be started as it is, and lets no test be skipped."""
    script = ROOT / ".ci/run"

    assert os.access(script, os.X_OK)
    assert script.read_text().startswith("#!/usr/bin/env bash\n")
    assert "export CI=true\n" in script.read_text()
    assert script.read_text().endswith("\nexec make test </dev/null\n")


def test_only_make_test_leaves_tests_out() -> None:
    quick, every = (_run("make", "--dry-run", target).stdout for target in ("test", "test-all"))

    assert "scripts/install-tools\nscripts/run-tests -m 'not slow and not tools'\n" in quick
    assert "scripts/install-tools --all\nscripts/run-tests\n" in every


def test_no_python_is_a_clear_error(tmp_path) -> None:
    """It names the version that is needed, and the remedy."""
    done = _run("scripts/make-venv", "", tmp_path / "venv")

    assert done.returncode == 1
    assert "Python 3.11" in done.stderr
    assert "make PYTHON=" in done.stderr


def test_an_old_python_is_a_clear_error(tmp_path) -> None:
    old = _program(tmp_path / "python", "exit 1")

    done = _run("scripts/make-venv", old, tmp_path / "venv")

    assert done.returncode == 1
    assert f"{old} is not Python 3.11 or newer" in done.stderr


def test_a_python_without_venv_names_its_package(tmp_path, bare_path) -> None:
    """On distributions with a package for venv, if it cannot be installed from here."""
    half = _program(
        tmp_path / "python",
        'case "$2" in *ensurepip*) exit 1 ;; *python%d*) echo python3.12-venv ;; esac',
    )

    done = _run(ROOT / "scripts/make-venv", half, tmp_path / "venv", PATH=str(bare_path))

    assert done.returncode == 1
    assert "sudo apt-get install python3.12-venv" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_missing_tools_are_named_but_no_error(bare_path, install_tools) -> None:
    """If the programs cannot be installed, the message has the command that installs them."""
    done = _run(install_tools, "--all", PATH=str(bare_path))

    assert done.returncode == 0
    assert "sudo apt-get install prometheus chromium" in done.stderr
    assert "helm (built by Go 1.26 or newer), " in done.stderr
    assert "command not found" not in done.stderr


def test_missing_tools_are_an_error_in_ci(bare_path, install_tools) -> None:
    """CI skips no test."""
    done = _run(install_tools, "--all", PATH=str(bare_path), CI="true")

    assert done.returncode == 1
    assert "could not be installed: prometheus, chromium, " in done.stderr


def test_the_first_lane_builds_nothing(bare_path, install_tools) -> None:
    """For ``make test`` neither Go nor npm is called, and no large package is installed."""
    calls = bare_path.parent / "calls"
    for program in ("go", "npm"):
        _program(bare_path / program, f"echo {program} >>{calls}")

    done = _run(install_tools, PATH=str(bare_path))

    assert not calls.exists()
    assert {"podman", "buildah", "debootstrap", "gcc"}.isdisjoint(done.stderr.replace(",", " ").split())


def test_an_unknown_option_of_install_tools_is_named(install_tools) -> None:
    done = _run(install_tools, "--everything")

    assert done.returncode == 2
    assert "unknown option --everything" in done.stderr


def test_lists_of_packages_are_fetched_once(bare_path, install_tools) -> None:
    """Each package is installed by itself after one update, whether that succeeds or not."""
    calls = bare_path.parent / "calls"
    _program(bare_path / "sudo", '[[ $2 == true ]] || exec "${@:2}"')
    _program(bare_path / "env", 'shift; exec "$@"')
    _program(bare_path / "apt-get", f'echo "${{@: -1}}" >>{calls}; [[ ${{@: -1}} != update ]]')

    done = _run(install_tools, "--all", PATH=str(bare_path))

    words = calls.read_text().split()
    assert words[0] == "update"
    assert words.count("update") == 1
    assert {"prometheus", "buildah"} <= set(words)
    assert "sudo apt-get install" not in done.stderr
