"""Asking a Prometheus server, or what speaks its HTTP API."""

from exporter.prometheus.answers import Range, Sample
from exporter.prometheus.client import Prometheus
from exporter.prometheus.errors import PrometheusError
from exporter.prometheus.history import PrometheusHistory
from exporter.prometheus.longer import LongerHistory

__all__ = ["LongerHistory", "Prometheus", "PrometheusError", "PrometheusHistory", "Range", "Sample"]
