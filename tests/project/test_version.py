"""The version stands in several files, one script writes them all, and they agree."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from exporter import __version__

ROOT = Path(__file__).parents[2]
CHART = "deploy/charts/gpuslice-exporter/Chart.yaml"
PLACES = {"pyproject.toml", "exporter/__init__.py", "Dockerfile", "deploy/base/kustomization.yaml", CHART}
# Pages with versions of other programs, which may be the same by chance.
OF_OTHERS = {"docs/comparison.md", "docs/migration.md", "docs/decisions.md", "CHANGELOG.md"}
NEXT = "97.8.7"


@pytest.fixture
def tree(tmp_path) -> Path:
    """Copy what has a version, and the scripts."""
    left_out = shutil.ignore_patterns("__pycache__", "*.png", "images", "site")
    for name in ("docs", "deploy", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=left_out)
    for name in ("CHANGELOG.md", "README.md", "Dockerfile", "pyproject.toml", "exporter/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def _set_version(tree: Path, *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [tree / "scripts/set-version", *arguments], capture_output=True, text=True, check=False, timeout=30
    )


def _texts(tree: Path) -> dict[str, str]:
    files = {path.relative_to(tree).as_posix(): path for path in tree.rglob("*") if path.is_file()}
    return {name: path.read_text(encoding="utf-8") for name, path in files.items()}


@pytest.mark.slow
def test_all_places_agree() -> None:
    """Package, program, image, manifests and chart have one version."""
    done = _set_version(ROOT, "--check")

    assert (done.stderr, done.stdout.strip()) == ("", __version__)


@pytest.mark.slow
def test_what_is_read_by_others_is_the_version_that_was_set(tree) -> None:
    """Each file, read by its own rules, has the new version, also as the image that is run."""
    assert _set_version(tree, NEXT).stdout.strip() == NEXT

    chart = yaml.safe_load((tree / CHART).read_text())
    (image,) = yaml.safe_load((tree / "deploy/base/kustomization.yaml").read_text())["images"]
    assert tomllib.loads((tree / "pyproject.toml").read_text())["project"]["version"] == NEXT
    assert (chart["version"], chart["appVersion"], image["newTag"]) == (NEXT, NEXT, NEXT)
    assert f"ARG VERSION={NEXT}\n" in (tree / "Dockerfile").read_text()
    assert f'__version__ = "{NEXT}"\n' in (tree / "exporter/__init__.py").read_text()


@pytest.mark.slow
def test_nothing_else_is_changed(tree) -> None:
    """Only these files, the changelog and examples on pages differ, and there the number only."""
    before = _texts(tree)
    _set_version(tree, NEXT)
    after = _texts(tree)

    changed = {name for name, text in after.items() if before[name] != text}
    assert changed >= PLACES | {"CHANGELOG.md"}
    assert {name for name in changed - PLACES if not name.endswith(".md")} == set()
    for name in changed - {"CHANGELOG.md"}:
        assert after[name].replace(NEXT, __version__) == before[name]


@pytest.mark.slow
def test_no_page_speaks_of_the_old_version_any_more(tree) -> None:
    """Commands and manifests on the pages name the new release."""
    _set_version(tree, NEXT)
    old = re.compile(rf"(?<![\w.]){re.escape(__version__)}(?![\w.]*\d)")
    texts = {name: text for name, text in _texts(tree).items() if name.endswith((".md", ".yaml"))}

    assert {name for name, text in texts.items() if old.search(text)} - OF_OTHERS == set()


@pytest.mark.slow
def test_what_was_not_released_gets_a_heading(tree) -> None:
    """The changelog keeps its text, now under the version and its date, below an empty section."""
    before = (tree / "CHANGELOG.md").read_text()
    _set_version(tree, NEXT)
    after = (tree / "CHANGELOG.md").read_text()

    (heading,) = re.findall(rf"## \[Unreleased\]\n\n## \[{re.escape(NEXT)}\] - \d{{4}}-\d\d-\d\d\n", after)
    assert after.replace(heading, "## [Unreleased]\n") == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ("0.0.1", "is older than"),
        ("1.0", "is not a version such as 1.2.3"),
        ("1.0.0rc1", "is not a version such as 1.2.3"),
        ("v1.0.0", "is not a version such as 1.2.3"),
    ],
)
def test_a_version_that_cannot_be_is_refused(tree, version, problem) -> None:
    """What is wrong is said, and no file is touched."""
    before = _texts(tree)
    done = _set_version(tree, version)

    assert done.returncode == 1
    assert problem in done.stderr
    assert _texts(tree) == before


@pytest.mark.slow
def test_a_release_is_made_once_and_of_something(tree) -> None:
    """A version with a heading is refused, and so is a release without changes; nothing is half done."""
    _set_version(tree, NEXT)
    before = _texts(tree)

    assert "is released already" in _set_version(tree, NEXT).stderr
    assert "nothing to release" in _set_version(tree, "98.0.0").stderr
    assert _texts(tree) == before


@pytest.mark.slow
def test_a_tag_must_be_the_version_and_in_the_changelog(tree) -> None:
    """A tag of another version is refused, and one whose changes were never put under its heading."""
    assert "has no heading" in _set_version(tree, "--check", f"v{__version__}").stderr
    _set_version(tree, NEXT)

    assert _set_version(tree, "--check", f"v{NEXT}").stdout.strip() == NEXT
    assert f"the tag must be v{NEXT}" in _set_version(tree, "--check", NEXT).stderr
    assert f"the tag must be v{NEXT}" in _set_version(tree, "--check", "v1.0.0").stderr


@pytest.mark.slow
def test_places_that_differ_are_named(tree) -> None:
    """A version that somebody changed by hand in one place is found, with the place and the remedy."""
    dockerfile = tree / "Dockerfile"
    dockerfile.write_text(dockerfile.read_text().replace(f"ARG VERSION={__version__}", "ARG VERSION=5.5.5"))

    assert "Dockerfile: 5.5.5" in _set_version(tree, "--check").stderr
    dockerfile.write_text("FROM scratch\n")
    assert "Dockerfile must have one line" in _set_version(tree, "--check").stderr
