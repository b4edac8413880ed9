"""The fake driver under the unmodified binding."""

from collections.abc import Callable, Iterator
from typing import Any

import pynvml
import pytest

from exporter.demo.scenario import Scenario
from tests.fake.demo.making import Bench


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    """Put a scenario under the binding, opened; hanging calls return at the end."""
    benches: list[Bench] = []

    def put(scenario: Scenario, *, opened: bool = True, seed: int = 0) -> Bench:
        made_bench = Bench(scenario, seed)
        benches.append(made_bench)
        _use(made_bench.nvml)
        if opened:
            pynvml.nvmlInit()
        return made_bench

    yield put
    for made_bench in benches:
        made_bench.nvml.release()
    _use(None)


def _use(library: Any) -> None:
    pynvml.nvmlLib = library
    pynvml._nvmlGetFunctionPointer_cache.clear()
