"""The committed rules and their unit tests."""

from typing import Any

import pytest

from tests.product.alerts.committed import Rules, committed_rules, committed_units


@pytest.fixture(scope="session")
def rules() -> Rules:
    """Return the committed rules."""
    return committed_rules()


@pytest.fixture(scope="session")
def units() -> dict[str, dict[str, Any]]:
    """Return the unit tests of each alert."""
    return committed_units("GpuSlice*.yaml")
