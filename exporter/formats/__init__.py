"""A snapshot as JSON, CSV and text; advice as JSON, CSV and sentences.

Made for HTTP by ``web/render_cache.py``, which ``web/app.py`` asks for each form, and printed by
``commands/snapshot.py``.
"""
