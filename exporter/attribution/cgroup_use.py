"""Rows of containers with the meter and the limits of their cgroups (rule 14 of ``docs/join.md``)."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from exporter.attribution.holdings_index import Entitlement
from exporter.attribution.use import Use
from exporter.model import ContainerRef, ContainerRow
from exporter.model.memory_limits import Charge

CGROUP: Final = "cgroup"  # source of a figure that a cgroup meters


def with_charges(
    uses: Mapping[ContainerRef, Use],
    charges: Mapping[ContainerRef, Charge],
    metered: Collection[ContainerRef],
    *,
    most: int | None,
    seen: bool,
) -> Mapping[ContainerRef, Use]:
    """Return ``uses`` with the charged memory of containers that have no other figure.

    ``metered`` are the containers with a meter of their sharing system, which keep its gaps. ``most`` are the
    bytes that can be in use; if the rows would add up to more, the meters were read at different moments, and
    no charge is used. With ``seen``, processes are attributed: a container without any gets no row.
    """
    # A row of a pod as a whole has the memory of its containers.
    pods = {ref.pod_name for ref, use in uses.items() if not ref.container and use.memory is not None}
    result = dict(uses)
    for ref, charge in charges.items():
        use = uses.get(ref, Use())
        unknown = use.memory is None or (use.memory == 0 and bool(charge.used))
        new = ref not in uses and (seen or not charge.used)
        if unknown and charge.used is not None and not (new or ref in metered or ref.pod_name in pods):
            result[ref] = replace(use, memory=charge.used, memory_source=CGROUP)
    if most is not None and sum(use.memory or 0 for use in result.values()) > most:
        return uses
    return result


def limited(row: ContainerRow, has: Entitlement, charge: Charge | None, *, holds: bool) -> ContainerRow:
    """Return a row with what its cgroup meters, and the limits in force.

    With ``holds`` (it holds the device, and no other container contests that), a hard limit of its own is its
    entitlement, unless that is lower and enforced, by its own means. A limit for several containers together
    is not.
    """
    if charge is None:
        return row
    row = replace(
        row,
        limit_backend=charge.backend,
        memory_charged=charge.used,
        memory_guaranteed=charge.guaranteed,
        memory_limit=charge.limit,
        memory_limit_above=charge.above,
    )
    if charge.limit is None or charge.shared or not holds:
        return row
    if has.memory is not None and has.memory < charge.limit and has.isolation in ("hard", "soft"):
        return row
    return replace(row, memory_entitled=charge.limit, isolation="hard")
