"""Our simulation of Grafana writes variables into queries as Grafana does."""

import pytest

from tests.product.dashboards.grafana import ALL, Variables, Window

SEVERAL = {"multi": True, "includeAll": True}


@pytest.mark.parametrize(
    ("text", "values", "variable", "expanded"),
    [
        ('a{x=~"$x"}', ["one"], SEVERAL, 'a{x=~"one"}'),
        ('a{x=~"${x}"}', ["one"], SEVERAL, 'a{x=~"one"}'),
        # Escaped for the regular expression, and again for the string of PromQL.
        ("$x", ["a.b:1", "c"], SEVERAL, r"(a\\.b:1|c)"),
        ("$x", [ALL], SEVERAL, r"(on\\.offer|c)"),
        ("$x", [ALL], {"allValue": ".*", **SEVERAL}, ".*"),
        ("$x", [".+"], {}, ".+"),
        ("[$x]", [""], {}, "[]"),
        ("${x:regex}", ["a.b"], SEVERAL, r"a\.b"),
        ("${x:pipe}", ["a.b", "c"], SEVERAL, "a.b|c"),
        ("${x:raw}", ["a.b"], SEVERAL, "a.b"),
        # The $1 of label_replace is not a variable.
        ('"$1", "$x"', ["a"], {}, '"$1", "a"'),
        # At least four scrapes.
        ("[$__rate_interval] [$__interval] [$__range]", [], {}, "[120s] [60s] [600s]"),
    ],
)
def test_variables_are_expanded(text, values, variable, expanded) -> None:
    variables = Variables({"x": variable}, Window(0), {"x": values}, {"x": ["on.offer", "c"]})
    assert variables.expand(text) == expanded
