"""The cluster, nodes and advice for some namespaces only: their holders, of sums that are still of all.

A namespace without holders is one of three: it may hold what is not known, it holds nothing, or nothing is
known of it, as of a misspelt one.
"""

from collections.abc import Sequence
from dataclasses import replace

from exporter.advice.model import Advice
from exporter.fleet.advice_queries import NAMESPACES_RECORDED, known_question
from exporter.fleet.amounts import Amount
from exporter.fleet.cluster_advice import ClusterAdvice, read_advice, require_none_held
from exporter.fleet.gpus import Gpu
from exporter.fleet.model import Fleet
from exporter.fleet.prometheus import Prometheus
from exporter.fleet.targets import UnknownNameError, some_names
from exporter.fleet.watch import FleetRead, Inspection
from exporter.wording import printable

_HOLDING = "group by (namespace) (namespace:gpuslice_containers:count)"


def fleet_of(fleet: Fleet, names: Sequence[str]) -> Fleet:
    """Return the cluster with the namespaces and idle holders of these names; all without names."""
    if not names:
        return fleet
    rows = fleet.namespaces
    idle = fleet.idle
    listed = rows is not None and {row.name for row in rows}.issuperset(names)
    return replace(
        fleet,
        only=tuple(names),
        namespaces=None if rows is None else tuple(row for row in rows if row.name in names),
        all_namespaces=fleet.all_namespaces or listed,
        idle=None if idle is None else tuple(each for each in idle if each.holder.namespace in names),
        all_idle=idle is not None and fleet.idle_holders == Amount(len(idle), 1),
    )


def advice_of(advice: ClusterAdvice, names: Sequence[str]) -> ClusterAdvice:
    """Return the advice on these namespaces, also on GPUs on which they take turns with others."""
    if not names:
        return advice
    return replace(advice, advices=tuple(each for each in advice.advices if _concerns(each, names)))


def _concerns(advice: Advice, names: Sequence[str]) -> bool:
    window = advice.window
    return window.namespace in names or any(use.holder.namespace in names for use in window.uses)


def read_of(read: FleetRead, names: Sequence[str]) -> FleetRead:
    """Return a read with the cluster and the advice narrowed to these namespaces; as it is without names."""
    found = read.advice.found
    return replace(
        read,
        fleet=None if read.fleet is None else fleet_of(read.fleet, names),
        advice=replace(read.advice, found=None if found is None else advice_of(found, names)),
    )


def unknown_names(read: FleetRead, names: Sequence[str]) -> tuple[str, ...]:
    """Return the namespaces of which nothing is known; none if there may be some that are not known."""
    fleet, advice = read.fleet, read.advice.found
    if fleet is None or not fleet.all_namespaces or fleet.cluster_namespaces is None:
        return ()
    known = {*fleet.cluster_namespaces, *(row.name for row in fleet.namespaces or ())}
    known |= {idle.holder.namespace for idle in fleet.idle or ()}
    advices = advice.advices if advice else ()
    return tuple(
        name for name in names if name not in known and not any(_concerns(each, (name,)) for each in advices)
    )


def unknown_words(fleet: Fleet, name: str) -> str:
    """Return the sentence about a namespace of which nothing is known."""
    return _unknown(name, [row.name for row in fleet.namespaces or ()])


def _unknown(name: str, holding: Sequence[str]) -> str:
    others = f"GPUs are held in {some_names(sorted(holding))}" if holding else "no namespace holds a GPU"
    return f"nothing is known of a namespace {printable(name)!r}; {others}"


async def inspection_of(prometheus: Prometheus, inspection: Inspection, names: Sequence[str]) -> Inspection:
    """Return nodes with the holders in these namespaces only; all without names.

    Raises PrometheusError, and UnknownNameError for a namespace of which nothing is known.
    """
    holders = [holder for _, gpus in inspection.nodes for gpu in gpus or () for holder in gpu.holders or ()]
    seen = {holder.row.holder.namespace for holder in holders}
    for name in names:
        if name not in seen:
            await _require_known(prometheus, inspection.at, name)
    return replace(
        inspection,
        only=tuple(names),
        nodes=tuple(
            (node, None if gpus is None else tuple(_gpu_of(gpu, names) for gpu in gpus))
            for node, gpus in inspection.nodes
        ),
    )


async def _require_known(prometheus: Prometheus, at: float, name: str) -> None:
    holding, recorded = [
        {sample.text("namespace") for sample in await prometheus.query(question, at)}
        for question in (_HOLDING, NAMESPACES_RECORDED)
    ]
    if name not in holding | recorded and not await prometheus.query(known_question(name), at):
        raise UnknownNameError(_unknown(name, sorted(holding)))


def _gpu_of(gpu: Gpu, names: Sequence[str]) -> Gpu:
    if not names or gpu.holders is None:
        return gpu
    holders = tuple(holder for holder in gpu.holders if holder.row.holder.namespace in names)
    return replace(gpu, holders=holders or (() if gpu.all_holders else None))


async def read_advice_of(prometheus: Prometheus, names: Sequence[str]) -> ClusterAdvice:
    """Return the advice of now on these namespaces; all without names. Raises what ``read_advice`` raises."""
    if len(names) <= 1:
        return await read_advice(prometheus, *names)
    whole = await read_advice(prometheus)
    for name in names:
        if not (advice_of(whole, (name,)).advices or whole.problems):
            await require_none_held(prometheus, whole.at, name)
    return advice_of(whole, names)
