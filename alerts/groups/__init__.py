"""The alerts, a module for each group."""
