"""Dashboards for Grafana 10 to 12, made with its typed builders.

``make dashboards`` writes them as JSON to ``json/``, where they are to be imported from.
"""
