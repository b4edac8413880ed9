"""Every check of the pages' truth on the scenarios that the other tests leave out."""

import pytest

from exporter.demo.scenario.catalog import names
from tests.page.web import (
    test_truth_answers,
    test_truth_holders,
    test_truth_pictures,
    test_truth_readings,
    test_truth_totals,
    test_truth_twins,
)
from tests.page.web.views_reading import SCENARIOS

MODULES = (
    test_truth_answers,
    test_truth_holders,
    test_truth_pictures,
    test_truth_readings,
    test_truth_totals,
    test_truth_twins,
)
CHECKS = [
    check
    for module in MODULES
    for name, check in vars(module).items()
    if name.startswith("test_") and hasattr(check, "pytestmark")
]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in names() if name not in SCENARIOS])
def test_every_page_is_true(name) -> None:
    assert len(CHECKS) > len(MODULES)
    for check in CHECKS:
        check(name)
