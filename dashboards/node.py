"""Node: who holds which slice of which GPU, what each is entitled to, and what it uses."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import variables
from dashboards.board import Folded, board
from dashboards.node_health import health
from dashboards.node_now import now
from dashboards.node_tables import gpus_and_slices, holders, jobs, mig_devices
from dashboards.node_use import use, use_of_gpu

MAY_BE_EMPTY = {
    "Batch jobs": "only with --job-mapping-dir, while a batch system runs jobs",
    "What cannot be told": "there is a row only while something cannot be told",
    "Driver calls that failed": "there is a row only once a call has failed",
    "Passes that failed": "there is a row only once a pass has failed",
    "XID errors": "there is a row only once a GPU has had one",
    "Devices": "only where GPUs are cut: MIG, or partitions of AMD",
    "What can still be cut": "only where GPUs are in MIG mode",
}
"""Panels that are rightly empty on some nodes: why, by title."""


def node() -> Dashboard:
    """Make the dashboard."""
    return board(
        "gpuslice-node",
        "GPU slices / Node",
        "Who holds which slice of which GPU of a node, what each is entitled to, and what it uses.",
        (
            variables.datasource(),
            variables.cluster(),
            variables.node(),
            variables.instance(),
            variables.gpu(),
            *variables.tenants(),
        ),
        (
            ("Now", now()),
            ("Holders", holders()),
            ("GPUs and their slices", gpus_and_slices()),
            Folded("MIG devices and partitions", mig_devices()),
            ("Use by holder", use()),
            Folded("${uuid:text}", use_of_gpu(), repeat="uuid"),
            ("Health of what is told here", health()),
            Folded("Batch system", jobs()),
        ),
    )
