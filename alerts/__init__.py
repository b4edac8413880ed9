"""Recording rules and alerts for Prometheus, and the runbooks of the alerts.

``make rules`` writes what stands here to ``rules/`` (for Prometheus itself) and ``operator/`` (for the
Prometheus Operator). Every number that somebody may want to change stands in ``thresholds.toml``.
"""
