"""Streams of events (SSE), for open pages and for programs."""
