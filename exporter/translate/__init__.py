"""Translates rules, dashboards and triggers from DCGM's old names to its new ones, or to ours.

Pure: text in, text out. Only the names and what the new units demand are changed; all else stays as it is.
"""
