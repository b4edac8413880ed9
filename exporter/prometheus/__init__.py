"""Asking a Prometheus server, or what speaks its HTTP API."""

from exporter.prometheus.client import Prometheus, PrometheusError, Range, Sample

__all__ = ["Prometheus", "PrometheusError", "Range", "Sample"]
