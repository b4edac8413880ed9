"""Whatever the values, the chart makes valid objects, or says which value is wrong and what to do."""

import json
import re

import pytest
from hypothesis import given, settings

from tests.product.deploy.any_values import values
from tests.product.deploy.charts import complaint, template
from tests.product.deploy.render import CHART, objects_in
from tests.product.deploy.schemas import OF_OPERATORS, validate

pytestmark = [pytest.mark.tools, pytest.mark.slow]

EXAMPLES = 300
# Kinds that have no schema here.
WITHOUT_SCHEMA = {"monitoring.googleapis.com", "operator.victoriametrics.com", "azmonitoring.coreos.com"}


@settings(max_examples=EXAMPLES)
@given(values())
def test_any_values_make_valid_objects_or_a_message(given_values) -> None:
    """The message names one of the values."""
    done = template(CHART, (), json.dumps(given_values, ensure_ascii=False))

    if done.returncode:
        message = complaint(done)
        assert any(re.search(rf"\b{name}\b", message) for name in given_values), message
        return
    objects = objects_in(done.stdout)
    groups = WITHOUT_SCHEMA | set(OF_OPERATORS)
    validate(each for each in objects if each["apiVersion"].partition("/")[0] not in groups)
