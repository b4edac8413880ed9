"""The sharing system and the series that the guide writes work as the guide says."""

import filecmp
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.sharing.base import System
from exporter.sharing.base.holdings import holdings_of
from exporter.sharing.base.view import NodeFacts, View
from exporter.sharing.nvidia_plugin import Nvidia
from tests.core.attribution.build import GIB, UUID, gpu, held
from tests.core.sharing.build import allocations, container, pod, pods
from tests.tools import ROOT

GUIDE = ROOT / "CONTRIBUTING.md"
RESOURCE = "acme.io/gpu-part"


@pytest.fixture(scope="module")
def acme() -> type[System]:
    """Return the class of the guide's file."""
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(code, "acme.py", "exec"), names)  # noqa: S102 - it is ours
    return names["Acme"]


def node(annotation: str | None) -> View:
    """Return a node whose pod holds 30 parts; None: its annotations are unknown."""
    ids = held("a", *(f"part-{n}" for n in range(30)), resource=RESOURCE)
    known = None if annotation is None else pods(pod("a", {"acme.io/gpu": annotation}))
    return View((gpu(),), allocations(ids, []), NodeFacts(pods=known))


def test_its_holder_has_the_share_of_the_annotation(acme: type[System]):
    """The device by its minor number, and the parts of it."""
    view = node("0=30")
    (holding,) = holdings_of(view, [acme(view), Nvidia(view)]).holdings
    assert (holding.holder, holding.device.uuid) == (container("a"), UUID)
    assert (holding.memory_entitled, holding.compute_entitled) == (16 * GIB * 30 // 100, 0.3)


def test_a_malformed_annotation_is_a_problem(acme: type[System]):
    view = node("GPU zero")
    found = holdings_of(view, [acme(view), Nvidia(view)])
    assert (found.holdings, found.unresolved) == ((), {RESOURCE: 30})
    assert [(problem.reason, problem.about) for problem in view.problems] == [
        ("acme_annotation", "ml/a: acme.io/gpu")
    ]


def test_its_annotation_is_recorded(acme: type[System]):
    """And no other."""
    assert acme.reads("acme.io/gpu")
    assert not acme.reads("acme.io/gpu-token")


def test_without_annotations_it_reports_what_is_unknown(acme: type[System]):
    view = node(None)
    assert holdings_of(view, [acme(view), Nvidia(view)]).blind == {"acme": acme.blind_without_pods}


def changes() -> dict[str, tuple[str, str]]:
    """Return the changes of the guide by file: the line that is there, and the lines to write below it."""
    blocks = re.findall(r"```diff\n--- (\S+)\n (.*\n)((?:\+.*\n)+)```", GUIDE.read_text())
    return {file: (line, re.sub(r"^\+", "", lines, flags=re.MULTILINE)) for file, line, lines in blocks}


def different(tree: Path, folder: str = ".") -> set[str]:
    """Return the files of a copy of this project that are not as they are here."""
    compared = filecmp.dircmp(ROOT / folder, tree / folder, ignore=["__pycache__"])
    _, changed, failed = filecmp.cmpfiles(ROOT / folder, tree / folder, compared.common_files, shallow=False)
    names = {(Path(folder) / name).as_posix() for name in (*changed, *failed, *compared.right_only)}
    return names.union(*(different(tree, f"{folder}/{name}") for name in compared.common_dirs))


@pytest.mark.slow
def test_a_series_is_written_into_five_files(tmp_path: Path) -> None:
    """Generators write the rest; a fake node then has the series, and the tests of all series pass."""
    tree = tmp_path / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "build", "__pycache__"))
    written = changes()
    for file, (line, lines) in written.items():
        text = (tree / file).read_text()
        assert text.count(line) == 1
        (tree / file).write_text(text.replace(line, line + lines))

    def run(*words: str) -> None:
        program = [sys.executable, *words]
        ran = subprocess.run(
            program, cwd=tree, env={"PYTHONPATH": str(tree)}, stdout=subprocess.PIPE, check=False
        )
        assert ran.returncode == 0, ran.stdout.decode()

    run("scripts/write-docs")
    pages = ("tests/core/golden/test_pages.py", "tests/core/golden/test_budgets.py", "--update")
    tests = ("-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider")
    run(*tests, *pages, "-k", "h100-exclusive or help_and_type")
    tables = ("tests/core/exposition/test_table.py", "tests/core/hardware/test_readings.py")
    run(*tests, *tables)
    page = (tree / "tests/core/golden/h100-exclusive/full.prom").read_text()
    samples = re.findall(r"^gpuslice_gpu_memory_bus_width\{.*\} 5120$", page, re.MULTILINE)
    assert len(samples) == 8
    assert len(written) <= 5
    by_generators = different(tree) - written.keys()
    assert by_generators == {
        *("docs/metrics.md", "tests/core/golden/call_budgets.toml", "tests/core/golden/families.prom"),
        "tests/core/golden/h100-exclusive/full.prom",
    }
