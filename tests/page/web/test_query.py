"""The query of a page in its URL."""

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st
from multidict import MultiDict
from yarl import URL

from exporter.web.node.parameters import LONGEST, SPAN_PATTERN, BadValueError, Query, asked_query, span_of

WORDS = st.text(max_size=LONGEST).map(str.strip)
SPANS = st.builds("{}{}".format, st.integers(0, 999999), st.sampled_from("smhdx"))
KEYS = st.lists(st.sampled_from(["state", "gpu", "memory", "age"]), unique=True).map(tuple)


def test_defaults_leave_no_trace_in_the_address() -> None:
    assert Query().url == "?"
    assert asked_query(MultiDict({"q": " ", "namespace": "", "sort": "", "range": ""})) == Query()


def test_queries_are_readable_in_the_address() -> None:
    query = Query(columns=("state", "gpu"), text="ns:ml -dev", sort="-memory", span="1h")

    assert query.url == "?q=ns:ml+-dev&sort=-memory&columns=state,gpu&range=1h"


@settings(max_examples=30)
@given(WORDS, WORDS, WORDS, KEYS)
def test_a_query_is_read_back_as_it_was_written(text, namespace, gpu, columns) -> None:
    query = Query(text=text, namespace=namespace, gpu=gpu, state="idle", sort="-age", columns=columns)

    assert asked_query(URL(f"/{query.url}").query) == query


def test_boxes_of_a_form_are_columns() -> None:
    parameters = MultiDict([("columns", "gpu"), ("columns", "age,gpu"), ("columns", "")])

    assert asked_query(parameters).columns == ("gpu", "age")


def test_parameters_are_truncated() -> None:
    query = asked_query(MultiDict({"q": "x" * 10_000, "namespace": "y" * 10_000, "columns": "z" * 10_000}))

    assert {len(query.text), len(query.namespace), len(query.columns[0])} == {LONGEST}


def test_a_name_with_a_lone_surrogate_can_be_linked_to() -> None:
    assert Query(namespace="\udc80").url == "?namespace=%3F"


@settings(max_examples=30)
@given(SPANS)
@example("9s")
@example("10s")
@example("999999d")
@example("1000000d")
def test_the_pattern_of_a_range_matches_what_is_accepted(text: str) -> None:
    """From 10 seconds on."""
    try:
        span_of(text)
    except BadValueError:
        known = False
    else:
        known = True

    assert bool(re.fullmatch(SPAN_PATTERN, text)) == known
