"""Public dashboards and rules for dcgm-exporter find their series here.

``dcgm_dashboards.json`` holds their expressions. Prometheus or its configuration adds ``instance``, and
``exported_`` before the pod labels of a target with its own.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from exporter.exposition import Exposition, Format
from exporter.metrics.selection import Selection
from tests.core.exposition.dcgm_node import NODE

DASHBOARDS = json.loads(Path(__file__).with_name("dcgm_dashboards.json").read_text(encoding="utf-8"))
EXPRESSIONS = sorted({expression for dashboard in DASHBOARDS for expression in dashboard["expressions"]})
# dcgm-exporter's own dashboard groups by it, while dcgm-exporter prints UUID.
MISSPELT = {"uuid"}
SELECTOR = re.compile(r"\b((?:DCGM|dcgm)_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
GROUPING = re.compile(r"\bby\s*\(([^)]*)\)")
LABEL = re.compile(r'(\w+)="([^"]*)"')
SAMPLE = re.compile(r"^(\w+)\{(.*)\} (\S+)$", re.MULTILINE)


class Selector(NamedTuple):
    """A name with its matchers: (label, operator, value)."""

    name: str
    matchers: list[tuple[str, str, str]]


EVERY_NAME = Selection(metric_set="full", dcgm_names="legacy", allow=(re.compile("DCGM_.*"),))


def _selectors(expression: str) -> Iterator[Selector]:
    for name, inside in SELECTOR.findall(expression):
        matchers = [
            (label.removeprefix("exported_"), operator, value)
            for label, operator, value in MATCHER.findall(inside)
            if label != "instance"
        ]
        yield Selector(name, matchers)


def _series(snapshot) -> dict[str, list[dict[str, str]]]:
    page = Exposition(EVERY_NAME).page(snapshot).body(Format.TEXT).decode()
    series: dict[str, list[dict[str, str]]] = {}
    for name, labels, _ in SAMPLE.findall(page):
        series.setdefault(name, []).append(dict(LABEL.findall(labels)))
    return series


def _matches(labels: dict[str, str], matcher: tuple[str, str, str]) -> bool:
    """Return whether Prometheus would select a series; a dashboard variable matches any value."""
    label, operator, value = matcher
    present = labels.get(label, "")
    if value.startswith("$"):
        return bool(present)
    equal = present == value if operator in {"=", "!="} else re.fullmatch(value, present) is not None
    return equal == (operator in {"=", "=~"})


@pytest.fixture(scope="module")
def series() -> dict[str, list[dict[str, str]]]:
    """Return the labels of every series of a node that has all the hardware, by name."""
    return _series(NODE)


def test_every_selector_finds_series(series) -> None:
    """Each name is on the page, with series that its matchers select."""
    for expression in EXPRESSIONS:
        selectors = list(_selectors(expression))
        assert selectors, expression
        for name, matchers in selectors:
            candidates = series.get(name, [])
            assert any(all(_matches(labels, matcher) for matcher in matchers) for labels in candidates), (
                expression,
                name,
            )


def test_series_have_every_label_that_an_expression_groups_by(series) -> None:
    """Those of an instance may be missing: a series of a whole GPU is printed once, and is one group."""
    for expression in EXPRESSIONS:
        labels = {
            label
            for selector in _selectors(expression)
            for present in series[selector.name]
            for label in present
        }
        grouped = {
            label.strip().removeprefix("exported_")
            for group in GROUPING.findall(expression)
            for label in group.split(",")
        }
        assert grouped <= labels | {"GPU_I_ID", "GPU_I_PROFILE"} | MISSPELT, expression


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"),
        ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_TOTAL"),
        ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_SM_CLOCK"),
        ("dcgm_fb_used", "dcgm_fb_free"),
    ],
)
def test_fields_of_one_group_have_the_same_labels(series, one, other) -> None:
    """One can be divided by the other."""
    assert series[one] == series[other]
