"""Whatever the values, the chart makes valid objects, or says which value is wrong and what to do."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings

from tests.product.deploy.any_values import monitors, routes, values
from tests.product.deploy.charts import complaint, template
from tests.product.deploy.render import CHART, Manifest, objects_in
from tests.product.deploy.schemas import OF_OPERATORS, validate

pytestmark = [pytest.mark.tools, pytest.mark.slow]

EXAMPLES = 300
# Each starts node, which takes longer than helm.
MONITOR_EXAMPLES = 40
WITHOUT_SCHEMA = {"monitoring.googleapis.com", "operator.victoriametrics.com", "azmonitoring.coreos.com"}


def objects_of(some: dict[str, Any]) -> list[Manifest]:
    """Return the objects of values; none if they are refused by the name of one of them."""
    done = template(CHART, (), json.dumps(some, ensure_ascii=False))
    if not done.returncode:
        return objects_in(done.stdout)
    message = complaint(done)
    assert any(re.search(rf"\b{name}\b", message) for name in some), message
    return []


@settings(max_examples=EXAMPLES)
@given(values())
def test_any_values_make_valid_objects_or_a_message(some) -> None:
    groups = WITHOUT_SCHEMA | OF_OPERATORS.keys()
    validate(each for each in objects_of(some) if each["apiVersion"].partition("/")[0] not in groups)


@settings(max_examples=EXAMPLES)
@given(routes())
def test_any_routes_to_the_hub_make_valid_objects_or_a_message(some) -> None:
    validate(objects_of(some))


@settings(max_examples=MONITOR_EXAMPLES)
@given(monitors())
def test_any_values_of_monitors_make_valid_objects_or_a_message(some) -> None:
    validate(objects_of(some))
