"""Dashboards for Grafana 10 to 12, made with its typed builders.

``make dashboards`` writes them as JSON to ``json/``, for import into Grafana.
"""
