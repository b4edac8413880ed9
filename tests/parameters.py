"""Parameters of which ``make test`` tries a few, and ``make test-all`` all."""

from collections.abc import Collection
from typing import Any

import pytest


def mostly_slow(values: Collection[Any], *quick: Any) -> list[Any]:
    """Return the values as parameters of a test; all but the quick ones are marked slow."""
    assert all(value in values for value in quick), f"{quick} are not among {values}"
    return [value if value in quick else pytest.param(value, marks=pytest.mark.slow) for value in values]
