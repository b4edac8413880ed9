"""What all advice together would free; options that exclude each other are never added up."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from exporter.advice.model import Advice, Reason

HOURS = 24
"""Hours of a day: a GPU that is freed all day frees so many GPU-hours."""


class Savings(NamedTuple):
    """GPUs, as means over the windows."""

    # Freed by the first option of each advice that frees something.
    freed: float
    # The part of it that another holder would get, and the part of which this is unknown.
    fits: float
    unknown: float
    # Of how many windows nothing is known, by reason.
    without: Mapping[Reason, int]


def savings_of(advices: Sequence[Advice]) -> Savings:
    """Return what the first options would free."""
    firsts = [advice.options[0] for advice in advices if advice.options]
    freeing = [option for option in firsts if option.gpus_freed > 0]
    return Savings(
        freed=sum(option.gpus_freed for option in freeing),
        fits=sum(option.gpus_freed for option in freeing if option.would_fit),
        unknown=sum(option.gpus_freed for option in freeing if option.would_fit is None),
        without=Counter(advice.reason for advice in advices if advice.reason is not None),
    )
