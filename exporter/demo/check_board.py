"""What must hold true of a board's links, health and answers."""

import re
from collections.abc import Iterable, Mapping
from typing import get_args

from exporter.demo.codec import Signed, fail
from exporter.demo.nvml_health import BANKS, CAUSES, LOCATIONS, SCOPES, SEVERITIES
from exporter.demo.nvml_table import FUNCTIONS
from exporter.demo.nvml_topology import LEVELS
from exporter.demo.schema_board import Health, Links
from exporter.demo.schema_gpu import Gpu
from exporter.model.readings import NvlinkError

_CPUS = re.compile(r"(?:\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?)*)?")
_FIELD = re.compile(r"field:\d+(?::\d+)?")


def check_boards(gpus: Iterable[Gpu]) -> None:
    """Raise ScenarioError with the path of what no board can be."""
    known = {gpu.uuid for gpu in gpus}
    for place, gpu in enumerate(gpus):
        path = f"gpus[{place}]"
        _check_links(gpu.links, known - {gpu.uuid}, f"{path}.links")
        _check_health(gpu.health, f"{path}.health")
        _check_answers(gpu.answers, f"{path}.answers")
        for number, instance in enumerate(gpu.mig.instances if gpu.mig else ()):
            _check_answers(instance.answers, f"{path}.mig.instances[{number}].answers")


def _check_links(links: Links, others: set[str], path: str) -> None:
    if links.down > links.nvlinks:
        fail(f"{path}.down", f"must be at most the {links.nvlinks} that there are")
    _all_of(f"{path}.to", links.to, others)
    _all_of(f"{path}.relations", links.relations, others)
    for word in links.relations.values():
        _all_of(f"{path}.relations", (word,), LEVELS)
    _all_of(f"{path}.errors", links.errors, get_args(NvlinkError))
    ends = sum(links.to.values())
    if ends > links.nvlinks:
        fail(f"{path}.to", f"must lead no more than {links.nvlinks} links anywhere, not {ends}")
    if not _CPUS.fullmatch(links.cpus):
        fail(f"{path}.cpus", f"must look like 0-31,64-95, not {links.cpus!r}")


def _check_health(health: Health, path: str) -> None:
    places = {
        f"{severity}/{scope}/{name}" for severity in SEVERITIES for scope in SCOPES for name in LOCATIONS
    }
    _all_of(f"{path}.errors", health.errors, places)
    _all_of(f"{path}.remapped_rows", health.remapped_rows, SEVERITIES)
    _all_of(f"{path}.row_banks", health.row_banks, BANKS)
    _all_of(f"{path}.retired_pages", health.retired_pages, CAUSES)


def _check_answers(answers: Mapping[str, tuple[Signed, ...]], path: str) -> None:
    for call, numbers in answers.items():
        function = FUNCTIONS.get(call.partition(":")[0])
        if _FIELD.fullmatch(call):
            if len(numbers) != 1:
                fail(path, f"{call} must be given one number, not {len(numbers)}")
        elif function is None or function.write is None:
            fail(path, f"{call} is no call of the fake driver that answers with numbers")


def _all_of(path: str, given: Iterable[str], known: Iterable[str]) -> None:
    for name in given:
        if name not in known:
            fail(path, f"{name} is none of {', '.join(sorted(known)) or 'none'}")
