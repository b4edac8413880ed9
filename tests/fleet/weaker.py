"""What may change if something is hidden from the hub: numbers become unknown, and never other numbers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from exporter.fleet.prometheus import Sample

# What tells one item of a list from another.
_NAMES = {"cluster", "node", "namespace", "pod", "container", "uuid", "mig_uuid"}
# Flags that say that a list or a number is not all; and lists that are the largest of more.
_FLAGS = {"namespaces": "all_namespaces", "sick_gpus": "all_sick", "holders": "all_holders"}
_OPEN = frozenset({"listed", "reasons", "conditions", "sharing", "units", "other_states"})
# Less is known of a holder if one of several states is not.
_ACTIVITIES = ("active", "quiet", "idle", "idle-memory")
_STATES = {
    "over-share": _ACTIVITIES,
    "over-notional": _ACTIVITIES,
    "unheld": _ACTIVITIES,
    "idle-memory": ("idle",),
}
# Not of what is hidden; and a node without the time of its data does not answer.
_FREE = frozenset({"reason", "timestamp", "data_age_seconds", "nodes_not_answering"})
_OF_SILENT_NODES = frozenset({"node", "cluster", "job", "instance", "answers", "reason", "data_age_seconds"})


def changes(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """Yield each difference that is no loss: what another number, text or list is now, and where."""
    name = where.rpartition(".")[2]
    if after is None or before == after or name in _FREE:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from _of_mappings(before, after, where)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _of_lists(before, after, where, may_lack=name in _OPEN)
    elif isinstance(before, bool) and isinstance(after, bool):
        if after:
            yield f"{where}: {before} → {after}"
    elif not _is_less(name, before, after):
        yield f"{where}: {before} → {after}"


def _is_less(name: str, before: Any, after: Any) -> bool:
    if name == "state":
        return after == "unknown" or after in _STATES.get(before, ())
    return _are_numbers(before, after) and before == pytest.approx(after)


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _of_mappings(before: Mapping[str, Any], after: Mapping[str, Any], where: str) -> Iterator[str]:
    if after.get("answers") is False:
        known = (name for name in before if name not in _OF_SILENT_NODES)
        yield from (change for name in known for change in _known(after[name], f"{where}.{name}"))
        return
    # GPUs of an unknown model may be of any.
    bounds = after.get("complete") is False or "" in after
    for name in before.keys() & after.keys():
        place, flag = f"{where}.{name}", after.get(_FLAGS.get(name, ""), True)
        if (bounds or not flag) and _are_numbers(after[name]):
            if before[name] is None or after[name] > before[name] * 1.000001:
                yield f"{place}: {before[name]} → ≥ {after[name]}"
        elif not flag and isinstance(before[name], list) and isinstance(after[name], list):
            yield from _of_lists(before[name], after[name], place, may_lack=True)
        else:
            yield from changes(before[name], after[name], place)


def _known(value: Any, where: str) -> Iterator[str]:
    """Yield what is known of a node that does not answer."""
    if isinstance(value, Mapping):
        for name in value.keys() - {"complete"}:
            yield from _known(value[name], f"{where}.{name}")
    elif value:
        yield f"{where}: {value}"


def _of_lists(before: Sequence[Any], after: Sequence[Any], where: str, *, may_lack: bool) -> Iterator[str]:
    were, are = ({_name(item): item for item in items} for items in (before, after))
    for name in are:
        if name in were:
            yield from changes(were[name], are[name], f"{where}[{name}]")
        else:
            yield f"{where}: {name} is new"
    if not may_lack:
        yield from (f"{where}: {name} is gone" for name in were if name not in are)


def _name(item: Any) -> str:
    if not isinstance(item, Mapping):
        return str(item)
    names = _NAMES if _NAMES & item.keys() else ("resource",)
    return "/".join(str(item[name]) for name in sorted(names) if item.get(name))


class Recorded:
    """A Prometheus whose answers are recorded, so that they can be given again without some of them."""

    def __init__(self, answers: Mapping[str, list[Sample]]) -> None:
        self.answers = answers

    async def query(self, expression: str, _at: float | None = None) -> list[Sample]:
        """Return what was recorded; of a query for some GPUs the answer for all that were asked then."""
        if expression in self.answers:
            return self.answers[expression]
        family = expression.partition("{")[0]
        alike = (samples for text, samples in self.answers.items() if text.partition("{")[0] == family)
        return next(alike, [])

    def without(self, expression: str, place: int | None = None) -> "Recorded":
        """Return one without an answer, or without a sample of it."""
        samples = self.answers[expression]
        left = [] if place is None else samples[:place] + samples[place + 1 :]
        return Recorded({**self.answers, expression: left})
