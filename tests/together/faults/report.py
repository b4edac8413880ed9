"""The results of all matrices as the tables of a page in docs/."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.together.faults.cells import Result
from tests.together.faults.nvml_claims import KINDS, Kind

# By subject; the first that matches.
GROUPS: Mapping[str, str] = {
    "library and driver": r"^Init|^Shutdown|^System|^DeviceGetCount",
    "events": r"Event",
    "profiling (GPM)": r"Gpm",
    "vGPU": r"[Vv]gpu|Grid|Virtualization",
    "MIG": r"Mig|GpuInstance|ComputeInstance|Attributes",
    "handle and UUID": r"HandleByIndex|UUID",
    "processes": r"Process",
    "memory": r"MemoryInfo|BAR1",
    "links and places": r"NvLink|Topology|Affinity|Fabric",
    "who the GPU is": r"Name|Serial|Pci(Info)|Minor|Architecture|Vbios|Part|Inforom|Gsp|Capability",
    "other readings": r"",
}
USUAL = frozenset({"nothing", "its own readings", "its GPU", "all its GPUs"})

# This many codes are not listed one by one.
MANY = 8


def page_of(found: Mapping[str, Sequence[Result]]) -> str:
    """Return the sections of all matrices."""
    return "\n".join(part for title, results in found.items() for part in _section(title, results))


def _section(title: str, results: Sequence[Result]) -> Iterator[str]:
    broken = sum(bool(result.broken) for result in results)
    late = sum(result.polls == 2 for result in results)
    yield f"\n### {title}\n"
    yield (
        f"{len(results)} cells: {len(results) - broken} hold, {broken} do not. "
        f"After {late} of them the page was as before at the second poll, else at the first.\n"
    )
    yield from _nvml(results) if results and results[0].cell.source == "NVML" else _plain(results)


def _nvml(results: Sequence[Result]) -> Iterator[str]:
    hows = sorted({_how(result) for result in results})
    yield f"| calls about | {' | '.join(hows)} |"
    yield f"|---{'|---' * len(hows)}|"
    for group in GROUPS:
        of_group = [result for result in results if group_of(result.cell.what) == group]
        if of_group:
            cells = (_counted(result for result in of_group if _how(result) == how) for how in hows)
            yield f"| {group} | {' | '.join(cells)} |"
    yield "\nWhere more is lost than the device that the call is about, but where the driver is gone:\n"
    yield "| functions | codes | where | lost |"
    yield "|---|---|---|---|"
    yield from _unusual(results)


def _unusual(results: Iterable[Result]) -> Iterator[str]:
    codes: dict[tuple[str, str, str], list[str]] = {}
    for result in results:
        if result.outcome not in USUAL and _how(result) != str(Kind.GONE):
            place = (result.cell.what, result.cell.where, result.outcome)
            codes.setdefault(place, []).append(_spelled(result.cell.how))
    rows: dict[tuple[str, str, str], list[str]] = {}
    for (what, where, outcome), spelled in codes.items():
        named = ", ".join(dict.fromkeys(spelled)) if len(spelled) < MANY else f"{len(spelled)} codes"
        rows.setdefault((named, where, outcome), []).append(f"`{what}`")
    for (named, where, outcome), functions in rows.items():
        yield f"| {', '.join(functions)} | {named} | {where} | {outcome} |"


def _plain(results: Sequence[Result]) -> Iterator[str]:
    yield "| what | how | outcome |"
    yield "|---|---|---|"
    rows: dict[tuple[str, str], Counter[str]] = {}
    for result in results:
        # Files are grouped by their system.
        what = result.cell.source if "/" in result.cell.what else result.cell.what
        rows.setdefault((what, result.cell.how), Counter())[_outcome(result)] += 1
    for (what, how), outcomes in rows.items():
        yield f"| {what} | {how} | {_words(outcomes)} |"


def _how(result: Result) -> str:
    kind = KINDS.get(result.cell.how)
    return result.cell.how if kind is None else str(kind)


def _spelled(how: str) -> str:
    return f"`{how}`" if how in KINDS else how


def group_of(function: str) -> str:
    """Return the first of GROUPS that a function of NVML is in."""
    return next(group for group, words in GROUPS.items() if re.search(words, function.removeprefix("nvml")))


def _counted(results: Iterable[Result]) -> str:
    return _words(Counter(_outcome(result) for result in results))


def _outcome(result: Result) -> str:
    return f"**{result.outcome}, and breaks a claim**" if result.broken else result.outcome


def _words(outcomes: Counter[str]) -> str:
    return ", ".join(f"{outcome} ({count})" for outcome, count in outcomes.most_common())
