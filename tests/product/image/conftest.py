"""The image of this tree, built once for all tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.product.image import building
from tests.product.image.engine import output, podman, require_engine


@pytest.fixture(scope="session")
def image() -> str:
    """Build the image; the first time that takes two minutes more, for its base."""
    require_engine()
    return building.image()


@pytest.fixture(scope="session")
def unpacked(image: str) -> Iterator[Path]:
    """Return the root file system of the image; tests must not change it."""
    yield Path(output(*podman("image", "mount", image)).strip())
    output(*podman("image", "unmount", image))
