"""The distributions in the image are those of the program and of the extras that it is built with."""

import os
import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.product.image import building
from tests.product.image.engine import require_engine
from tests.tools import ROOT

pytestmark = pytest.mark.tools

PRUNE = """
import sys
from pathlib import Path
from assemble.distributions import prune
prune(Path(sys.argv[1]), {*sys.argv[2:]})
"""
LOOKED_AT = re.compile(
    r"^[^/]+\.dist-info/|^plotly/package_data/plotly\.min\.js$|^kubernetes_asyncio/__init__"
)
CLIENT = {"kubernetes_asyncio", "python_dateutil", "urllib3", "six"}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Unpack the needed files of the locked distributions, and the program's metadata, as pip does."""
    require_engine()
    site = tmp_path / "lib/python3.13/site-packages"
    for wheel in building.wheels().glob("*.whl"):
        with ZipFile(wheel) as archive:
            archive.extractall(site, filter(LOOKED_AT.search, archive.namelist()))
    _install_program(site)
    return site


def _install_program(site: Path) -> None:
    (own,) = Path(sys.prefix).glob("lib/python3.*/site-packages/gpuslice_exporter-*.dist-info")
    (site / own.name).mkdir(parents=True)
    for name in ("METADATA", "RECORD"):
        (site / own.name / name).write_text((own / name).read_text())


def _prune(site: Path, *extras: str) -> subprocess.CompletedProcess:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "deploy/image")}
    words = [sys.executable, "-c", PRUNE, site.parents[2], *extras]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)


def _pruned(site: Path, *extras: str) -> set[str]:
    done = _prune(site, *extras)
    assert done.returncode == 0, done.stderr
    return {path.name.partition("-")[0].lower() for path in site.glob("*.dist-info")}


def test_without_extras_their_distributions_are_removed(site: Path):
    """The client of the Kubernetes API with its own requirements, and the tools of the build."""
    left = _pruned(site)

    assert {"grpcio", "aiohttp", "yarl", "plotly"} <= left
    assert not {*CLIENT, "hatchling", "cyclonedx_bom", "narwhals"} & left
    assert not (site / "kubernetes_asyncio").exists()


def test_an_extra_keeps_its_distributions(site: Path):
    left = _pruned(site, "kubernetes")

    assert left >= CLIENT
    assert (site / "kubernetes_asyncio").is_dir()


def test_an_unknown_extra_ends_the_build(tmp_path: Path):
    """The message names the extras."""
    site = tmp_path / "lib/python3.13/site-packages"
    _install_program(site)

    done = _prune(site, "kuberntes")

    assert done.returncode == 1
    assert done.stderr == "error: EXTRAS has kuberntes; there is only: kubernetes, translate\n"
