"""One Prometheus for all tests of the recipes."""

from collections.abc import Iterator

import pytest

from tests.product.recipes.scene import scene
from tests.together.end_to_end.programs import Prometheus


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Run Prometheus with the recipes' rules; it has seen all nodes."""
    with scene(tmp_path_factory.mktemp("recipes")) as running:
        yield running
