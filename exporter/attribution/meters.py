"""The figures of sharing systems that meter their containers themselves (rule 9 of ``docs/join.md``)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from exporter.attribution.use import Use
from exporter.model import ContainerRef, Holding, Meter


def with_meters(
    uses: Mapping[ContainerRef, Use], held: Mapping[ContainerRef, Sequence[Holding]], used: int | None
) -> dict[ContainerRef, Use]:
    """Return ``uses`` with the sums of metered containers replaced by their meter's figures.

    ``used``: bytes in use on the device, as the driver reports them.
    """
    room = None if used is None else used - sum(use.memory or 0 for use in uses.values())
    meters = {ref: meter for ref in held if (meter := _meter(held[ref])) is not None}
    pods = {(ref.namespace, ref.pod) for ref in meters}
    result = dict(uses)
    for ref, use in uses.items():
        if ref in meters:
            result[ref] = use if _is_left_over(use, meters[ref], room) else _metered(use, meters[ref])
        elif not ref.container and (ref.namespace, ref.pod) in pods:
            # Processes of a pod without a known container: some of them are those that were metered.
            result[ref] = Use(processes=use.processes)
    return result


def _meter(holdings: Sequence[Holding]) -> Meter | None:
    """Return the meter of a container: one for each device, however many resources hold it."""
    return next((holding.meter for holding in holdings if holding.meter is not None), None)


def _is_left_over(use: Use, meter: Meter, room: int | None) -> bool:
    """Return True if a meter counts memory of killed processes: it has no process, and the memory is free."""
    idle = use.processes == 0 and use.memory == 0
    return idle and room is not None and (meter.memory or 0) > max(room, 0)


def _metered(use: Use, meter: Meter) -> Use:
    memory, compute = meter.memory, meter.compute
    # The meter has no memory although the driver lists some for the container: its zeros were not observed.
    if meter.memory == 0 and use.memory_source == "process" and use.memory:
        memory, compute = None, compute or None
    use = replace(use, memory=memory, memory_source="none" if memory is None else meter.source)
    if meter.memory_only:
        return use
    return replace(use, compute=compute, compute_source="none" if compute is None else meter.source)
