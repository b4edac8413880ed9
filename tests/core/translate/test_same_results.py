"""A real Prometheus answers the same before the translation on old names and after it on new ones."""

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from benchmarks.prometheus import Prometheus, stored
from exporter.translate.edits import changed
from exporter.translate.expression import translate_expression
from exporter.translate.names import TARGETS, UntranslatableError
from tests.core.translate.answers import NEW_LABELS, RefusedError, answer, close
from tests.core.translate.dialect_pages import LENGTH, Dialect, page
from tests.core.translate.forms import OWN, TRANSLATED, UNCHANGED
from tests.tools import tool

pytestmark = pytest.mark.slow

# Within the retention of Prometheus.
END = int(time.time()) // 600 * 600 - 2 * LENGTH
OWN_LABELS = {"Hostname": "node", "UUID": "uuid"}
# Results with all digits, except for the order of additions.
EXACT = 1e-9
Servers = dict[tuple[Dialect, bool], Prometheus]


class _Rounded(NamedTuple):
    """A form whose result does not depend on what the old unit rounded away, or does by 1 % or 1 MiB."""

    text: str
    slack: float


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """Run a Prometheus for each dialect, with whole values and with those that the old units round."""
    tool("prometheus")
    tool("promtool")
    dialects: tuple[Dialect, ...] = ("old", "new", "gpuslice")
    with ExitStack() as running:
        yield {
            (dialect, whole): running.enter_context(stored([page(dialect, END, whole=whole)]))
            for dialect in dialects
            for whole in (True, False)
        }


def _new(text: str, target: str = "dcgm-4.9") -> str:
    return changed(text, translate_expression(text, TARGETS[target]).edits)


def test_every_form_has_the_same_result(servers: Servers) -> None:
    """With values that are whole in the old units, to nine digits."""
    empty = []
    for text in (*TRANSLATED, *(each for each in UNCHANGED if "RATIO" not in each)):
        before = answer(servers["old", True], text, END, NEW_LABELS)
        after = answer(servers["new", True], _new(text), END)
        assert close(before, after, EXACT), text
        empty += [] if before else [text]

    # Alerts that do not fire.
    assert len(empty) < 12, empty


ROUNDED = (
    *(
        _Rounded(text, EXACT)
        for text in TRANSLATED
        if text.startswith(("DCGM_FI_DEV_FB_USED ==", "DCGM_FI_DEV_FB_USED >", "sum(DCGM_FI_DEV_FB_USED) =="))
        and "on" not in text
        and "bool" not in text
    ),
    _Rounded("max_over_time(DCGM_FI_DEV_FB_USED[9m]) == 0", EXACT),
    _Rounded("count(DCGM_FI_DEV_FB_USED > 0)", EXACT),
    _Rounded("DCGM_FI_DEV_GPU_UTIL == 100", EXACT),
    _Rounded("DCGM_FI_DEV_FB_FREE", 0.05),
    _Rounded("sum(DCGM_FI_DEV_FB_USED) / sum(DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)", 0.01),
    _Rounded("rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[20m])", 0.01),
)


@pytest.mark.parametrize("form", ROUNDED)
def test_what_the_old_units_rounded_away_changes_nothing_else(servers: Servers, form: _Rounded) -> None:
    """A GPU whose memory was 0 MiB in use has some KiB in use now: it is as idle as before."""
    before = answer(servers["old", False], form.text, END, NEW_LABELS)
    after = answer(servers["new", False], _new(form.text), END)
    if form.slack == EXACT:
        # The values differ by the rest that was rounded away, the series do not.
        assert before.keys() == after.keys()
    else:
        assert before
        assert close(before, after, form.slack)


def test_our_own_series_have_the_same_result(servers: Servers) -> None:
    """Whatever labels they have more or less."""
    for text, new in OWN.items():
        if "RATIO" in text or "BYTES" in text:
            continue
        before = answer(servers["old", True], text, END, OWN_LABELS)
        after = answer(servers["gpuslice", True], new, END)
        values = [sorted(answer.values()) for answer in (before, after)]
        assert before, text
        assert values[0] == pytest.approx(values[1], rel=EXACT), text


SERIES = (
    *("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_TOTAL", "DCGM_FI_DEV_SM_CLOCK"),
    *("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"),
    *('DCGM_FI_DEV_MEM_COPY_UTIL{Hostname="h1"}', "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_DEV_ENC_UTIL"),
)
RANGES = (
    *("rate", "delta", "deriv", "avg_over_time", "min_over_time", "max_over_time", "sum_over_time"),
    *("stddev_over_time", "stdvar_over_time", "count_over_time", "last_over_time", "resets"),
)


def _made(source: random.Random, depth: int) -> str:
    """Return an expression of some kinds of parts."""
    if depth == 0:
        return source.choice(SERIES)
    inner = _made(source, depth - 1)
    other = _made(source, source.randrange(depth))
    keys = source.choice(("UUID", "Hostname, gpu", "instance, gpu"))
    kinds = [
        f"{source.choice(RANGES)}({source.choice(SERIES)}[9m])",
        f"max_over_time({inner}[10m:2m])" if depth < 3 else inner,
        f"{source.choice(('sum', 'avg', 'min', 'max', 'stddev', 'stdvar', 'count'))} by (Hostname) ({inner})",
        f"quantile(0.5, {inner})",
        f"({inner})",
        f"-{source.choice(SERIES)}",
        f"clamp_max({inner}, 1000.5)",
        f"abs({inner})",
        f"{inner} * {source.choice(('1024', '100', '1024 * 1024', '1e6'))}",
        f"{inner} / {source.choice(('1000', '1024', '100', '3600000'))}",
        f"({inner}) {source.choice('+-')} 3.5",
        f"({inner}) > {source.choice(('0.55', '40.5', '1000.5'))}",
        f"({inner}) {source.choice(('and', 'or', 'unless'))} on ({keys}) ({other})",
        f"({inner}) {source.choice('*/+-')} on ({keys}) group_left () max by ({keys}) ({other})",
    ]
    return source.choice(kinds)


def test_expressions_of_any_parts_have_the_same_result(servers: Servers) -> None:
    """The parts of forms in other orders; those that Prometheus itself refuses are left out."""
    source = random.Random(7)  # noqa: S311 - nothing secret
    compared = filled = 0
    for _ in range(400):
        text = _made(source, source.randrange(1, 5))
        try:
            new = _new(text)
            before = answer(servers["old", True], text, END, NEW_LABELS)
        except (UntranslatableError, RefusedError):
            continue
        after = answer(servers["new", True], new, END)
        assert close(before, after, 1e-7), f"{text}\n{new}"
        compared += 1
        filled += bool(before)

    assert compared > 200
    assert filled > 120
