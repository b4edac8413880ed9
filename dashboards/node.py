"""Node."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import variables
from dashboards.board import board


def node() -> Dashboard:
    """Make the dashboard."""
    return board("gpuslice-node", "GPU slices / Node", "…", (variables.datasource(),), ())
