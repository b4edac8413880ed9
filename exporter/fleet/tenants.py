"""Memory and compute that the pods of each namespace hold, use and waste."""

from collections.abc import Iterator, Mapping

from exporter.fleet import shares
from exporter.fleet.amounts import FAILED_AMOUNT, Amount, Share
from exporter.fleet.cluster_model import Namespace
from exporter.fleet.queries import Answers, Sums

_HOURS = {
    "held": "namespace:gpuslice_held_gpu_seconds:increase1h",
    "used": "namespace:gpuslice_used_gpu_seconds:increase1h",
    "measured": "namespace:gpuslice_measured_gpu_seconds:increase1h",
}
_NAME = "GPU-hours {}"
_SECONDS = 3600.0
# Prometheus extrapolates the increase of two counters over the same window a little differently.
_ALIKE = 0.999


def questions(window: float) -> dict[str, str]:
    """Return the queries for the sums of each namespace, and its GPU-hours over ``window`` seconds."""
    return shares.questions("namespace") | {
        _NAME.format(what): f"sum by (namespace) (sum_over_time({record}[{window:.0f}s:1h]))"
        for what, record in _HOURS.items()
    }


def read_namespaces(answers: Answers) -> tuple[Namespace, ...] | None:
    """Return each namespace; None if the list of namespaces could not be queried."""
    recorded = shares.Shares(answers, "namespace")
    places = recorded.places
    return None if places is None else tuple(_namespaces(recorded, places, answers))


def _namespaces(recorded: shares.Shares, places: list[shares.Place], answers: Answers) -> Iterator[Namespace]:
    spent = {what: answers.sums(_NAME.format(what), "namespace") for what in _HOURS}
    for place in places:
        yield Namespace(
            name=place[0],
            holders=recorded.holders(place),
            memory=recorded.share(place, "bytes"),
            compute=recorded.share(place, "gpus"),
            hours=_hours(spent, place),
        )


def _hours(spent: Mapping[str, Sums | None], place: shares.Place) -> Share:
    of_held, of_used, of_measured = spent["held"], spent["used"], spent["measured"]
    if of_held is None:
        return Share(FAILED_AMOUNT, FAILED_AMOUNT, FAILED_AMOUNT)
    held = of_held.get(place)
    if held is None:
        return Share()
    whole = Amount(held / _SECONDS, 1)
    if of_used is None or of_measured is None:
        return Share(whole, FAILED_AMOUNT, FAILED_AMOUNT)
    used, measured = of_used.get(place), of_measured.get(place)
    if used is None or measured is None:
        return Share(held=whole)
    missing = int(measured < held * _ALIKE)
    return Share(
        held=whole,
        used=Amount(used / _SECONDS, 1, missing),
        wasted=Amount(max(measured - used, 0.0) / _SECONDS, 1, missing),
    )
