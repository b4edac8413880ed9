"""What many tests of sharing systems need."""

import pytest

from exporter.sharing.base.view import Objections


@pytest.fixture
def objections() -> Objections:
    """Return the counter of what cannot be read."""
    return Objections()
