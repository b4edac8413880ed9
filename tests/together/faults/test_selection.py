"""The cells that each change has to pass cover what the whole matrices have, pair by pair."""

from collections.abc import Hashable, Iterable
from itertools import product

from tests.together.faults.harness import watched
from tests.together.faults.nvml_calls import driver_of
from tests.together.faults.nvml_cells import STEP
from tests.together.faults.nvml_errors import Matrix, every_case
from tests.together.faults.nvml_nodes import new
from tests.together.faults.quick import cases, files, traits_of_case, traits_of_file
from tests.together.faults.selection import T, Traits, covering, pairs
from tests.together.faults.sharing import cells_of, node, opened_by


def test_each_pair_of_values_is_covered_by_few_cells() -> None:
    """Three values of each of three traits make 27 cells, and nine of them have all pairs."""
    cells = list(product("abc", "def", "ghi"))
    chosen = covering(cells, lambda cell: pairs(*cell))
    assert {pair for cell in chosen for pair in pairs(*cell)} == {
        pair for cell in cells for pair in pairs(*cell)
    }
    assert len(chosen) < 15


async def test_calls_that_fail_are_covered_pair_by_pair() -> None:
    """Each function and code, and each pair of group, meaning and place, is that of a chosen cell."""
    async with watched(new(), step=STEP) as watch:
        driver = await driver_of(watch)
        every = list(every_case(Matrix(watch, driver), driver.uses))
    chosen = cases(every)
    assert _traits(chosen, traits_of_case) == _traits(every, traits_of_case)
    assert {case.function for case in chosen} == driver.uses.keys()
    assert len(chosen) < len(every) / 20


async def test_spoiled_files_are_covered_pair_by_pair() -> None:
    """Each kind of file, state and moment is that of a chosen cell."""
    async with watched(node("hami")) as watch:
        every = list(cells_of("hami", await opened_by(watch), watch.node._root))
    chosen = files(every)
    assert _traits(chosen, traits_of_file) == _traits(every, traits_of_file)
    assert len(chosen) < len(every) / 5


def _traits(cells: Iterable[T], traits: Traits[T]) -> set[Hashable]:
    return {trait for cell in cells for trait in traits(cell)}
