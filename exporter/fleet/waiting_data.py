"""The pods that wait, with their answers, as JSON data and as CSV: an unknown value is null, or empty."""

from collections.abc import Mapping
from typing import Any, Final

from exporter.fleet.waiting import Waiting, reason_of
from exporter.formats.json_csv import csv_text
from exporter.waiting.answer import Answer
from exporter.waiting.lack import devices_of
from exporter.waiting.way import Way

COLUMNS: Final = (
    *("namespace", "pod", "owner", "priority", "scheduler", "waits_seconds", "requests", "claims", "reason"),
    *("nodes", "nodes_that_fit", "nodes_not_judged", "pods_ahead"),
    *("nearest", "nearest_kind", "nearest_node", "who_is_asked", "would_help", "not_judged"),
)


def waiting_json(waiting: Waiting) -> dict[str, Any]:
    """Return the pods that wait for a device; ``pods`` is null if they are not known."""
    ages, answers = waiting.ages(), waiting.answers
    return {
        "timestamp": waiting.at,
        "source": waiting.view.source,
        "ages_seconds": dict(ages),
        "not_seen": list(waiting.unseen),
        "nodes_not_answering": sorted(waiting.facts.silent),
        "only_namespaces": list(waiting.only) or None,
        "pods": None if answers is None else [_answer(each, ages) for each in answers],
        "other_pods": None if answers is None else waiting.others,
    }


def waiting_csv(waiting: Waiting) -> str:
    """Return one line for each pod that waits for a device."""
    rows = (_row(answer) for answer in waiting.answers or ())
    return csv_text(COLUMNS, ([row[name] for name in COLUMNS] for row in rows))


def _answer(answer: Answer, ages: Mapping[str, float]) -> dict[str, Any]:
    pod = answer.pod
    return {
        "namespace": pod.key.namespace,
        "pod": pod.key.name,
        "uid": pod.uid,
        "owner": pod.owner or None,
        "priority": pod.priority,
        "scheduler": pod.scheduler,
        "gates": list(pod.gates),
        "waits_seconds": answer.seconds,
        "requests": dict(pod.requests),
        "claims": list(filter(None, pod.claims)),
        "reason": reason_of(answer),
        "nodes": answer.nodes,
        "nodes_that_fit": None if answer.nodes is None else answer.fits,
        "nodes_not_judged": None if answer.nodes is None else answer.passes,
        "offers": [
            {
                "resource": each.resource,
                "requested": each.requested,
                "nodes": each.nodes,
                "slices": each.slices,
                "free": each.free,
                "most_free_on_one_node": each.most_free,
            }
            for each in answer.offers
        ],
        "nodes_out": [
            {"nodes": each.nodes, "reason": each.words, "example": each.example} for each in answer.out
        ],
        "not_judged": list(answer.unjudged),
        "remarks": [*answer.remarks, *filter(None, [answer.before])],
        "pods_ahead": answer.ahead,
        "ways": [_way(each, ages) for each in answer.ways],
        "would_not_help": [{"node": each.node, "what": each.what} for each in answer.not_helping],
    }


def _way(way: Way, ages: Mapping[str, float]) -> dict[str, Any]:
    return {
        "kind": way.kind,
        "node": way.node,
        "gpu": way.gpu or None,
        "what": way.what,
        "who_is_asked": way.asked,
        "would_help": _would_help(way),
        "not_judged": list(way.unjudged),
        "pods": [{"namespace": pod.namespace, "pod": pod.name} for pod in way.pods],
        "resource": way.resource or None,
        "instead_of": way.instead_of or None,
        "commands": list(way.commands),
        "stops": way.stops or None,
        "others": way.others,
        "age_seconds": ages.get({"objects": "pods", "GPUs": "GPUs", "advice": "advice"}[way.source]),
    }


def _would_help(way: Way) -> bool | None:
    """Return true, or None if something of the pod is not judged."""
    return None if way.unjudged else True


def _row(answer: Answer) -> dict[str, Any]:
    pod, way = answer.pod, answer.ways[0] if answer.ways else None
    helps = None if way is None else _would_help(way)
    return {
        "namespace": pod.key.namespace,
        "pod": pod.key.name,
        "owner": pod.owner or None,
        "priority": pod.priority,
        "scheduler": pod.scheduler,
        "waits_seconds": None if answer.seconds is None else round(answer.seconds),
        "requests": [f"{count} {name}" for name, count in sorted(devices_of(pod).items())],
        "claims": list(filter(None, pod.claims)),
        "reason": reason_of(answer),
        "nodes": answer.nodes,
        "nodes_that_fit": None if answer.nodes is None else answer.fits,
        "nodes_not_judged": None if answer.nodes is None else answer.passes,
        "pods_ahead": answer.ahead,
        "nearest": way.what if way else None,
        "nearest_kind": way.kind if way else None,
        "nearest_node": way.node if way else None,
        "who_is_asked": way.asked if way else None,
        "would_help": "true" if helps else None,
        "not_judged": list(way.unjudged if way else answer.unjudged),
    }
