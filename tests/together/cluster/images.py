"""Images without a registry: archives that ``ctr images import`` reads."""

import subprocess
from pathlib import Path

from tests.product.image import building
from tests.product.image.engine import buildah

HOLD = "localhost/hold:1"
EXPORTER = f"{building.NAME}:cluster"
_FILE = 'FROM scratch\nCOPY hold /hold\nENTRYPOINT ["/hold"]\n'


def hold(folder: Path) -> Path:
    """Compile the program of workloads; return an archive of an image that has only that."""
    context = folder / "hold"
    context.mkdir()
    (context / "Containerfile").write_text(_FILE)
    source = Path(__file__).with_name("hold.c")
    subprocess.run(["gcc", "-static", "-Os", "-o", context / "hold", source], check=True)
    buildah("build", "--isolation=chroot", f"--tag={HOLD}", context)
    archive = _archive(folder / "hold.tar", HOLD, HOLD)
    buildah("rmi", HOLD)
    return archive


def exporter(folder: Path) -> Path:
    """Return an archive of the image of this tree that has the client of the Kubernetes API."""
    return _archive(folder / "exporter.tar", building.with_client(), EXPORTER)


def _archive(path: Path, image: str, name: str) -> Path:
    buildah("push", image, f"docker-archive:{path}:{name}")
    return path
