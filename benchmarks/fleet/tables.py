"""The results of a fleet as Markdown."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.fleet.sizes import INTERVAL
from benchmarks.markdown import table

Figures = Mapping[str, Any]
Spell = Callable[[float], str]

TEXTS = Path(__file__).with_name("texts.txt")


def markdown(figures: Figures, texts: Mapping[str, str]) -> str:
    """Return what is below the heading of the section; ``texts`` are those of TEXTS, by their names."""
    largest, disk = figures["growth"][-1], figures["disk"]
    numbers = {
        "nodes": largest["nodes"],
        "processors": figures["processors"],
        "made": largest["made"] / largest["nodes"],
        "chunks": disk["chunks_per_sample"],
        "index": disk["index_per_series"],
        "series": disk["series"],
        "day": disk["chunks_per_sample"] * disk["series"] * 86400 / INTERVAL / 1e6,
    }
    tables = {"growth": _growth(figures), "groups": _groups(largest)}
    parts = [part for name, text in texts.items() for part in (text.format(**numbers), tables.get(name))]
    return "\n\n".join(filter(None, parts)) + "\n"


def _growth(figures: Figures) -> str:
    columns: Mapping[str, tuple[str, Spell]] = {
        "series": ("series", "{:.0f}".format),
        "memory": ("resident", _gigabytes),
        "live": ("live", _gigabytes),
        "scraping": ("scraping", "{:.2f} cores".format),
        "memory, rules too": ("resident_with_rules", _gigabytes),
        "all rules once": ("rules_cpu", "{:.1f} s".format),
        "rules": ("rules_busy", "{:.2f} cores".format),
    }

    def row(name: str, fleet: Figures) -> list[str]:
        return [name, *(spell(fleet[key]) if key in fleet else "" for key, spell in columns.values())]

    rows = [row(f"{fleet['nodes']}", fleet) for fleet in figures["growth"]]
    rows += [
        ["power", *(f"{figures['exponents'][key]:.2f}" for key, _ in columns.values())],
        row(f"{figures['extrapolated']['nodes']}, extrapolated", figures["extrapolated"]),
        row(f"{figures['many']['nodes']} of one GPU", figures["many"]),
    ]
    return table(["nodes", *columns], rows)


def _groups(fleet: Figures) -> str:
    rows = [
        (
            name.removeprefix("gpuslice-"),
            f"{group['interval']} s",
            f"{group['seconds']:.2f} s",
            f"{group['seconds'] / group['interval']:.1%}",
        )
        for name, group in fleet["groups"].items()
    ]
    return table(("group", "every", "evaluation", "of its interval"), rows)


def _gigabytes(value: float) -> str:
    return f"{value / 1e9:.2f} GB"
