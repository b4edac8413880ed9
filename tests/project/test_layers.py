"""The contracts in .importlinter notice what they forbid."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINTER = Path(sys.executable).parent / "lint-imports"


def _lint(tree: Path, contract: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [LINTER, "--no-cache", "--no-logo", "--contract", contract],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture
def tree(tmp_path) -> Path:
    """Give a copy of the source that a test may spoil."""
    skipped = shutil.ignore_patterns("__pycache__")
    for package in ("exporter", "podresources"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=skipped)
    shutil.copy(ROOT / ".importlinter", tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("contract", "module", "line"),
    [
        ("layers", "exporter/model/snapshot.py", "import exporter.metrics"),
        ("layers", "exporter/poll/poller.py", "import exporter.web"),
        ("layers", "exporter/nvml/driver/calls.py", "import exporter.workloads"),
        ("scrape", "exporter/web/render_cache.py", "import exporter.poll.poller"),
        ("scrape", "exporter/model/states.py", "import exporter.workloads.cgroups"),
        ("rooms", "exporter/sharing/base/inventory.py", "import exporter.config"),
        ("rooms", "exporter/demo/machine.py", "import exporter.metrics"),
        ("rooms", "podresources/messages.py", "import exporter.config"),
        ("kubelet", "exporter/poll/poller.py", "import podresources.client"),
        ("demo", "exporter/poll/sources.py", "import exporter.demo.node"),
        ("nvml", "exporter/poll/poller.py", "import pynvml"),
        ("grpc", "exporter/poll/sources.py", "import grpc.aio"),
        ("grpc", "exporter/config/__init__.py", "from google.protobuf import message"),
        ("http", "exporter/commands/serve.py", "from aiohttp import web"),
        ("http", "exporter/formats/json_csv.py", "import jinja2"),
        ("kubernetes", "exporter/poll/poller.py", "import kubernetes_asyncio"),
    ],
)
def test_a_forbidden_import_breaks_its_contract(tree, contract, module, line) -> None:
    """An import against the arrows, added anywhere in a module, fails the contract that forbids it."""
    with (tree / module).open("a") as file:
        file.write(f"\n\ndef _late() -> None:\n    {line}\n")

    found = _lint(tree, contract)

    assert (found.returncode, "1 broken" in found.stdout) == (1, True), found.stdout + found.stderr


@pytest.mark.slow
def test_a_module_without_a_place_breaks_the_layers(tree) -> None:
    """A new module of the exporter must be given a layer."""
    (tree / "exporter/newcomer.py").touch()

    found = _lint(tree, "layers")

    assert found.returncode == 1
    assert "exporter.newcomer" in found.stdout
