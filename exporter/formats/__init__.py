"""A snapshot as JSON, CSV and text; advice as JSON, CSV and sentences.

Made for HTTP by ``web/node/render_cache.py``, which ``web/node/app.py`` asks for each form and
``web/kit/live/snapshot_stream.py`` for JSON, and printed by ``commands/snapshot.py``.
"""
