"""The lines of one family: its samples, which both formats share, and its header in each."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from exporter.exposition_labels import ODD_NUMBERS, LabelCache, escape_help, join_labels, number
from exporter.metrics import AnyFamily, Family, LabelledFamily, Number

Entities: TypeAlias = Mapping[str, Any]
"""The records of a level by their label set, spelt."""


def plain_samples(family: Family[Any], entities: Entities) -> bytes:
    """Render the samples of a family that has at most one for each entity."""
    name, value, odd = family.name, family.value, ODD_NUMBERS.get
    # Nearly all of a page is made here: number() is written out, and skipped for integers.
    lines = [
        f"{name}{labels} {found if type(found) is int else odd(text := repr(found), text)}\n"
        for labels, row in entities.items()
        if (found := value(row)) is not None
    ]
    return "".join(lines).encode()


def labelled_samples(family: LabelledFamily[Any], entities: Entities, extras: LabelCache) -> bytes:
    """Render the samples of a family with labels of its own; of two under the same labels the first stays."""
    series: dict[str, Number] = {}
    for labels, row in entities.items():
        for values, found in family.samples(row):
            if found is not None:
                series.setdefault(join_labels(labels, extras.text(family.labels, values)), found)
    return "".join([f"{family.name}{labels} {number(found)}\n" for labels, found in series.items()]).encode()


def text_header(family: AnyFamily) -> bytes:
    """Spell HELP and TYPE for the text format 0.0.4, which knows no info type."""
    shown_type = "gauge" if family.type == "info" else family.type
    text = escape_help(family.help, openmetrics=False)
    return f"# HELP {family.name} {text}\n# TYPE {family.name} {shown_type}\n".encode()


def openmetrics_header(family: AnyFamily) -> bytes:
    """Spell HELP and TYPE for OpenMetrics, which names a family without the suffix of its type."""
    name, shown_type = family.name, str(family.type)
    if family.type == "info":
        name = name.removesuffix("_info")
    if family.type == "counter":
        # A counter must end in _total there; of unknown type it keeps the name that queries use.
        shown_type = "counter" if name.endswith("_total") else "unknown"
        name = name.removesuffix("_total")
    text = escape_help(family.help, openmetrics=True)
    return f"# HELP {name} {text}\n# TYPE {name} {shown_type}\n".encode()
