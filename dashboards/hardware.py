"""Hardware: what GPUs are, how they run, what holds them back, and what is broken."""

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
    "Fan": "most boards for servers have none",
}
"""Panels that are rightly empty on some nodes: why, by title."""


def hardware() -> Dashboard:
    """Make the dashboard."""
    return board(
        "gpuslice-hardware",
        "GPU slices / Hardware",
        "What the GPUs of a node are, how they run, what holds them back, and what is broken.",
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
