"""The lock files of the image fit pyproject.toml, and have hashes."""

import re
import tomllib
from itertools import chain

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.tools import ROOT

FOLDER = ROOT / "deploy/image"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
REMEDY = "run deploy/image/lock"


def _locked(name: str) -> dict[str, tuple[str, list[str]]]:
    """Return the version and the hashes of each distribution in a lock file."""
    locked = {}
    for entry in re.split(r"\n(?=\S)", (FOLDER / name).read_text()):
        head, *hashes = entry.split(" \\\n    --hash=")
        if match := re.match(r"([\w.-]+)==(\S+)", head):
            locked[canonicalize_name(match[1])] = match[2], hashes
    return locked


def _requirements(lines: list[str]) -> list[Requirement]:
    return [Requirement(line) for line in lines]


REQUIRED = {
    "requirements.lock": [*PROJECT["dependencies"], *chain(*PROJECT["optional-dependencies"].values())],
    "build.lock": PYPROJECT["build-system"]["requires"],
}


@pytest.mark.parametrize("lock", REQUIRED)
def test_each_requirement_is_locked_to_a_version_in_its_range(lock: str):
    locked = _locked(lock)

    for requirement in _requirements(REQUIRED[lock]):
        name = canonicalize_name(requirement.name)
        assert name in locked, f"{lock} lacks {name}: {REMEDY}"
        assert requirement.specifier.contains(locked[name][0]), (
            f"{lock} has {name} {locked[name][0]}: {REMEDY}"
        )


@pytest.mark.parametrize("lock", REQUIRED)
def test_each_distribution_has_sha256_hashes(lock: str):
    locked = _locked(lock)

    assert len(locked) >= len(REQUIRED[lock])
    assert all(hashes for _, hashes in locked.values())
    assert all(
        re.fullmatch(r"sha256:[0-9a-f]{64}", each.strip()) for _, hashes in locked.values() for each in hashes
    )


def test_the_build_system_has_the_same_range_in_both_files():
    """In build.in and in pyproject.toml."""
    lines = [line for line in (FOLDER / "build.in").read_text().splitlines() if not line.startswith("#")]

    assert set(PYPROJECT["build-system"]["requires"]) <= set(lines)
