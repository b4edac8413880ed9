"""Rule 9: what a sharing system measured itself stands in the place of the sums over processes."""

from collections.abc import Mapping, Sequence

from exporter.attribution.use import Use
from exporter.model import ContainerRef, Holding, Meter
from exporter.model.records import replace


def with_meters(
    uses: Mapping[ContainerRef, Use], held: Mapping[ContainerRef, Sequence[Holding]], used: int | None
) -> dict[ContainerRef, Use]:
    """Give each metered holder the figures of its meter, and nobody else those same bytes.

    ``used`` are the bytes that the device itself says are used.
    """
    room = None if used is None else used - sum(use.memory or 0 for use in uses.values())
    meters = {ref: meter for ref in held if (meter := _meter(held[ref])) is not None}
    pods = {(ref.namespace, ref.pod) for ref in meters}
    found = dict(uses)
    for ref, use in uses.items():
        if ref in meters:
            found[ref] = use if _is_left_over(use, meters[ref], room) else _metered(use, meters[ref])
        elif not ref.container and (ref.namespace, ref.pod) in pods:
            # The processes of a pod that could not be told apart: some are those that were metered.
            found[ref] = Use(processes=use.processes)
    return found


def _meter(holdings: Sequence[Holding]) -> Meter | None:
    """Return the meter of a container: there is one on a device, by however many resources it is held."""
    return next((holding.meter for holding in holdings if holding.meter is not None), None)


def _is_left_over(use: Use, meter: Meter, room: int | None) -> bool:
    """Whether a meter still has what processes had that were killed: nobody is there, nor are the bytes."""
    nobody = use.processes == 0 and use.memory == 0
    return nobody and room is not None and (meter.memory or 0) > max(room, 0)


def _misses(use: Use, meter: Meter) -> bool:
    """Whether a meter has nothing of the memory that the driver lists for the processes of its container."""
    return meter.memory == 0 and use.memory_source == "process" and bool(use.memory)


def _metered(use: Use, meter: Meter) -> Use:
    memory, compute = meter.memory, meter.compute
    if _misses(use, meter):
        # Nor is a compute of 0 anything that was seen.
        memory, compute = None, compute or None
    use = replace(use, memory=memory, memory_source="none" if memory is None else meter.source)
    if meter.memory_only:
        return use
    return replace(use, compute=compute, compute_source="none" if compute is None else meter.source)
