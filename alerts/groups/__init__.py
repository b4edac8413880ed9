"""The alerts, a module for each subject; ``alerts/grouping.py`` puts them into the groups of the rules.

``hardware`` (conditions, missing GPUs, released drivers), ``hardware_errors`` (XIDs, ECC, links), ``sharing``
(holders and their shares), ``capacity`` (slices and MIG), ``exporter`` (is it there, is it scraped),
``exporter_data`` (what it cannot read).
"""
