"""The queries of a node's past, and whose a series is that they find."""

from collections.abc import Collection, Mapping
from typing import Final

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
    choices = [""]
    if level == "container" and pod:
        choices = [f",{name}={quoted(pod)}" for name in ("pod", f"{_EXPORTED}pod")]
    series = f"gpuslice_{level}_{field}{{uuid=~{_any_of(uuids)}"
    means = " or ".join(f"avg_over_time({series}{choice}}}[{_span(step)}])" for choice in choices)
    return f"avg by ({', '.join(_KEPT[level])}) ({means})"


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


def _any_of(uuids: Collection[str]) -> str:
    return quoted("|".join(map(_literal, sorted(uuids))))


def _literal(text: str) -> str:
    """Write a text as a pattern of RE2 that matches it."""
    return "".join(f"\\{char}" if char in _SPECIAL else char for char in text)


def _span(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
