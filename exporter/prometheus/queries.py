"""The queries of a node's past, and whose a series is that they find."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from exporter.history.past import ADDED

# Labels that Prometheus sets on all it scrapes of a pod. Those of ours by these names are then called
# exported_… where the scrape does not honour ours.
_DISPUTED: Final = ("namespace", "pod", "container")
_EXPORTED: Final = "exported_"
_KEPT: Final[Mapping[str, tuple[str, ...]]] = {
    "container": (*_DISPUTED, *(f"{_EXPORTED}{name}" for name in _DISPUTED), "uuid", "mig_uuid"),
    "gpu": ("uuid",),
    "mig": ("uuid", "mig_uuid"),
}
_SPECIAL: Final = frozenset("\\.+*?()|[]{}^$")


def expression(level: str, field: str, uuids: Collection[str], step: float, pod: str = "") -> str:
    """Ask for the means of a field over each step, of some GPUs, and of one pod where that is named.

    Two scrape jobs, or an exporter whose pod was replaced, tell of the same thing twice: it is one series.
    """
    return f"avg {_by(level)} ({_over('avg', _ranges(level, field, uuids, step, pod))})"


def summing(level: str, field: str, uuids: Collection[str], step: float, pod: str = "") -> str:
    """Ask for the same so that it adds up (see ``exporter.history.past.Wanted``).

    What is added up is divided by all the time in which the GPU was known.
    """
    ranges = _ranges(level, field, uuids, step, pod)
    sums = f"sum {_by(level)} ({_over('sum', ranges)})"
    if field not in ADDED[level]:
        return f"{sums} / sum {_by(level)} ({_over('count', ranges)})"
    # It is 1 where the GPU is known, and 0 where it is not: who holds it is known all the same.
    seen = _over("count" if "entitled" in field else "sum", _ranges("gpu", "up", uuids, step))
    return f"{sums} / on (uuid) group_left () sum by (uuid) ({seen})"


def scraped_containers(uuids: Collection[str], span: float) -> str:
    """Ask by which label ``container`` the exporter's own container is known, where it is known by one."""
    series = f"gpuslice_gpu_up{{uuid=~{_any_of(uuids)}}}[{_span(span)}]"
    return f"count by (container) (count_over_time({series}))"


def identity(level: str, labels: Mapping[str, str], scraped: Collection[str]) -> dict[str, str]:
    """Tell whose a series is, by the names of our labels.

    ``scraped`` are the values of ``container`` that are those of the exporter: that label is no holder's.
    """
    own = {name: labels.get(name, "") for name in ("uuid", "mig_uuid") if name in labels}
    if level != "container":
        return own
    names = {name: labels.get(f"{_EXPORTED}{name}") or labels.get(name, "") for name in _DISPUTED}
    if f"{_EXPORTED}container" not in labels and names["container"] in scraped:
        names["container"] = ""
    return names | own


def quoted(text: str) -> str:
    """Write a string of PromQL."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _by(level: str) -> str:
    return f"by ({', '.join(_KEPT[level])})"


def _ranges(level: str, field: str, uuids: Collection[str], step: float, pod: str = "") -> list[str]:
    choices = [""]
    if level == "container" and pod:
        choices = [f",{name}={quoted(pod)}" for name in ("pod", f"{_EXPORTED}pod")]
    series = f"gpuslice_{level}_{field}{{uuid=~{_any_of(uuids)}"
    return [f"{series}{choice}}}[{_span(step)}]" for choice in choices]


def _over(what: str, ranges: Iterable[str]) -> str:
    return " or ".join(f"{what}_over_time({each})" for each in ranges)


def _any_of(uuids: Collection[str]) -> str:
    return quoted("|".join(map(_literal, sorted(uuids))))


def _literal(text: str) -> str:
    """Write a text as a pattern of RE2 that matches it."""
    return "".join(f"\\{char}" if char in _SPECIAL else char for char in text)


def _span(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
