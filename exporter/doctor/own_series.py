"""Names of our own series in rules and files: those that do not exist, or that the default set lacks."""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Final

from exporter.doctor import Check, degraded
from exporter.metrics import FAMILIES

_SETS: Final = {family.name: family.of_set for family in FAMILIES}
# Of the exporter itself, by the client library.
_OTHERS: Final = frozenset({"gpuslice_build_info", "gpuslice_render_duration_seconds"})

_LOST = "the results of what reads it"
NO_SUCH_SERIES: Final = degraded("series-unknown", _LOST, "correct the name; docs/metrics.md has all names")
SERIES_NOT_IN_SET: Final = degraded(
    "series-not-in-set", _LOST, "--metric-set {of_set}, or --metric-allowlist {series}"
)


def own_checks(places: Mapping[str, Iterable[str]], now: Mapping[str, int] | None) -> Iterator[Check]:
    """Yield a finding for each name, with its places, whose series cannot be there.

    ``now``: how many series a Prometheus has of each; None if none was asked.
    """
    for name, where in sorted(places.items()):
        if now is not None and now.get(name):
            continue
        read = f"read by {'; '.join(sorted(set(where)))}"
        if name not in _SETS.keys() | _OTHERS:
            near = get_close_matches(name, _SETS, 1)
            similar = f", similar: {near[0]}" if near else ""
            yield NO_SUCH_SERIES.check(name, f"no series has this name{similar}; {read}")
        elif now is not None and _SETS.get(name, "core") != "core":
            of_set = _SETS[name]
            found = f"only --metric-set {of_set} has it, and Prometheus has none; {read}"
            yield SERIES_NOT_IN_SET.check(name, found, of_set=of_set, series=name)
