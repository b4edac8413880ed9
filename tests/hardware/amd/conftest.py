"""What every test of AMD's GPUs needs."""

from pathlib import Path

import pytest

from tests.hardware.amd.tree import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Give an empty sysfs."""
    return Tree(tmp_path)
