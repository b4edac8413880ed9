"""The cells of the matrices that each change has to pass; the whole matrices are for the night.

A cell is chosen if it has a pair that no other chosen cell has: of what fails (by its group), how (by its
meaning) and where. Each function, code and kind of file is in one of them besides.
"""

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from tests.together.faults.nvml_cells import Case
from tests.together.faults.nvml_claims import KINDS
from tests.together.faults.report import group_of
from tests.together.faults.selection import covering, pairs
from tests.together.faults.sharing import Planned

# What a file in this state has in common with others, by the first words of the state.
STATES: Mapping[str, str] = {
    "removed": "gone",
    "a link to nothing": "gone",
    "empty": "content",
    "cut short": "content",
    "garbage": "content",
    "a sparse GiB": "content",
}
_ID = re.compile(r"[0-9a-f]{8}[0-9a-f-]*(_\w+)?|(?<=/)\d(?=/)")


def traits_of_case(case: Case) -> Iterator[Hashable]:
    """Return what a call that fails or hangs must cover."""
    meaning = KINDS.get(case.how, case.how)
    yield from pairs(group_of(case.function), meaning, case.where)
    yield from (case.function, case.how)


def traits_of_file(planned: Planned) -> Iterator[Hashable]:
    """Return what a spoiled file of one node must cover."""
    cell = planned[0]
    state = STATES.get(cell.how, "unreadable")
    yield from pairs(_ID.sub("*", cell.what), state, cell.where)
    yield cell.how


def cases(every: Iterable[Case]) -> Sequence[Case]:
    """Select calls that fail or hang."""
    return covering(every, traits_of_case)


def files(every: Iterable[Planned]) -> Sequence[Planned]:
    """Select files that are spoiled."""
    return covering(every, traits_of_file)
