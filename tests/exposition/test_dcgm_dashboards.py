"""What public dashboards and rules ask of dcgm-exporter, this exporter answers.

``dcgm_dashboards.json`` holds their expressions. Labels that Prometheus or its configuration adds are left
to them: ``instance``, and the ``exported_`` before the pod labels of a target that has its own.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from exporter.exposition import Exposition, Format
from exporter.metrics.selection import Selection
from tests.exposition.dcgm_node import NODE

DASHBOARDS = json.loads(Path(__file__).with_name("dcgm_dashboards.json").read_text(encoding="utf-8"))
EXPRESSIONS = [
    pytest.param(expression, id=f"{number}-{expression}")
    for number, dashboard in enumerate(DASHBOARDS)
    for expression in dashboard["expressions"]
]
# dcgm-exporter's own dashboard groups by this one, which the exporter writes in capital letters.
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
    found = labels.get(label, "")
    if value.startswith("$"):
        return bool(found)
    same = found == value if operator in {"=", "!="} else re.fullmatch(value, found) is not None
    return same == (operator in {"=", "=~"})


@pytest.fixture(scope="module")
def series() -> dict[str, list[dict[str, str]]]:
    """Return the labels of every series of a node that has all the hardware, by name."""
    return _series(NODE)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_selector_finds_series(series, expression) -> None:
    """Each name is on the page, with series that its matchers take."""
    selectors = list(_selectors(expression))

    assert selectors
    for name, matchers in selectors:
        assert any(all(_matches(labels, each) for each in matchers) for labels in series.get(name, [])), name


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_series_can_be_grouped_as_they_are(series, expression) -> None:
    """Every label that an expression groups by is on a series that it selects.

    Those of an instance may be missing: what belongs to a whole GPU is printed once, and is one group.
    """
    labels = {
        label for selector in _selectors(expression) for found in series[selector.name] for label in found
    }
    grouped = [
        label.strip().removeprefix("exported_")
        for labels_text in GROUPING.findall(expression)
        for label in labels_text.split(",")
    ]

    assert set(grouped) <= labels | {"GPU_I_ID", "GPU_I_PROFILE"} | MISSPELT


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"),
        ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_TOTAL"),
        ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_SM_CLOCK"),
        ("dcgm_fb_used", "dcgm_fb_free"),
    ],
)
def test_two_fields_can_be_calculated_with(series, one, other) -> None:
    """Fields of one group have the same labels on every device, so that one can be divided by the other."""
    assert series[one] == series[other]
