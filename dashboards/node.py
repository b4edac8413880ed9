"""Dashboard Node: holders, entitlements and use of the GPUs of a node."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import variables
from dashboards.board import Folded, board
from dashboards.node_health import health
from dashboards.node_now import now
from dashboards.node_tables import gpus_and_slices, holders, jobs, mig_devices
from dashboards.node_use import use, use_of_gpu

MAY_BE_EMPTY = {
    "Batch jobs": "only with --job-mapping-dir, while a batch system runs jobs",
    "Unknown data": "there is a row only while something is unknown",
    "Driver calls that failed": "there is a row only once a call has failed",
    "Failed reads": "there is a row only once a read has failed",
    "XID errors": "there is a row only once a GPU has had one",
    "Devices": "only if GPUs are partitioned: MIG, or AMD partitions",
    "Free MIG capacity": "only if GPUs are in MIG mode",
}
"""Panels that may be empty on some nodes, by title, with the reason."""


def node() -> Dashboard:
    """Return the dashboard."""
    return board(
        "gpuslice-node",
        "GPU slices / Node",
        "Holders of a node's GPUs, their slices, entitlements and use.",
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
            ("Health of the exporter", health()),
            Folded("Batch system", jobs()),
        ),
    )
