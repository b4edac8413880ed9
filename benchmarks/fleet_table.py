"""What was measured of a fleet, as what stands below the heading of a section of a page."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.fleet_growth import INTERVAL

_Found = Mapping[str, Any]

_TEXTS = Path(__file__).with_name("fleet.txt")


def table(found: _Found) -> str:
    """Write all of it as Markdown."""
    largest, forms, disk = found["growth"][-1], found["compared"], found["disk"]
    day = disk["chunks_per_sample"] * disk["series"] * 86400 / INTERVAL / 1e6
    made = largest["made"] / largest["nodes"]
    numbers: Mapping[str, Mapping[str, Any]] = {
        "growth": {},
        "groups": {"nodes": largest["nodes"], "processors": found["processors"], "made": made},
        "forms": forms["turns"],
        "disk": {
            "chunks": disk["chunks_per_sample"],
            "index": disk["index_per_series"],
            "series": disk["series"],
            "day": day,
        },
    }
    tables = {"growth": _growth(found), "groups": _groups(largest), "forms": _forms(forms)}
    texts = re.findall(r"^\[(\w+)\]\n(.*?)\n(?=\[|\Z)", _TEXTS.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    parts = [
        part for name, text in texts for part in (text.strip().format(**numbers[name]), tables.get(name))
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _written(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _growth(found: _Found) -> str:
    columns: Mapping[str, tuple[str, Callable[[float], str]]] = {
        "series": ("series", lambda value: f"{value:.0f}"),
        "memory": ("resident", _gigabytes),
        "live": ("live", _gigabytes),
        "scraping": ("scraping", _cores),
        "memory, rules too": ("resident_with_rules", _gigabytes),
        "all rules once": ("rules_cpu", lambda value: f"{value:.1f} s"),
        "rules": ("rules_busy", _cores),
    }

    def row(name: str, fleet: _Found) -> list[str]:
        cells = (told(fleet[key]) if key in fleet else "" for key, told in columns.values())
        return [name, *cells]

    rows = [row(f"{fleet['nodes']}", fleet) for fleet in found["growth"]]
    powers = (f"{found['exponents'][key]:.2f}" for key, _ in columns.values())
    rows += [["power", *powers], row(f"{found['reckoned']['nodes']}, reckoned", found["reckoned"])]
    rows += [row(f"{found['many']['nodes']} of one GPU", found["many"])]
    return _written(["nodes", *columns], rows)


def _groups(fleet: _Found) -> str:
    rows = [
        [
            name.removeprefix("gpuslice-"),
            f"{group['interval']} s",
            f"{group['seconds']:.2f} s",
            f"{group['seconds'] / group['interval']:.1%}",
        ]
        for name, group in fleet["groups"].items()
    ]
    return _written(["group", "every", "evaluation", "of its interval"], rows)


def _forms(found: _Found) -> str:
    forms, nodes = found["forms"], found["turns"]["nodes"]

    def row(name: str, told: Callable[[_Found], str]) -> list[str]:
        return [name, *(told(form) for form in forms.values())]

    def of_node(key: str, told: Callable[[float], str]) -> Callable[[_Found], str]:
        return lambda form: told(form[key] / nodes)

    def created(change: str) -> Callable[[_Found], str]:
        return lambda form: f"{max(form['created'][change]):.0f}"

    def answered(question: str) -> Callable[[_Found], str]:
        return lambda form: f"{form['questions'][question] * 1e3:.1f} ms"

    rows = [
        row("series", of_node("series", lambda value: f"{value:.0f}")),
        row("page", lambda form: f"{form['page'] / 1e3:.0f} kB"),
        row("page, compressed", lambda form: f"{form['packed'] / 1e3:.0f} kB"),
        row("memory", of_node("resident", _megabytes)),
        row("live memory", of_node("live", _megabytes)),
        row("index of a block", lambda form: f"{form['stored']['index'] / nodes / 1e3:.0f} kB"),
        row("processor for a sample", lambda form: f"{form['cpu_per_sample'] * 1e6:.1f} µs"),
        row(
            "processor for a scrape",
            lambda form: f"{form['cpu_per_sample'] * form['series'] / nodes * 1e3:.1f} ms",
        ),
        *(row(question, answered(question)) for question in next(iter(forms.values()))["questions"]),
        row("new series: a label of pods changes", created("label")),
        row("new series: the driver is upgraded", created("driver")),
        row("new series: all pods are replaced", created("pods")),
        row("series in memory after all that", of_node("series_after", lambda value: f"{value:.0f}")),
        row("live memory after all that", of_node("live_after", _megabytes)),
    ]
    return _written(["of a node", *forms], rows)


def _gigabytes(value: float) -> str:
    return f"{value / 1e9:.2f} GB"


def _megabytes(value: float) -> str:
    return f"{value / 1e6:.1f} MB"


def _cores(value: float) -> str:
    return f"{value:.2f} cores"
