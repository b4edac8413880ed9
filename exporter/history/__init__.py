"""History: readings of the last hours, from memory or from a Prometheus."""

from exporter.history.past import NotKeptError, Past, PastReader, Track, Wanted

__all__ = ["NotKeptError", "Past", "PastReader", "Track", "Wanted"]
