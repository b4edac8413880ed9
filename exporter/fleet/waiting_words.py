"""The answer to why a pod waits, in words: what commands print and the page shows."""

from collections.abc import Iterator
from typing import Final

from exporter.fleet.waiting import REASONS, Waiting, reason_of
from exporter.waiting.answer import Answer, Offer
from exporter.waiting.lack import devices_of
from exporter.waiting.objects import Amounts
from exporter.waiting.way import Way
from exporter.wording import TIMES, UNKNOWN, decimal, duration, plural

_GIBIBYTE: Final = 1 << 30
_MOST_OUT: Final = 4
# Reasons that say how a node is, and not what keeps the pod out.
_STATES: Final = ("cordoned", "without ", "short of ")
NO_MORE: Final = "nothing that is known here would help"


def requested(answer: Answer) -> str:
    """Return what a pod waits for, such as ``1 nvidia.com/gpu (and 8 CPU, 64.0 GiB)``."""
    wanted, rest = devices_words(answer), ", ".join(_rest(answer.pod.requests))
    if not wanted:
        return rest or "nothing that is judged here"
    return f"{wanted} (and {rest})" if rest else wanted


def waits_words(answer: Answer) -> str:
    """Return for how long a pod has waited, a dash if that is not known."""
    return UNKNOWN if answer.seconds is None else duration(answer.seconds)


def devices_words(answer: Answer) -> str:
    """Return the devices and claims that a pod waits for."""
    devices = [f"{count} {TIMES} {name}" for name, count in sorted(devices_of(answer.pod).items())]
    return ", ".join((*devices, *(f"claim {name}" for name in answer.pod.claims if name)))


def _rest(requests: Amounts) -> Iterator[str]:
    if cpu := requests.get("cpu", 0):
        yield f"{cpu // 1000 if cpu % 1000 == 0 else decimal(cpu / 1000, 2)} CPU"
    if memory := requests.get("memory", 0):
        yield f"{decimal(memory / _GIBIBYTE, 1)} GiB"


def sentences(answer: Answer) -> Iterator[str]:
    """Yield what is known of the nodes, each as a sentence without a full stop."""
    if answer.nodes is None:
        yield "Nodes or pods are not known, so that nothing can be judged"
        return
    yield from (f"{remark[0].upper()}{remark[1:]}" for remark in answer.remarks)
    if answer.before:
        yield f"The scheduler looks at no node: {answer.before}"
        return
    if not answer.nodes:
        yield "The cluster has no nodes"
    if answer.fits:
        yield f"It fits {plural(answer.fits, 'node')} now: the scheduler has not placed it yet"
    if answer.passes:
        yield f"{plural(answer.passes, 'node')} may have room{_unjudged(answer)}"
    if answer.near:
        # Else no node is open to the pod, whatever it offers.
        yield from map(_offer, answer.offers)
    if out := _out(answer):
        yield out


def _unjudged(answer: Answer) -> str:
    """Return what is not judged of the pod, beside what holds for it as a whole."""
    return f"; not judged: {', '.join(answer.unjudged)}" if answer.unjudged else ""


def _offer(offer: Offer) -> str:
    """Return what there is of a resource where the pod may go."""
    if not offer.nodes:
        return f"No node that it may go to offers {offer.resource}"
    free = "all held" if not offer.free else f"{offer.free} free"
    slices = f"{plural(offer.nodes, 'node')} {'offers' if offer.nodes == 1 else 'offer'} {offer.resource}"
    most = f", at most {offer.most_free} on one node" if offer.free and offer.nodes > 1 else ""
    return f"{slices}: {plural(offer.slices, 'slice')}, {free}{most}"


def _out(answer: Answer) -> str:
    """Return how many nodes are out for something else than slices that are held, and for what."""
    other = [each for each in answer.out if not each.held]
    total = sum(each.nodes for each in other)
    if not total:
        return ""
    parts = [f"{each.nodes} {_by(each.words)}" for each in other[:_MOST_OUT]]
    if more := sum(each.nodes for each in other[_MOST_OUT:]):
        parts.append(f"{more} for other reasons")
    nodes = plural(answer.nodes or 0, "node")
    which = f"{total} of {nodes}"
    if total == answer.nodes and total > 1:
        which = f"All {nodes}" if total > 2 else "Both nodes"
    return f"{which} {'is' if total == 1 else 'are'} out: {', '.join(parts)}"


def _by(words: str) -> str:
    return words if words.startswith(_STATES) else f"by {words}"


def way_words(way: Way) -> str:
    """Return a way in words, with what is not judged of it, and how many more there are."""
    doubt = f" (not judged: {', '.join(way.unjudged)})" if way.unjudged else ""
    more = f" (or one of {way.others} others)" if way.others > 1 else (" (or another)" if way.others else "")
    return f"{way.what}{more}{doubt}"


def ahead_words(answer: Answer) -> str:
    """Return how many pods come first, "" if none does or that is not known."""
    if not answer.ahead:
        return ""
    wait = "pod that waits" if answer.ahead == 1 else "pods that wait"
    comes = "comes" if answer.ahead == 1 else "come"
    return f"{answer.ahead} {wait} for the same {comes} first, by priority, then age"


def reason_words(answer: Answer) -> str:
    """Return why a pod waits, in short."""
    return REASONS[reason_of(answer)]


def ages_words(waiting: Waiting, now: float | None = None) -> str:
    """Return how old what is known is, now or when it was put together."""
    ages = waiting.ages(now)
    seen = [f"{name} {duration(ages[name])} ago" for name in ("pods", "nodes", "GPUs") if name in ages]
    view = waiting.view
    source = "no objects" if view.objects is None and view.waiting != () else f"from {view.source}"
    return f"{', '.join(seen) or UNKNOWN}; {source}"
