"""What was: readings of the last hours, kept in memory or asked of a Prometheus."""

from exporter.history.past import NotKeptError, Past, PastReader, Track, Wanted

__all__ = ["NotKeptError", "Past", "PastReader", "Track", "Wanted"]
