"""The version is in several files: one script writes them all, and they agree."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from exporter import __version__
from tests.tools import ROOT

CHART = "deploy/charts/gpuslice-exporter/Chart.yaml"
PLACES = {"pyproject.toml", "exporter/__init__.py", "Dockerfile", "deploy/base/kustomization.yaml", CHART}
# Pages with versions of other programs, which may be equal by chance.
UPGRADING = "docs/upgrading.md"
# Pages with the changes by version.
BY_VERSION = {"CHANGELOG.md", UPGRADING}
PAGES_WITH_OTHERS = {"docs/comparison.md", "docs/migration.md", "docs/decisions.md", *BY_VERSION}
NEXT = "97.8.7"
Texts = dict[str, str]


def copy_of_the_tree(folder: Path) -> Path:
    """Return a copy of the files with the version, and of the scripts."""
    left_out = shutil.ignore_patterns("__pycache__", "*.png", "images", "site")
    for name in ("docs", "deploy", "scripts"):
        shutil.copytree(ROOT / name, folder / name, ignore=left_out)
    for name in ("CHANGELOG.md", "README.md", "Dockerfile", "pyproject.toml", "exporter/__init__.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture
def tree(tmp_path) -> Path:
    """Return a tree that a test may change."""
    return copy_of_the_tree(tmp_path)


class Change(NamedTuple):
    """All texts of a tree before and after its version was set."""

    tree: Path
    before: Texts
    after: Texts


@pytest.fixture(scope="module")
def change(tmp_path_factory) -> Change:
    """Set the next version."""
    tree = copy_of_the_tree(tmp_path_factory.mktemp("tree"))
    before = _texts(tree)
    assert _set_version(tree, NEXT).stdout.strip() == NEXT
    return Change(tree, before, _texts(tree))


def _set_version(tree: Path, *arguments: str) -> subprocess.CompletedProcess:
    words = [tree / "scripts/set-version", *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def _texts(tree: Path) -> Texts:
    files = {path.relative_to(tree).as_posix(): path for path in tree.rglob("*") if path.is_file()}
    return {name: path.read_text(encoding="utf-8") for name, path in files.items()}


def test_all_places_agree() -> None:
    """Package, program, image, manifests and chart."""
    done = _set_version(ROOT, "--check")

    assert (done.stderr, done.stdout.strip()) == ("", __version__)


def test_each_file_has_the_new_version(change: Change) -> None:
    """As its readers read it."""
    chart = yaml.safe_load(change.after[CHART])
    (image,) = yaml.safe_load(change.after["deploy/base/kustomization.yaml"])["images"]

    assert tomllib.loads(change.after["pyproject.toml"])["project"]["version"] == NEXT
    assert (chart["version"], chart["appVersion"], image["newTag"]) == (NEXT, NEXT, NEXT)
    assert f"ARG VERSION={NEXT}\n" in change.after["Dockerfile"]
    assert f'__version__ = "{NEXT}"\n' in change.after["exporter/__init__.py"]


def test_nothing_else_is_changed(change: Change) -> None:
    """Only these files, the changelog and examples on pages, and there only the number."""
    changed = {name for name, text in change.after.items() if change.before[name] != text}

    assert changed >= PLACES | {"CHANGELOG.md"}
    assert {name for name in changed - PLACES if not name.endswith(".md")} == set()
    for name in changed - BY_VERSION:
        assert change.after[name].replace(NEXT, __version__) == change.before[name]


def test_no_page_has_the_old_version(change: Change) -> None:
    """In its commands and manifests."""
    old = re.compile(rf"(?<![\w.]){re.escape(__version__)}(?![\w.]*\d)")
    pages = {name: text for name, text in change.after.items() if name.endswith((".md", ".yaml"))}

    assert {name for name, text in pages.items() if old.search(text)} - PAGES_WITH_OTHERS == set()


def test_unreleased_changes_get_a_heading(change: Change) -> None:
    """The changelog keeps its text, now under the version and its date, below an empty section."""
    after, number = change.after["CHANGELOG.md"], re.escape(NEXT)

    (heading,) = re.findall(rf"## \[Unreleased\]\n\n## \[{number}\] - \d{{4}}-\d\d-\d\d\n", after)
    assert after.replace(heading, "## [Unreleased]\n") == change.before["CHANGELOG.md"]


def test_the_next_release_gets_a_heading_on_the_page_on_upgrading(change: Change) -> None:
    """What it asks of an operator is kept, now under the version."""
    heading = f"### Next release\n\nNothing to do so far.\n\n### {NEXT}\n"

    assert change.after[UPGRADING].count(heading) == 1
    assert change.after[UPGRADING].replace(heading, "### Next release\n") == change.before[UPGRADING]


def test_each_version_has_a_section_on_the_page_on_upgrading(change: Change) -> None:
    """Those of the changelog, in its order, with at least a line."""
    for texts in (change.before, change.after):
        released = re.findall(r"^## \[(\d\S*)\]", texts["CHANGELOG.md"], re.MULTILINE)
        _, *sections = re.split(r"^### ", texts[UPGRADING], flags=re.MULTILINE)
        assert [section.split("\n")[0] for section in sections] == ["Next release", *released]
        assert all(section.partition("\n")[2].strip() for section in sections)


def test_a_tag_must_be_the_version(change: Change) -> None:
    assert _set_version(change.tree, "--check", f"v{NEXT}").stdout.strip() == NEXT
    assert f"the tag must be v{NEXT}" in _set_version(change.tree, "--check", NEXT).stderr
    assert f"the tag must be v{NEXT}" in _set_version(change.tree, "--check", "v1.0.0").stderr


def test_a_version_is_released_once_and_with_changes(change: Change) -> None:
    """Otherwise it is refused, and no file is changed."""
    assert "is released already" in _set_version(change.tree, NEXT).stderr
    assert "nothing to release" in _set_version(change.tree, "98.0.0").stderr
    assert _texts(change.tree) == change.after


def test_an_invalid_version_is_refused(tree) -> None:
    """With the reason, and no file is changed."""
    before = _texts(tree)
    messages = {version: _set_version(tree, version).stderr for version in ("0.0.1", "1.0.0rc1", "v1.0.0")}

    assert "is older than" in messages["0.0.1"]
    assert all("is not a version such as 1.2.3" in messages[version] for version in ("1.0.0rc1", "v1.0.0"))
    assert _texts(tree) == before


def test_a_place_that_differs_is_named(tree) -> None:
    """With its version; so is a changelog without a heading for the tag."""
    assert "has no heading" in _set_version(tree, "--check", f"v{__version__}").stderr
    dockerfile = tree / "Dockerfile"
    dockerfile.write_text(dockerfile.read_text().replace(f"ARG VERSION={__version__}", "ARG VERSION=5.5.5"))

    assert "Dockerfile: 5.5.5" in _set_version(tree, "--check").stderr
    dockerfile.write_text("FROM scratch\n")
    assert "Dockerfile must have one line" in _set_version(tree, "--check").stderr
