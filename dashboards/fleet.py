"""Fleet: what the clusters have, who holds it, and what lies idle."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import variables
from dashboards.board import board
from dashboards.panels import Query, bars, number, timeline
from dashboards.promql import CLUSTER, FALLBACK, at_nodes, either
from dashboards.tables import Column, listing


def fleet() -> Dashboard:
    """Make the dashboard."""
    return board(
        "gpuslice-fleet",
        "GPU slices / Fleet",
        "What the clusters have, who holds it, what is used of it, and what lies idle.",
        (variables.datasource(), variables.cluster(), variables.fallback()),
        (
            (
                "Now",
                (
                    number(
                        "GPUs",
                        "none",
                        "GPUs whose driver is asked.",
                        Query(
                            either(
                                f"sum(cluster:gpuslice_gpus:count{{{CLUSTER}}})",
                                f"count(gpuslice_gpu_up{{{CLUSTER}, {FALLBACK}}})",
                            )
                        ),
                    ),
                    timeline("x", "none", "d", Query(f"sum(gpuslice_gpu_up{{{CLUSTER}}})")),
                    bars("y", "none", "d", Query(f"sum(gpuslice_gpu_up{{{CLUSTER}}})")),
                    listing(
                        "t",
                        "d",
                        [
                            Column(name="node", title="Node"),
                            Column(name="Value #A", title="GPUs", unit="none"),
                        ],
                        Query(f"sum by (node) ({at_nodes('gpuslice_gpu_up')})"),
                        sort="GPUs",
                    ),
                ),
            ),
        ),
    )
