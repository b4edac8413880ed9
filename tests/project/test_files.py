"""What holds for all files of the project."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest
from packaging.requirements import Requirement

from alerts.reference_pages import mig_profiles_page, settings_page, xids_page
from exporter.commands.metrics import metrics_markdown

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# Made by tools, beside what is written by people.
MADE = re.compile(r"__pycache__|build|dist|.*\.egg-info|\.(?!ci$).*")
MEASURED = ".coverage"
UNFINISHED = re.compile(r"\b(?:[T]ODO|[F]IXME|[X]XX)\b")


def _files(folder: Path = ROOT) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not MADE.fullmatch(path.name):
            yield from _files(path)
        elif path.is_file() and not path.name.startswith(MEASURED):
            yield path


def _names_of_binding() -> Iterator[str]:
    for path in sorted((ROOT / "exporter/nvml").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Attribute(value=ast.Name(id="pynvml"), attr=name):
                    yield name
                case ast.Constant(value=str(name)) if re.fullmatch(r"nvml[A-Z]\w+", name):
                    yield name


def test_files_of_code_are_short() -> None:
    """No file of code outside the tests has 300 lines or more."""
    kinds = {".py", ".js", ".css", ".html"}
    code = [path for path in _files() if path.suffix in kinds and ROOT / "tests" not in path.parents]
    lengths = {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in code}

    assert lengths
    assert {name: length for name, length in lengths.items() if length >= 300} == {}


@pytest.mark.slow
def test_nothing_is_left_to_be_done() -> None:
    """No text file carries a note of unfinished work."""
    texts = [path for path in _files() if path.suffix != ".png"]
    text = {path: path.read_bytes().decode(errors="replace") for path in texts}

    assert [path for path, content in text.items() if UNFINISHED.search(content)] == []


@pytest.mark.parametrize(
    "requirement",
    [
        *PYPROJECT["build-system"]["requires"],
        *PYPROJECT["project"]["dependencies"],
        *(
            each
            for group in PYPROJECT["dependency-groups"].values()
            for each in group
            if isinstance(each, str)
        ),
    ],
)
def test_every_dependency_has_bounds(requirement) -> None:
    """A requirement names the oldest version that is known to do, and ends before the next great one."""
    operators = {specifier.operator for specifier in Requirement(requirement).specifier}

    assert operators == {">=", "<"}


def test_every_dependency_has_its_reason() -> None:
    """docs/decisions.md names each library that the program needs."""
    decisions = (ROOT / "docs/decisions.md").read_text()
    names = [Requirement(each).name for each in PYPROJECT["project"]["dependencies"]]

    assert [name for name in names if f"`{name}`" not in decisions] == []


@pytest.mark.parametrize(
    ("page", "make"),
    [
        ("metrics.md", metrics_markdown),
        ("settings.md", settings_page),
        ("xids.md", xids_page),
        ("mig-profiles.md", mig_profiles_page),
    ],
)
def test_reference_pages_are_in_step(page, make) -> None:
    """The committed reference pages are what the tables say; ``make docs`` makes it so."""
    assert make() == (ROOT / "docs" / page).read_text(encoding="utf-8")


def test_the_readme_says_how_to_start() -> None:
    """The first page that a person reads names the two commands to begin with."""
    readme = (ROOT / "README.md").read_text()

    assert [command for command in ("make demo", "make test") if command not in readme] == []


def test_links_between_the_pages_lead_somewhere() -> None:
    """Every relative link in a Markdown page is to a file that exists."""
    links = {
        (path.relative_to(ROOT).as_posix(), target)
        for path in _files()
        if path.suffix == ".md"
        for target in re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", path.read_text())
    }

    assert {
        (page, target) for page, target in links if not (ROOT / page).parent.joinpath(target).exists()
    } == set()


@pytest.mark.parametrize(
    "name", sorted(set(_names_of_binding()) - {"nvmlLib", "_nvmlGetFunctionPointer_cache"})
)
def test_names_of_the_binding_are_what_they_are_used_as(name) -> None:
    """The installed binding has each call, error and constant that is used: a function, class or number.

    Versions of the binding have had a comma after a constant, which makes it a tuple.
    """
    value = getattr(pynvml, name)

    assert callable(value) or type(value) is int


def test_made_files_are_kept_out_of_reviews() -> None:
    """``.gitattributes`` names every rule and dashboard that is written by make, and no source."""
    made = [
        *(ROOT / "alerts").rglob("gpuslice-*.yaml"),
        *(ROOT / "dashboards").rglob("*.json"),
        *(path for path in (ROOT / "deploy/charts/gpuslice-exporter/files").rglob("*") if path.is_file()),
    ]
    attributes = (ROOT / ".gitattributes").read_text()
    patterns = re.findall(r"^(\S+) linguist-generated -diff$", attributes, re.MULTILINE)

    assert made
    assert {path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()} == set(made)
