"""Variables are written into queries as Grafana writes them."""

import pytest

from tests.dashboards.grafana import ALL, Variables, Window

SEVERAL = {"multi": True, "includeAll": True}


def _expanded(text: str, values: list[str], offered: tuple[str, ...] = (), **made: object) -> str:
    return Variables({"x": made}, Window(0), {"x": values}, {"x": list(offered)}).expand(text)


@pytest.mark.parametrize("use", ["$x", "${x}", "[[x]]"])
def test_a_value_stands_wherever_its_variable_does(use) -> None:
    """All three ways to write a variable mean the same."""
    assert _expanded(f'a{{x=~"{use}"}}', ["one"], **SEVERAL) == 'a{x=~"one"}'


def test_several_values_are_one_of_them_as_text() -> None:
    """What a regular expression would read otherwise is escaped, once more for the string of PromQL."""
    assert _expanded("$x", ["a.b:1", "c"], **SEVERAL) == r"(a\\.b:1|c)"


def test_all_is_everything_on_offer() -> None:
    """Without a value of its own, All is the list; with one, it is that as it is written."""
    assert _expanded("$x", [ALL], ("a.b", "c"), **SEVERAL) == r"(a\\.b|c)"
    assert _expanded("$x", [ALL], ("a.b", "c"), allValue=".*", **SEVERAL) == ".*"


def test_a_variable_of_one_value_is_written_plainly() -> None:
    """Where nobody can choose several, no regular expression is meant; nothing chosen is no text."""
    assert _expanded("$x", [".+"]) == ".+"
    assert _expanded("[$x]", [""]) == "[]"


def test_a_form_may_be_asked_for() -> None:
    """A regular expression for the likes of links, or the values as they are."""
    assert _expanded("${x:regex}", ["a.b"], **SEVERAL) == r"a\.b"
    assert _expanded("${x:pipe}", ["a.b", "c"], **SEVERAL) == "a.b|c"
    assert _expanded("${x:raw}", ["a.b"], **SEVERAL) == "a.b"


def test_what_is_no_variable_stays() -> None:
    """The $1 of label_replace is Prometheus's."""
    assert _expanded('"$1", "$x"', ["a"]) == '"$1", "a"'


def test_times_are_those_of_the_window() -> None:
    """rate() looks back over four scrapes or more, and the range is as long as the window."""
    assert (
        _expanded("[$__rate_interval] [$__interval] [$__range] $__range_s", []) == "[120s] [60s] [600s] 600"
    )
