"""A snapshot as JSON, CSV and text."""
