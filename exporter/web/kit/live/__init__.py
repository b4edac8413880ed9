"""Streams of events (SSE), for open pages."""
