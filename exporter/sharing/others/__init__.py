"""Sharing systems that fill one file each."""
