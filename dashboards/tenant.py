"""Tenant."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import variables
from dashboards.board import board


def tenant() -> Dashboard:
    """Make the dashboard."""
    return board("gpuslice-tenant", "GPU slices / Tenant", "…", (variables.datasource(),), ())
