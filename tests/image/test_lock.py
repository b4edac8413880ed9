"""The lock files of the image: what they name fits pyproject.toml, by hashes, for every machine."""

import re
import tomllib
from itertools import chain

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.image.engine import ROOT

FOLDER = ROOT / "deploy/image"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
REMEDY = "run deploy/image/lock"


def _locked(name: str) -> dict[str, tuple[str, list[str]]]:
    """Read a lock file: the version and the hashes by the name of the distribution."""
    found = {}
    for entry in re.split(r"\n(?=\S)", (FOLDER / name).read_text()):
        head, *hashes = entry.split(" \\\n    --hash=")
        if match := re.match(r"([\w.-]+)==(\S+)", head):
            found[canonicalize_name(match[1])] = match[2], hashes
    return found


def _requirements(lines: list[str]) -> list[Requirement]:
    return [Requirement(line) for line in lines]


ASKED = {
    "requirements.lock": [*PROJECT["dependencies"], *chain(*PROJECT["optional-dependencies"].values())],
    "build.lock": PYPROJECT["build-system"]["requires"],
}


@pytest.mark.parametrize("lock", ASKED)
def test_a_lock_file_has_what_the_project_asks_for(lock: str):
    """Each requirement is locked to a version in its range."""
    locked = _locked(lock)

    for requirement in _requirements(ASKED[lock]):
        name = canonicalize_name(requirement.name)
        assert name in locked, f"{lock} lacks {name}: {REMEDY}"
        assert requirement.specifier.contains(locked[name][0]), (
            f"{lock} has {name} {locked[name][0]}: {REMEDY}"
        )


@pytest.mark.parametrize("lock", ASKED)
def test_a_lock_file_holds_every_distribution_to_its_files(lock: str):
    """Each distribution has hashes, all of them SHA-256."""
    locked = _locked(lock)

    assert len(locked) >= len(ASKED[lock])
    assert all(hashes for _, hashes in locked.values())
    assert all(
        re.fullmatch(r"sha256:[0-9a-f]{64}", each.strip()) for _, hashes in locked.values() for each in hashes
    )


def test_what_builds_the_image_is_named_once_more_as_the_project_names_it():
    """The build system's range in build.in is that of pyproject.toml."""
    lines = [line for line in (FOLDER / "build.in").read_text().splitlines() if not line.startswith("#")]

    assert set(PYPROJECT["build-system"]["requires"]) <= set(lines)
