"""Lists of objects that are taken apart while they come in."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.kubernetes.listing import (
    LONGEST_FRAME,
    LONGEST_OBJECT,
    ListParser,
    NoListError,
    without_managed_fields,
)

TEXTS = st.text(st.sampled_from('ab"\\{}[]:,/\né\U0001f680'), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS | st.just("items"), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.lists(st.dictionaries(TEXTS | st.just("items"), VALUES, max_size=4), max_size=4)


def taken(answer: bytes, *, pieces: int = 1 << 16) -> tuple[list[bytes | None], str]:
    """Feed an answer in pieces of that many bytes; return the objects and the version."""
    listing = ListParser()
    found = [each for at in range(0, len(answer), pieces) for each in listing.feed(answer[at : at + pieces])]
    return found, listing.version()


@given(OBJECTS, VALUES, st.integers(1, 40), st.booleans(), st.booleans())
def test_a_list_in_pieces_has_the_objects_that_a_parser_of_the_whole_finds(
    objects, extra, pieces, ascii_only, last
) -> None:
    metadata = {"metadata": {"resourceVersion": "7", "items": extra}}
    items = {"items": objects}
    text = json.dumps((metadata | items) if last else (items | metadata), ensure_ascii=ascii_only)

    found, version = taken(text.encode(), pieces=pieces)

    assert [json.loads(each) for each in found] == objects
    assert version == "7"


@given(VALUES, st.integers(1, 60))
def test_an_object_may_be_nested_in_any_way(value, levels: int) -> None:
    """Beyond some levels it is not found in one step."""
    for level in range(levels):
        value = [value, "]"] if level % 2 else {"}": value}
    text = json.dumps({"metadata": {"resourceVersion": "7"}, "items": [{"a": value}, {"b": 1}]})

    for pieces in (1 << 16, 7):
        found, _ = taken(text.encode(), pieces=pieces)
        assert [json.loads(each) for each in found] == [{"a": value}, {"b": 1}]


@given(OBJECTS, VALUES, st.dictionaries(TEXTS, VALUES, max_size=3), st.booleans())
def test_managed_fields_are_left_out_and_nothing_else(fields, value, others, first: bool) -> None:
    """Texts that look like them are no fields."""
    others = {**others, "text": '"managedFields":[1]', "value": value}
    managed = {"managedFields": fields}
    metadata = managed | others if first else others | managed
    about = json.dumps({"metadata": metadata, "items": value}, separators=(",", ":")).encode()

    cut = json.loads(without_managed_fields(about))

    assert cut == {"metadata": {**others, "managedFields": None}, "items": value}


@given(st.binary(max_size=200), st.integers(1, 9))
def test_bytes_that_are_no_list_raise_one_kind_of_error(answer: bytes, pieces: int) -> None:
    with pytest.raises(NoListError):
        taken(b"x" + answer, pieces=pieces)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"null",
        b"[]",
        b"<html>please log in</html>",
        b'{"items":[]}',
        b'{"metadata":{},"items":[]}',
        b'{"metadata":{"resourceVersion":5},"items":[]}',
        b'{"metadata":[],"items":[]}',
        b'{"metadata":{"resourceVersion":"5"},"items":{"a":1}}',
        b'{"metadata":{"resourceVersion":"5"},"items":[{"a":1}',
        b'{"metadata":{"resourceVersion":"5"},"items":[{"a":"1',
        b"[" * 60_000,
    ],
)
def test_what_is_no_whole_list_is_refused(answer: bytes) -> None:
    with pytest.raises(NoListError):
        taken(answer)


@pytest.mark.parametrize("items", [b"", b',"items":null', b',"items":[]', b',"items":[1,"x",null,2]'])
def test_a_list_may_be_empty(items: bytes) -> None:
    assert taken(b'{"metadata":{"resourceVersion":"5"}' + items + b"}") == ([], "5")


def test_a_broken_object_costs_only_itself() -> None:
    broken = b'{"metadata":{"resourceVersion":"5"},"items":[{"a":1},{"b" 2,,},{"c":3}]}'

    assert taken(broken) == ([b'{"a":1}', b'{"b" 2,,}', b'{"c":3}'], "5")


def test_an_object_that_is_too_long_is_left_out_and_not_kept() -> None:
    """No more is kept of a list than one object of the greatest length."""
    listing = ListParser()
    piece = b"x" * (1 << 16)
    tracemalloc.start()
    assert list(listing.feed(b'{"metadata":{"resourceVersion":"5"},"items":[{"a":"')) == []
    for _ in range(2 * LONGEST_OBJECT // len(piece)):
        assert list(listing.feed(piece)) == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert list(listing.feed(b'"},{"a":1}]}')) == [None, b'{"a":1}']
    assert peak < 2 * LONGEST_OBJECT


def test_bytes_between_objects_are_bounded() -> None:
    with pytest.raises(NoListError):
        list(ListParser().feed(b'{"kind":"' + b"x" * LONGEST_FRAME))
