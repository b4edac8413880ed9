"""The files of a release are built as the workflow builds them."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from exporter import __version__
from tests.deploy.tools import TOOLS, output, tool
from tests.project.workflows import step

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/releases.md").read_text()


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    """Build the files of a release with the command of the workflow."""
    tool("helm")
    (command,) = re.findall(
        r"PYTHON=python (scripts/build-release) dist",
        str(step("Build the wheel, the sources, the chart and the manifests")["run"]),
    )
    folder = tmp_path_factory.mktemp("dist")
    environment = os.environ | {"PYTHON": sys.executable, "SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run([ROOT / command, folder], env=environment, check=True, capture_output=True, timeout=60)
    return folder


@pytest.mark.slow
def test_a_release_has_the_files_that_the_page_lists(dist) -> None:
    """Each file that is built is in the list of docs/releases.md, and each of that list is built."""
    listed = set(re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE))
    built = {path.name.replace(__version__, "X.Y.Z") for path in dist.iterdir()}

    assert {name for name in listed if "-image-" not in name} == built
    assert {name for name in listed if "-image-" in name} == {
        f"gpuslice-exporter-image-X.Y.Z.{kind}" for kind in ("txt", "spdx.json")
    }


@pytest.mark.slow
def test_checksums_are_those_of_the_files(dist) -> None:
    """SHA256SUMS names every other file, with its checksum."""
    sums = dict(line.split("  ")[::-1] for line in (dist / "SHA256SUMS").read_text().splitlines())
    files = {path.name: path for path in dist.iterdir() if path.name != "SHA256SUMS"}

    assert sums == {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}


@pytest.mark.slow
def test_a_release_that_is_built_again_is_the_same(dist, tmp_path) -> None:
    """Of the same commit, at another time, by somebody with another mask, come the same bytes."""
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
        umask=0o077,
        timeout=60,
    )

    assert (tmp_path / "SHA256SUMS").read_text() == (dist / "SHA256SUMS").read_text()


@pytest.mark.slow
def test_the_manifests_of_a_release_stand_by_themselves(dist, tmp_path) -> None:
    """Every overlay of the archive is rendered by kustomize, with nothing of this tree."""
    archive = dist / f"gpuslice-manifests-{__version__}.tar.gz"
    subprocess.run(["tar", "--extract", "--file", archive, "--directory", tmp_path], check=True, timeout=30)
    (folder,) = tmp_path.iterdir()

    overlays = sorted(path.parent for path in (folder / "deploy/overlays").glob("*/kustomization.yaml"))
    assert overlays
    for overlay in (folder / "deploy/base", *overlays):
        assert "kind: DaemonSet" in output("kustomize", "build", overlay)


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_chart_of_a_release_is_one(dist) -> None:
    """Helm reads the archive, with the version of the release, and renders it."""
    archive = dist / f"gpuslice-exporter-{__version__}.tgz"

    assert yaml.safe_load(output("helm", "show", "chart", archive))["version"] == __version__
    assert "kind: DaemonSet" in output("helm", "template", "gpuslice", archive, "--kube-version", "1.33.0")


@pytest.mark.parametrize(
    ("there", "told"), [((), "helm packs the chart, and is not on PATH"), (("helm",), "has no hatchling")]
)
def test_without_its_tools_nothing_is_built(there, told, tmp_path) -> None:
    """What lacks is named, with the remedy, before anything is made."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/build-release", tmp_path / "scripts")
    for program in ("bash", "dirname"):
        (tmp_path / program).symlink_to(shutil.which(program) or program)
    for program in there:
        (tmp_path / program).symlink_to("/bin/true")

    done = subprocess.run(
        [tmp_path / "scripts/build-release", "dist"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )

    assert done.returncode == 1
    assert told in done.stderr
    assert not (tmp_path / "dist").exists()


@pytest.mark.slow
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


@pytest.mark.slow
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
