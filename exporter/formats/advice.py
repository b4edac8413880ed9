"""Advice in words, as JSON data and as CSV."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from exporter.advice.model import HOURS, Advice, Option, Use, savings_of
from exporter.formats.json_csv import csv_text
from exporter.wording import decimal, duration, gibibytes

_SENTENCES = {
    "release": "It could be released: it never computed.",
    "fewer_gpus": "{target} would do: the others never computed.",
    "replicas": "The GPU could have {target}.",
    "keep": "What it holds fits: {target}.",
}
_FITS = "{target} would fit."


def advice_paragraphs(advice: Advice) -> tuple[str, ...]:
    """Return advice as what would fit with what to know of it, and the facts; or why it is unknown."""
    if advice.reason == "opted_out":
        return (f"No advice: {advice.why}.",)
    if advice.reason is not None:
        return (f"Not known: {advice.why}.",)
    option = advice.options[0]
    verdict = _SENTENCES.get(option.verdict, _FITS).format(target=option.target)
    notes = (f"{note[0].upper()}{note[1:]}." for note in option.notes)
    return " ".join((verdict, *notes)), f"{_facts(advice)}."


def _facts(advice: Advice) -> str:
    share = f"{decimal(100 * advice.coverage, 0)} %"
    seen = f"seen for {duration(advice.window.span)}, measured for {share} of it"
    facts = "; ".join((*_needs(advice), f"confidence {advice.confidence}: {seen}"))
    return facts[0].upper() + facts[1:]


def _needs(advice: Advice) -> Iterator[str]:
    uses, need = advice.window.uses, advice.need
    peaks = [use.memory_peak for use in uses if use.memory_peak is not None]
    if not peaks or need is None or advice.options[0].verdict in ("release", "replicas"):
        return
    yield f"memory peak {gibibytes(max(peaks))} GiB, {gibibytes(need.memory)} with a margin"
    if need.compute is not None:
        yield f"95 % of the time at most {decimal(need.compute, 2)} GPU with a margin"


def advice_document(advices: Sequence[Advice], at: float, price: float | None = None) -> dict[str, Any]:
    """Return all advice of Unix time ``at`` as JSON data, with every input; unknown values are null.

    ``price`` is that of a GPU-hour; without it there are no costs.
    """
    savings = savings_of(advices)
    return {
        "timestamp": at,
        "advice": [_advice(advice) for advice in advices],
        "savings": {
            "could_be_freed": _saving(savings.freed, price),
            "would_fit": _saving(savings.fits, price),
            "may_fit": _saving(savings.unknown, price),
            "without_advice": dict(savings.without),
        },
    }


def _saving(gpus: float | None, price: float | None) -> dict[str, float | None]:
    hours = None if gpus is None else gpus * HOURS
    return {
        "gpus": gpus,
        "gpu_hours_per_day": hours,
        "cost_per_day": None if price is None or hours is None else hours * price,
    }


def _advice(advice: Advice) -> dict[str, Any]:
    window, need, device = advice.window, advice.need, advice.window.device
    return {
        "cluster": window.cluster or None,
        "namespace": window.namespace or None,
        "workload": window.workload or None,
        "container": window.container or None,
        "now": advice.now,
        "options": [_option(option) for option in advice.options],
        "reason": advice.reason,
        "why": advice.why,
        "confidence": advice.confidence,
        "window": {"start": window.start, "end": window.end, "held_seconds": window.held},
        "coverage": advice.coverage,
        "pods": window.pods,
        "need": None if need is None else {"memory_bytes": need.memory, "compute_gpus": need.compute},
        "device": {
            "model": device.model,
            "sharing": device.sharing,
            "isolation": device.isolation,
            "profile": device.profile or None,
            "memory_bytes": device.memory,
            "unattributed_ratio": device.unattributed,
        },
        "uses": [_use(use) for use in window.uses],
    }


def _option(option: Option) -> dict[str, Any]:
    return {
        "verdict": option.verdict,
        "target": option.target,
        "gpus_freed": option.gpus_freed,
        "would_fit": option.would_fit,
        "notes": list(option.notes),
    }


def _use(use: Use) -> dict[str, Any]:
    return {
        "namespace": use.holder.namespace,
        "pod": use.holder.pod,
        "container": use.holder.container,
        "uuid": use.device.uuid,
        "mig_uuid": use.device.mig_uuid or None,
        "node": use.node or None,
        "held_seconds": use.held,
        "memory_coverage": use.memory_coverage,
        "compute_coverage": use.compute_coverage,
        "computing_seconds": use.computing,
        "memory_peak_bytes": use.memory_peak,
        "memory_flat": use.memory_flat,
        "compute_p95_gpus": use.compute_p95,
        "compute_mean_gpus": use.compute_mean,
        "sm_p95_ratio": use.sm_p95,
        "memory_entitled_bytes": use.memory_entitled,
        "compute_entitled_gpus": use.compute_entitled,
    }


def advice_csv(advices: Iterable[Advice]) -> str:
    """Return one line for each advice as CSV, as ``csv_text`` does.

    ``gpus`` are UUIDs of GPUs held, and ``holders`` the containers: of a GPU that several share, all of them.
    """
    records = (_line(_advice(advice)) for advice in advices)
    return csv_text(_COLUMNS, ([record[name] for name in _COLUMNS] for record in records))


_NAMES = ("cluster", "namespace", "workload", "container", "now")
_OPTION = ("verdict", "target", "gpus_freed", "would_fit")
_SURE = ("reason", "why", "confidence", "coverage", "pods")
_WINDOW = ("start", "end", "held_seconds")
_NEED = ("memory_bytes", "compute_gpus")
_DEVICE = ("model", "sharing", "isolation", "profile")
_COLUMNS = (
    *_NAMES,
    *_OPTION,
    "notes",
    *_SURE,
    *(f"window_{name}" for name in _WINDOW),
    *(f"need_{name}" for name in _NEED),
    *_DEVICE,
    "gpus",
    "holders",
)


def _line(advice: dict[str, Any]) -> dict[str, Any]:
    """Return the cells of an advice: of its options only the first."""
    first: dict[str, Any] = next(iter(advice["options"]), {})
    need: dict[str, Any] = advice["need"] or {}
    return (
        {name: advice[name] for name in (*_NAMES, *_SURE)}
        | {name: first.get(name) for name in _OPTION}
        | {"notes": "; ".join(first.get("notes", ()))}
        | {f"window_{name}": advice["window"][name] for name in _WINDOW}
        | {f"need_{name}": need.get(name) for name in _NEED}
        | {name: advice["device"][name] for name in _DEVICE}
        | {"gpus": " ".join(dict.fromkeys(use["uuid"] for use in advice["uses"]))}
        | {"holders": list(dict.fromkeys(map(_holder, advice["uses"])))}
    )


def _holder(use: dict[str, Any]) -> str:
    return "/".join(filter(None, (use["namespace"], use["pod"], use["container"])))
