"""Hardware."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import variables
from dashboards.board import board


def hardware() -> Dashboard:
    """Make the dashboard."""
    return board("gpuslice-hardware", "GPU slices / Hardware", "…", (variables.datasource(),), ())
