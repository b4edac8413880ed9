"""The rules and their unit tests as they are committed, for all tests of them."""

from typing import Any

import pytest
import yaml

from tests.alerts.committed import UNITS, Rules, committed_rules


@pytest.fixture(scope="session")
def rules() -> Rules:
    """Read the rules."""
    return committed_rules()


@pytest.fixture(scope="session")
def units() -> dict[str, dict[str, Any]]:
    """Read every file of unit tests of an alert, by its name without the ending."""
    return {file.stem: yaml.safe_load(file.read_text()) for file in sorted(UNITS.glob("GpuSlice*.yaml"))}
