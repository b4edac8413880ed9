"""Readings of a GPU or MIG device: the tables, and the decoders of the driver's answers."""
