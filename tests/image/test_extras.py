"""Which distributions go into the image: what the program needs, with the extras that it is built with."""

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.image import building
from tests.image.engine import ROOT, require_engine

pytestmark = pytest.mark.timeout(300)

PRUNE = """
import sys
from pathlib import Path
from assemble.distributions import prune
prune(Path(sys.argv[1]), {*sys.argv[2:]})
"""
CLIENT = {"kubernetes_asyncio", "python_dateutil", "urllib3", "six"}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Unpack everything that the lock file names, and the program's own metadata, as pip would install it."""
    require_engine()
    site = tmp_path / "lib/python3.13/site-packages"
    for wheel in building.wheels().glob("*.whl"):
        with ZipFile(wheel) as archive:
            archive.extractall(site)
    (own,) = Path(sys.prefix).glob("lib/python3.*/site-packages/gpuslice_exporter-*.dist-info")
    (site / own.name).mkdir()
    for name in ("METADATA", "RECORD"):
        (site / own.name / name).write_text((own / name).read_text())
    return site


def _pruned(site: Path, *extras: str) -> set[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "deploy/image")}
    subprocess.run(
        [sys.executable, "-c", PRUNE, site.parents[2], *extras], env=environment, check=True, timeout=60
    )
    return {path.name.partition("-")[0].lower() for path in site.glob("*.dist-info")}


def test_without_extras_there_is_nothing_of_theirs(site: Path):
    """The client of the Kubernetes API and what only it needs are left out, and what builds the image."""
    left = _pruned(site)

    assert {"grpcio", "aiohttp", "yarl", "plotly"} <= left
    assert not {*CLIENT, "hatchling", "cyclonedx_bom", "narwhals"} & left
    assert not (site / "kubernetes_asyncio").exists()


def test_an_extra_brings_what_it_needs(site: Path):
    """With the kubernetes extra that client is there, with all that it needs."""
    left = _pruned(site, "kubernetes")

    assert left >= CLIENT
    assert (site / "kubernetes_asyncio").is_dir()
