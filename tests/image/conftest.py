"""The image of this tree, built once for all tests that look at it."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image import building
from tests.image.engine import podman, require_engine


@pytest.fixture(scope="session")
def image() -> str:
    """Build the image; the first time that takes two minutes more, for its base."""
    require_engine()
    return building.image()


@pytest.fixture(scope="session")
def unpacked(image: str) -> Iterator[Path]:
    """Give the root file system of the image, to be read only."""
    mounted = subprocess.run(
        podman("image", "mount", image), check=True, capture_output=True, text=True, timeout=60
    )
    yield Path(mounted.stdout.strip())
    subprocess.run(podman("image", "unmount", image), check=True, capture_output=True, timeout=60)
