"""Recording rules and alerts for Prometheus, and the runbooks of the alerts.

``make rules`` writes them to ``rules/`` (for Prometheus itself) and ``operator/`` (for the Prometheus
Operator). All thresholds are in ``thresholds.toml``.
"""
