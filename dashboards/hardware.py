"""Dashboard Hardware: identity, load, clock limits and faults of GPUs."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import variables
from dashboards.board import Folded, board
from dashboards.hardware_errors import errors
from dashboards.hardware_heat import clocks, heat, power
from dashboards.hardware_identity import cuts, identity, virtual
from dashboards.hardware_links import links, topology
from dashboards.hardware_load import engines, load, memory, profiling
from dashboards.hardware_now import now

MAY_BE_EMPTY = {
    "XID errors": "there is a row only once a GPU has had one",
    "Other events": "there is a row only once a GPU has had one",
    "Fan": "most server boards have none",
}
"""Panels that may be empty on some nodes, by title, with the reason."""


def hardware() -> Dashboard:
    """Return the dashboard."""
    return board(
        "gpuslice-hardware",
        "GPU slices / Hardware",
        "Identity, load, clock limits and faults of the GPUs of a node.",
        (
            variables.datasource(),
            variables.cluster(),
            variables.node(),
            variables.instance(),
            variables.gpu(),
        ),
        (
            ("Now", now()),
            ("Load", load()),
            ("Clocks", clocks()),
            ("Power", power()),
            ("Heat", heat()),
            ("Errors and repairs", errors()),
            ("Links", links()),
            Folded("Profiling meters", profiling()),
            Folded("Memory", memory()),
            Folded("Engines for video and images", engines()),
            Folded("Topology", topology()),
            Folded("MIG devices and partitions", cuts()),
            Folded("vGPUs", virtual()),
            Folded("Identity and settings", identity()),
        ),
    )
