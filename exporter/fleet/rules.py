"""The rules that a Prometheus evaluates, and the series that it has under old and new names.

The format of Prometheus, Thanos, Mimir and vmalert: they differ in fields that are not read here, in what
``file`` is (a path, or Mimir's namespace), and vmalert has rules in other languages, by ``datasourceType``.
https://prometheus.io/docs/prometheus/latest/querying/api/#rules
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from exporter.fleet.prometheus import Prometheus, PrometheusError

_MALFORMED = (KeyError, TypeError, AttributeError)


class Rule(NamedTuple):
    """An alerting or a recording rule."""

    file: str
    group: str
    kind: str  # "alert" or "record"
    name: str
    query: str


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules of a server."""

    rules: Sequence[Rule] = ()
    groups: int = 0
    # Why some may be missing, as the server reports it.
    incomplete: Sequence[str] = field(default_factory=tuple)


async def read_rules(prometheus: Prometheus) -> Rules:
    """Return the rules of a server; raises PrometheusError."""
    # Without the alerts that fire, which may be many; servers that do not know the parameter ignore it.
    return decode_rules(await prometheus.document("rules", "exclude_alerts=true"))


def decode_rules(document: Mapping[str, Any]) -> Rules:
    """Return the rules in a response; raises PrometheusError."""
    try:
        groups = document["data"]["groups"] or ()
        rules = dict.fromkeys(rule for group in groups for rule in _rules(group))
        incomplete = [_text(warning) for warning in document.get("warnings") or ()]
        if document["data"].get("groupNextToken"):
            incomplete.append("the server returns its groups in pages, and this is the first")
        return Rules(tuple(rules), len(groups), tuple(incomplete))
    except _MALFORMED:
        raise PrometheusError("the server at --prometheus-url has no rules as Prometheus has") from None


def _rules(group: Mapping[str, Any]) -> Iterator[Rule]:
    for rule in group["rules"] or ():
        # Graphite and LogsQL have no series of Prometheus.
        if rule.get("datasourceType") in (None, "", "prometheus"):
            kind = "record" if rule["type"] == "recording" else "alert"
            yield Rule(
                _text(group.get("file") or ""),
                _text(group["name"]),
                kind,
                _text(rule["name"]),
                _text(rule["query"]),
            )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


async def series_by_name(prometheus: Prometheus, names: Collection[str]) -> Mapping[str, int]:
    """Return the number of series of each of these names that has any; raises PrometheusError."""
    if not names:
        return {}
    pattern = "|".join(sorted(names))
    found = await prometheus.query(f'count by (__name__) ({{__name__=~"{pattern}"}})')
    return {sample.text("__name__"): int(sample.value) for sample in found}


async def series_with_label(prometheus: Prometheus, label: str) -> int:
    """Return the number of series of DCGM that have a label; raises PrometheusError."""
    found = await prometheus.query(f'count({{__name__=~"DCGM_.+", {label}!=""}})')
    return int(found[0].value) if found else 0
