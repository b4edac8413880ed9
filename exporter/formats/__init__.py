"""A snapshot as JSON, CSV and text.

Made for HTTP by ``web/render_cache.py``, which ``web/routes.py`` and ``web/live/snapshot_stream.py``
read, and printed by ``commands/snapshot.py``.
"""
