"""The rules and their unit tests as they are committed, for all tests of them."""

from typing import Any

import pytest

from tests.alerts.committed import Rules, committed_rules, committed_units


@pytest.fixture(scope="session")
def rules() -> Rules:
    """Read the rules."""
    return committed_rules()


@pytest.fixture(scope="session")
def units() -> dict[str, dict[str, Any]]:
    """Read every file of unit tests of an alert, by its name without the ending."""
    return committed_units("GpuSlice*.yaml")
