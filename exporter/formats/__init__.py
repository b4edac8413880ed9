"""A snapshot as JSON, CSV and text; advice as JSON, CSV and sentences."""
