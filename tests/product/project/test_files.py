"""Rules for all files of the project."""

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
from tests.tools import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# Folders that tools make.
MADE = re.compile(r"__pycache__|build|dist|.*\.egg-info|\.(?!ci$).*")
UNFINISHED = re.compile(r"\b(?:[T]ODO|[F]IXME|[X]XX)\b")


def _files(folder: Path = ROOT) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not MADE.fullmatch(path.name):
            yield from _files(path)
        elif path.is_file() and not path.name.startswith(".coverage"):
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


def test_no_file_has_a_note_of_unfinished_work() -> None:
    texts = (path for path in _files() if path.suffix != ".png")

    assert [path for path in texts if UNFINISHED.search(path.read_bytes().decode(errors="replace"))] == []


def test_every_dependency_has_bounds() -> None:
    """The oldest version that works, and the next major one."""
    groups = PYPROJECT["dependency-groups"].values()
    requirements = [*PYPROJECT["build-system"]["requires"], *PYPROJECT["project"]["dependencies"]]
    requirements += [each for group in groups for each in group if isinstance(each, str)]
    operators = {each: {one.operator for one in Requirement(each).specifier} for each in requirements}

    assert {each: found for each, found in operators.items() if found != {">=", "<"}} == {}


def test_every_dependency_has_its_reason() -> None:
    """docs/decisions.md names each library of the program."""
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
def test_reference_pages_are_up_to_date(page, make) -> None:
    assert make() == (ROOT / "docs" / page).read_text(encoding="utf-8"), "run make docs"


def test_the_readme_has_the_first_commands() -> None:
    readme = (ROOT / "README.md").read_text()

    assert [command for command in ("make demo", "make test") if command not in readme] == []


def test_links_between_the_pages_name_files() -> None:
    links = {
        (path.relative_to(ROOT).as_posix(), target)
        for path in _files()
        if path.suffix == ".md"
        for target in re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", path.read_text())
    }

    assert {
        (page, target) for page, target in links if not (ROOT / page).parent.joinpath(target).exists()
    } == set()


def test_names_of_the_binding_are_functions_classes_or_numbers() -> None:
    """Versions of the binding have had a comma after a constant, which makes it a tuple."""
    names = set(_names_of_binding()) - {"nvmlLib", "_nvmlGetFunctionPointer_cache"}
    values = {name: getattr(pynvml, name, None) for name in names}

    assert len(values) > 100
    assert {n: value for n, value in values.items() if not callable(value) and type(value) is not int} == {}


def test_generated_files_are_marked_for_reviews() -> None:
    """``.gitattributes`` names every rule and dashboard that make writes, and no source."""
    made = [
        *(ROOT / "alerts").rglob("gpuslice-*.yaml"),
        *(ROOT / "dashboards").rglob("*.json"),
        *(path for path in (ROOT / "deploy/charts/gpuslice-exporter/files").rglob("*") if path.is_file()),
    ]
    attributes = (ROOT / ".gitattributes").read_text()
    patterns = re.findall(r"^(\S+) linguist-generated -diff$", attributes, re.MULTILINE)

    assert made
    assert {path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()} == set(made)
