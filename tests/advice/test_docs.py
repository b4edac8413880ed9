"""The examples in docs/advice.md: the engine prints these sentences for such workloads."""

from pathlib import Path
from typing import get_args

import pytest

from exporter.advice import Window, advise
from exporter.advice.model import Reason
from exporter.advice.units import UNITS
from exporter.formats.advice import advice_paragraphs
from tests.advice.simulated import Run, gib, mig, steps, whole, window

TEXT = (Path(__file__).parents[2] / "docs/advice.md").read_text()
DOCS = " ".join(TEXT.replace("\n> ", " ").split())
WEEK = steps(7)
_DEVICE = mig("3g.40gb", adjacent=2)


def _memory(low: float, high: float) -> list[int]:
    return [gib(low), gib(high)] * (WEEK // 2)


EXAMPLES: dict[str, Window] = {
    "MIG": window(
        Run(
            memory=_memory(4, 6.1),
            compute=[0.08] * WEEK,
            sm=[0.08] * WEEK,
            memory_entitled=_DEVICE.memory,
            compute_entitled=3 / 7,
        ),
        device=_DEVICE,
    ),
    "time-slicing": window(
        *(
            Run(
                memory=_memory(5, 6),
                compute=[0.1] * WEEK,
                pod=f"p{pod}",
                memory_entitled=gib(19.9),
                compute_entitled=0.25,
            )
            for pod in range(4)
        ),
        device=whole(sharing="time-slicing", replicas=4, sum_p95=0.4, sum_peak=gib(24)),
    ),
    "MPS": window(
        Run(memory=_memory(3, 4), compute=[0.2] * WEEK, memory_entitled=gib(19.9), compute_entitled=0.5),
        device=whole(sharing="mps", isolation="soft"),
    ),
    "HAMi": window(
        Run(memory=_memory(5, 9), compute=[0.3] * WEEK, memory_entitled=gib(24), compute_entitled=0.5),
        device=whole(sharing="hami", isolation="soft"),
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_what_the_engine_says(name: str) -> None:
    """With what is held, and all sentences."""
    advice = advise(EXAMPLES[name])

    assert advice.now in DOCS
    assert " ".join(advice_paragraphs(advice)) in DOCS


def test_every_reason_and_every_system_with_units_is_on_the_page() -> None:
    """By its name in code letters."""
    assert {name for name in (*get_args(Reason), *UNITS) if f"`{name}`" not in DOCS} == set()
