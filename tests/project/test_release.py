"""The files of a release are built as the workflow builds them, and the workflows are sound."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter import __version__
from tests.deploy.tools import TOOLS, output, tool

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PAGE = (ROOT / "docs/releases.md").read_text()
# What each job may do beyond reading the sources.
RIGHTS = {
    "files": {"id-token", "attestations"},
    "image": {"packages", "id-token", "attestations"},
    "chart": {"packages"},
    "release": {"contents"},
    "pypi": {"id-token"},
}


def _workflow(path: Path) -> dict[str, Any]:
    # The key "on" is a truth value to YAML 1.1.
    return {("on" if key is True else key): value for key, value in yaml.safe_load(path.read_text()).items()}


def _steps() -> list[dict[str, Any]]:
    jobs = [job for path in WORKFLOWS for job in _workflow(path)["jobs"].values()]
    return [step for job in jobs for step in job.get("steps", ())]


def _step(name: str) -> dict[str, Any]:
    (found,) = [step for step in _steps() if step.get("name") == name]
    return found


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    """Build the files of a release with the command of the workflow."""
    tool("helm")
    (command,) = re.findall(r"PYTHON=python (scripts/build-release) dist", _step_text())
    folder = tmp_path_factory.mktemp("dist")
    environment = os.environ | {"PYTHON": sys.executable, "SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run([ROOT / command, folder], env=environment, check=True, capture_output=True, timeout=60)
    return folder


def _step_text() -> str:
    return str(_step("Build the wheel, the sources, the chart and the manifests")["run"])


def test_actionlint_has_nothing_to_object_to() -> None:
    """Names, expressions, types and shell commands of the workflows are right."""
    assert output("actionlint", *WORKFLOWS) == ""


def test_actionlint_notices_a_step_that_does_not_exist(tmp_path) -> None:
    """A reference to an output of a step that is not there is found."""
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[-1].read_text().replace("steps.build.outputs", "steps.biuld.outputs"))

    done = subprocess.run(
        [tool("actionlint"), wrong], capture_output=True, text=True, check=False, timeout=60
    )

    assert "biuld" in done.stdout


def test_actions_are_pinned_by_commit() -> None:
    """Each action of others is named by a whole commit, with its release beside it."""
    used = [line.strip() for path in WORKFLOWS for line in path.read_text().splitlines() if "uses:" in line]
    theirs = [line for line in used if "uses: ./" not in line]

    assert len(theirs) > 10
    assert [
        line for line in theirs if not re.search(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line)
    ] == []


def test_one_action_is_one_commit() -> None:
    """An action that is used twice is the same one both times."""
    used = {step["uses"] for step in _steps() if "uses" in step}

    assert len(used) == len({action.partition("@")[0] for action in used})


def test_jobs_have_the_rights_that_they_need_and_no_more() -> None:
    """Nothing is allowed by default, and what a job may write is written down here."""
    for path in WORKFLOWS:
        workflow = _workflow(path)
        assert workflow["permissions"] == {}
        for name, job in workflow["jobs"].items():
            writes = {right for right, level in job["permissions"].items() if level == "write"}
            assert writes == (RIGHTS.get(name, set()) if path.stem == "release" else set()), name


def test_no_value_from_outside_is_put_into_a_command() -> None:
    """Commands take what GitHub tells from variables: a name of a tag is no part of a script."""
    assert [step["run"] for step in _steps() if "${{" in step.get("run", "")] == []


def test_scripts_that_are_called_exist() -> None:
    """Each script of this tree that a step runs can be run."""
    called = {
        name for step in _steps() for name in re.findall(r"(?:scripts|\.ci)/[\w-]+", step.get("run", ""))
    }

    assert called >= {".ci/run", "scripts/set-version", "scripts/build-release", "scripts/release-notes"}
    assert [name for name in called if not os.access(ROOT / name, os.X_OK)] == []


def test_nothing_is_published_before_the_tests_have_passed() -> None:
    """Whatever writes to a registry or makes a release waits for the tests and the check of the version."""
    jobs = _workflow(ROOT / ".github/workflows/release.yml")["jobs"]

    def waits_for(name: str) -> set[str]:
        direct = jobs[name].get("needs", [])
        return {*direct, *(each for other in direct for each in waits_for(other))}

    assert all({"version", "tests"} <= waits_for(name) for name in RIGHTS)
    assert waits_for("release") >= {"files", "image", "chart"}
    assert jobs["tests"]["uses"] == "./.github/workflows/ci.yml"


@pytest.mark.parametrize("tag", ["v97.8.7", "v97.8.6", "main"])
def test_a_tag_that_is_not_the_version_ends_the_release(tag, tmp_path) -> None:
    """The first step, run as it stands, takes the tag of the version and stops at any other."""
    for name in ("scripts", "deploy", "docs"):
        shutil.copytree(
            ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.png", "images", "site")
        )
    for name in ("CHANGELOG.md", "README.md", "Dockerfile", "pyproject.toml", "exporter/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    subprocess.run([tmp_path / "scripts/set-version", "97.8.7"], check=True, capture_output=True, timeout=30)
    told = {"TAG": tag, "GITHUB_OUTPUT": str(tmp_path / "output"), "GITHUB_REPOSITORY_OWNER": "Acme"}

    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", _step("The tag is the version that stands everywhere")["run"]],
        cwd=tmp_path,
        env=os.environ | told,
        capture_output=True,
        check=False,
        timeout=30,
    )

    if tag == "v97.8.7":
        lines = (tmp_path / "output").read_text().splitlines()
        assert lines == ["version=97.8.7", "image=ghcr.io/acme/gpuslice-exporter"]
    else:
        assert done.returncode != 0
        assert not (tmp_path / "output").exists()


def test_a_release_has_the_files_that_the_page_lists(dist) -> None:
    """Each file that is built is in the list of docs/releases.md, and each of that list is built."""
    listed = set(re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE))
    built = {path.name.replace(__version__, "X.Y.Z") for path in dist.iterdir()}

    assert {name for name in listed if "-image-" not in name} == built
    assert {name for name in listed if "-image-" in name} == {
        f"gpuslice-exporter-image-X.Y.Z.{kind}" for kind in ("txt", "spdx.json")
    }


def test_checksums_are_those_of_the_files(dist) -> None:
    """SHA256SUMS names every other file, with its checksum."""
    sums = dict(line.split("  ")[::-1] for line in (dist / "SHA256SUMS").read_text().splitlines())
    files = {path.name: path for path in dist.iterdir() if path.name != "SHA256SUMS"}

    assert sums == {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}


def test_a_release_that_is_built_again_is_the_same(dist, tmp_path) -> None:
    """Of the same commit, at another time, come the same bytes."""
    environment = os.environ | {
        "PYTHON": sys.executable,
        "SOURCE_DATE_EPOCH": "1700000000",
        "TZ": "Asia/Tokyo",
    }
    subprocess.run(
        [ROOT / "scripts/build-release", tmp_path],
        env=environment,
        check=True,
        capture_output=True,
        timeout=60,
    )

    assert (tmp_path / "SHA256SUMS").read_text() == (dist / "SHA256SUMS").read_text()


def test_the_manifests_of_a_release_stand_by_themselves(dist, tmp_path) -> None:
    """Every overlay of the archive is rendered by kustomize, with nothing of this tree."""
    with tarfile.open(dist / f"gpuslice-manifests-{__version__}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()

    overlays = sorted(path.parent for path in (folder / "deploy/overlays").glob("*/kustomization.yaml"))
    assert overlays
    for overlay in (folder / "deploy/base", *overlays):
        assert "kind: DaemonSet" in output("kustomize", "build", overlay)


def test_the_units_of_a_release_are_in_its_archive(dist) -> None:
    """All files for systemd and Slurm are in, and the scripts can be run."""
    with tarfile.open(dist / f"gpuslice-systemd-{__version__}.tar.gz") as archive:
        files = {
            member.name.partition("/")[2]: member.mode for member in archive.getmembers() if member.isfile()
        }
    here = {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "deploy/systemd").rglob("*") if path.is_file()
    }

    assert files.keys() == here
    assert {mode for name, mode in files.items() if name.endswith(".sh")} == {0o755}


def test_the_chart_of_a_release_is_one(dist) -> None:
    """Helm reads the archive, with the version of the release, and renders it."""
    archive = dist / f"gpuslice-exporter-{__version__}.tgz"

    assert yaml.safe_load(output("helm", "show", "chart", archive))["version"] == __version__
    assert "kind: DaemonSet" in output("helm", "template", "gpuslice", archive, "--kube-version", "1.33.0")


def test_nothing_is_built_into_a_folder_with_something_else(tmp_path) -> None:
    """A folder that is not empty is refused, for its files would become part of the release."""
    (tmp_path / "left-over").touch()

    done = subprocess.run(
        [ROOT / "scripts/build-release", tmp_path],
        env=os.environ | {"PATH": f"{TOOLS / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )

    assert done.returncode == 1
    assert "is not empty" in done.stderr


def test_the_notes_of_a_release_are_its_part_of_the_changelog(tmp_path) -> None:
    """They are what stands between the version's heading and the next, and nothing is not a release."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    sections = (
        "# Changelog",
        "## [Unreleased]",
        "## [1.10.0] - 2026-02-01",
        "### Added",
        "- New.",
        "## [1.1.0] - 2026-01-01",
        "- Old.",
    )
    (tmp_path / "CHANGELOG.md").write_text("\n\n".join(sections) + "\n")

    def notes(version: str) -> subprocess.CompletedProcess:
        command = [tmp_path / "scripts/release-notes", version]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)

    assert notes("1.10.0").stdout == "### Added\n\n- New.\n"
    assert notes("1.1.0").stdout == "- Old.\n"
    assert "says nothing of 1.0.0" in notes("1.0.0").stderr
