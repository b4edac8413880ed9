"""A snapshot as JSON, CSV and text; advice as JSON, CSV and sentences.

Made for HTTP by ``web/node/document_cache.py``, and printed by ``commands/snapshot.py``.
"""
