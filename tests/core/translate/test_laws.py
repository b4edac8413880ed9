"""Properties of all translations, on expressions and files that are made of any parts."""

import contextlib
import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.translate.names import UntranslatableError
from exporter.translate.tokens import tokens
from tests.core.translate.any_expression import expressions
from tests.core.translate.forms import OWN, REFUSED, TRANSLATED, UNCHANGED
from tests.core.translate.laws import NAMES, held_expression, held_file

_OLD = sorted(NAMES.series)
_NEW = sorted({series.name for series in NAMES.series.values()})
_LABELS = st.sampled_from(["Hostname", "hostname", "gpu", "UUID", "DCGM_FI_DRIVER_VERSION"])
_ANY = expressions(st.sampled_from([*_OLD[:40], "up", "my:rule", *_NEW[:3]]), _LABELS)
_ONLY_OLD = expressions(st.sampled_from(_OLD), _LABELS)
_ONLY_NEW = expressions(st.sampled_from(["up", "my:rule", *_NEW]), st.sampled_from(["gpu", "hostname"]))


@given(_ANY)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_an_expression_is_translated_once_and_completely(text: str) -> None:
    """Its translation parses, has no old name, and stays as it is in a second one."""
    with contextlib.suppress(UntranslatableError):
        held_expression(text)


@given(_ONLY_OLD)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_an_expression_of_dcgm_alone_has_no_old_label_after_it(text: str) -> None:
    with contextlib.suppress(UntranslatableError):
        words = tokens(held_expression(text))
        assert not [word for word in words if word.text.strip("\"'") in NAMES.labels]


@given(_ONLY_NEW)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_an_expression_without_an_old_name_stays_byte_for_byte(text: str) -> None:
    with contextlib.suppress(UntranslatableError):
        assert held_expression(text) == text


@pytest.mark.parametrize("text", [*TRANSLATED, *UNCHANGED, *TRANSLATED.values(), *OWN])
def test_the_laws_hold_for_every_form(text: str) -> None:
    with contextlib.suppress(UntranslatableError):
        held_expression(text)


_KEYS = st.sampled_from(["expr", "query", "record", "legendFormat", "seriesQuery", "summary", "data", "name"])
_TEXTS = st.one_of(
    st.sampled_from([*TRANSLATED, *UNCHANGED, *REFUSED, "{{ $labels.Hostname }}", "Hostname"]),
    st.text(max_size=20),
    _ANY,
)
_RULES = st.fixed_dictionaries({"alert": _TEXTS, "expr": _ANY, "annotations": st.dictionaries(_KEYS, _TEXTS)})
_PANELS = st.fixed_dictionaries({"targets": st.lists(st.fixed_dictionaries({"expr": _ANY}), max_size=3)})
_DOCUMENTS = st.recursive(
    st.one_of(_RULES, _PANELS, _TEXTS, st.integers(), st.none()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(_KEYS | st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(_DOCUMENTS, st.sampled_from([None, 1, "\t"]))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_a_file_of_json_keeps_the_rest_and_lists_what_stays(document: Any, indent: Any) -> None:
    held_file(json.dumps(document, indent=indent))
    held_file("\ufeff" + json.dumps(document, ensure_ascii=False))


@given(
    st.lists(_DOCUMENTS, min_size=1, max_size=2),
    st.sampled_from([None, "'", '"', "|", ">"]),
    st.sampled_from([40, 200]),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_a_file_of_yaml_keeps_the_rest_and_lists_what_stays(
    documents: list[Any], style: Any, width: int, ending: str, flow: bool
) -> None:
    """In each style of a text, with comments and several documents."""
    text = yaml.safe_dump_all(
        documents, default_style=style, width=width, default_flow_style=flow, allow_unicode=True
    )
    held_file(f"# DCGM_FI_DEV_GPU_UTIL\n{text}# end\n".replace("\n", ending))


@pytest.mark.slow
@given(_ANY)
@settings(max_examples=3000, deadline=None, derandomize=True)
def test_many_expressions_are_translated_once_and_completely(text: str) -> None:
    with contextlib.suppress(UntranslatableError):
        held_expression(text)
