"""All matrices of faults in their long form, by the heading that they have in the report."""

from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial

from tests.together.faults import (
    kubelet,
    layout,
    nvml_errors,
    nvml_hangs,
    nvml_nodes,
    proc,
    sharing,
    together,
)
from tests.together.faults.cells import Result
from tests.together.faults.harness import watched
from tests.together.faults.nvml_calls import asked_of
from tests.together.faults.nvml_errors import Select

Part = Callable[[], AsyncIterator[Result]]
_ERRORS, _HANGS = 5, 6


async def errors(part: tuple[int, int], select: Select = list) -> AsyncIterator[Result]:
    """Yield a cell for every function of NVML that is called, every code and every place."""
    async for result in nvml_errors.results(nvml_nodes.new(), part=part, select=select):
        yield result


async def errors_of_others(select: Select = list) -> AsyncIterator[Result]:
    """Yield the same of the functions that only other drivers and boards are asked: older calls, vGPUs."""
    others = await asked_of(nvml_nodes.new())
    async for result in nvml_errors.results(nvml_nodes.old(), skip=others, select=select):
        yield result


async def hangs(part: tuple[int, int], select: Select = list) -> AsyncIterator[Result]:
    """Yield a cell for every function that returns late or never, in every place."""
    async for result in nvml_hangs.results(nvml_nodes.new(), part=part, select=select):
        yield result


async def hangs_of_others(select: Select = list) -> AsyncIterator[Result]:
    """Yield the same of the functions that only other drivers and boards are asked."""
    others = await asked_of(nvml_nodes.new())
    async for result in nvml_hangs.results(nvml_nodes.old(), skip=others, select=select):
        yield result


async def kubelets() -> AsyncIterator[Result]:
    """Yield a cell for every bad state of the kubelet's sockets."""
    async with watched(kubelet.node()) as watch:
        for cell in kubelet.CELLS:
            yield await kubelet.try_cell(watch, cell)


async def processes() -> AsyncIterator[Result]:
    """Yield a cell for every way in which files of processes cannot be read."""
    async with watched(proc.node()) as watch:
        for cell in proc.CELLS:
            yield await proc.try_cell(watch, cell)


async def several() -> AsyncIterator[Result]:
    """Yield a cell for all parts of a node that can hang at once."""
    async with watched(together.node()) as watch:
        for cell in together.CELLS:
            yield await together.try_cell(watch, cell)


async def files() -> AsyncIterator[Result]:
    """Yield a cell for every file of a sharing system and every way to spoil it."""
    for name in sharing.NODES:
        for result in await sharing.run_node(name):
            yield result


MATRICES: Mapping[str, tuple[Part, ...]] = {
    "Errors of NVML": (
        *(partial(errors, (part, _ERRORS)) for part in range(_ERRORS)),
        errors_of_others,
    ),
    "Calls of NVML that hang": (
        hangs_of_others,
        *(partial(hangs, (part, _HANGS)) for part in range(_HANGS)),
    ),
    "The kubelet": (kubelets,),
    "Processes": (processes,),
    "Several parts that hang at once": (several,),
    "Changes in the middle of a poll": (layout.results,),
    "Files of sharing systems": (files,),
}
"""By the heading of the report: parts that can be tried side by side, each in a process of its own."""
