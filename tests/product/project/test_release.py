"""The files of a release are built as the workflow builds them."""

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
from tests.product.deploy.tools import ROOT, TOOLS, output, tool
from tests.product.project.workflows import step

PAGE = (ROOT / "docs/releases.md").read_text()


def _build(folder: Path, **options: Any) -> None:
    """Build the files of a release as a step of the workflow does."""
    tool("helm")
    (command,) = re.findall(
        r"PYTHON=python (scripts/build-release) dist",
        str(step("Build the wheel, the sources, the chart and the manifests")["run"]),
    )
    environment = os.environ | {"PYTHON": sys.executable, "SOURCE_DATE_EPOCH": "1700000000"}
    environment |= options.pop("variables", {})
    subprocess.run([ROOT / command, folder], env=environment, check=True, capture_output=True, **options)


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    """Return a folder with the files of a release."""
    folder = tmp_path_factory.mktemp("dist")
    _build(folder)
    return folder


@pytest.mark.tools
def test_a_release_has_the_files_of_the_page(dist) -> None:
    """docs/releases.md lists each, and no other."""
    listed = set(re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE))
    built = {path.name.replace(__version__, "X.Y.Z") for path in dist.iterdir()}

    assert {name for name in listed if "-image-" not in name} == built
    assert {name for name in listed if "-image-" in name} == {
        f"gpuslice-exporter-image-X.Y.Z.{kind}" for kind in ("txt", "spdx.json")
    }


@pytest.mark.tools
def test_each_file_has_its_checksum(dist) -> None:
    sums = dict(line.split("  ")[::-1] for line in (dist / "SHA256SUMS").read_text().splitlines())
    files = {path.name: path for path in dist.iterdir() if path.name != "SHA256SUMS"}

    assert sums == {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}


@pytest.mark.tools
def test_a_second_build_makes_the_same_files(dist, tmp_path) -> None:
    """Of the same commit at another time, in another time zone and with another umask."""
    _build(tmp_path, umask=0o077, variables={"TZ": "Asia/Tokyo"})

    assert (tmp_path / "SHA256SUMS").read_text() == (dist / "SHA256SUMS").read_text()


@pytest.mark.tools
def test_the_manifests_of_a_release_are_complete(dist, tmp_path) -> None:
    """Kustomize renders every overlay of the archive without this tree."""
    archive = dist / f"gpuslice-manifests-{__version__}.tar.gz"
    subprocess.run(["tar", "--extract", "--file", archive, "--directory", tmp_path], check=True)
    (folder,) = tmp_path.iterdir()

    overlays = sorted(path.parent for path in (folder / "deploy/overlays").glob("*/kustomization.yaml"))
    assert overlays
    for overlay in (folder / "deploy/base", *overlays):
        assert "kind: DaemonSet" in output("kustomize", "build", overlay)


@pytest.mark.tools
def test_the_archive_for_systemd_is_complete(dist) -> None:
    """With the files for Slurm, whose scripts are executable."""
    with tarfile.open(dist / f"gpuslice-systemd-{__version__}.tar.gz") as archive:
        files = {
            member.name.partition("/")[2]: member.mode for member in archive.getmembers() if member.isfile()
        }
    here = {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "deploy/systemd").rglob("*") if path.is_file()
    }

    assert files.keys() == here
    assert {mode for name, mode in files.items() if name.endswith(".sh")} == {0o755}


@pytest.mark.tools
def test_helm_renders_the_chart_of_a_release(dist) -> None:
    """It has the version of the release."""
    archive = dist / f"gpuslice-exporter-{__version__}.tgz"

    assert yaml.safe_load(output("helm", "show", "chart", archive))["version"] == __version__
    assert "kind: DaemonSet" in output("helm", "template", "gpuslice", archive, "--kube-version", "1.33.0")


@pytest.mark.parametrize(
    ("installed", "message"),
    [((), "helm packs the chart, and is not on PATH"), (("helm",), "has no hatchling")],
)
def test_without_its_tools_nothing_is_built(installed, message, tmp_path) -> None:
    """The missing one is named, with the remedy."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/build-release", tmp_path / "scripts")
    for program in ("bash", "dirname"):
        (tmp_path / program).symlink_to(shutil.which(program) or program)
    for program in installed:
        (tmp_path / program).symlink_to("/bin/true")

    done = subprocess.run(
        [tmp_path / "scripts/build-release", "dist"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert message in done.stderr
    assert not (tmp_path / "dist").exists()


@pytest.mark.tools
def test_a_folder_that_is_not_empty_is_refused(tmp_path) -> None:
    """Its files would become part of the release."""
    tool("helm")
    (tmp_path / "left-over").touch()

    done = subprocess.run(
        [ROOT / "scripts/build-release", tmp_path],
        env=os.environ | {"PATH": f"{TOOLS / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert "is not empty" in done.stderr


def test_the_notes_of_a_release_are_its_section_of_the_changelog(tmp_path) -> None:
    """A version without a section is refused."""
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
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert notes("1.10.0").stdout == "### Added\n\n- New.\n"
    assert notes("1.1.0").stdout == "- Old.\n"
    assert "says nothing of 1.0.0" in notes("1.0.0").stderr
