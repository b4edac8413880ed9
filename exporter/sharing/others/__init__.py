"""Sharing systems of other makers, one file each."""
