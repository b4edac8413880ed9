"""Removal of distributions that the program does not need from the environment."""

import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution
from importlib.metadata import distributions as installed
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

PROGRAM = canonicalize_name("gpuslice-exporter")
# Only the script of this package is used; its Python is never imported.
SCRIPT_ONLY = canonicalize_name("plotly")
SCRIPT = "package_data/plotly.min.js"


def site_packages(environment: Path) -> Path:
    """Return the site-packages folder of an environment."""
    (folder,) = environment.glob("lib/python3.*/site-packages")
    return folder


def prune(environment: Path, extras: set[str]) -> None:
    """Remove what the program with these extras does not need. KeyError: a needed one is missing.

    An unknown extra ends the build.
    """
    site = site_packages(environment)
    there = {canonicalize_name(each.name): each for each in installed(path=[str(site)])}
    known = {*(there[PROGRAM].metadata.get_all("Provides-Extra") or ())}
    if unknown := extras - known:
        sys.exit(f"error: EXTRAS has {', '.join(sorted(unknown))}; there is only: {', '.join(sorted(known))}")
    needed = _needed(there, PROGRAM, frozenset(extras))
    for name, distribution in there.items():
        if name not in needed:
            _remove(distribution, site)
    _keep_only_script(there[SCRIPT_ONLY], site)


def _needed(
    there: dict[NormalizedName, Distribution], name: NormalizedName, extras: frozenset[str]
) -> set[str]:
    """Return the names of required distributions, transitively, with the extras of each requirement."""
    seen: set[tuple[NormalizedName, frozenset[str]]] = set()
    waiting = [(name, extras)]
    while waiting:
        this = waiting.pop()
        if this not in seen:
            seen.add(this)
            waiting += _requirements(there[this[0]], this[1])
    return {name for name, _ in seen}


def _requirements(
    distribution: Distribution, extras: frozenset[str]
) -> Iterator[tuple[NormalizedName, frozenset[str]]]:
    for line in distribution.requires or () if distribution.name != SCRIPT_ONLY else ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield canonicalize_name(requirement.name), frozenset(requirement.extras)


def _remove(distribution: Distribution, site: Path) -> None:
    for path in _tops(distribution, site):
        _delete(path)


def _keep_only_script(distribution: Distribution, site: Path) -> None:
    script = site / SCRIPT_ONLY / SCRIPT
    text = script.read_bytes()
    for path in _tops(distribution, site):
        # The metadata has its version and license.
        if path.suffix != ".dist-info":
            _delete(path)
    script.parent.mkdir(parents=True)
    script.write_bytes(text)


def _tops(distribution: Distribution, site: Path) -> list[Path]:
    """Return the top-level folders and files of a distribution in the site, without its programs."""
    return sorted({site / file.parts[0] for file in distribution.files or () if file.parts[0] != ".."})


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
