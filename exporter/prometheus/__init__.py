"""A client of Prometheus, or of a server with its HTTP API."""

from exporter.prometheus.answers import PrometheusError, Range, Sample
from exporter.prometheus.client import Prometheus
from exporter.prometheus.combined_history import LongerHistory
from exporter.prometheus.past_queries import PrometheusHistory

__all__ = ["LongerHistory", "Prometheus", "PrometheusError", "PrometheusHistory", "Range", "Sample"]
