"""Readings of a GPU or MIG device: the tables, and how the driver's answers become values."""
