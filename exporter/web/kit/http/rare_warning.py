"""Warnings about what clients can cause any number of times."""

import logging
import math
import time

_SECONDS = 60.0


class RareWarning:
    """Logs a warning at most once a minute."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._last = -math.inf

    def __call__(self, text: str, *values: object) -> None:
        """Log a warning, unless there was one in the last minute."""
        now = time.monotonic()
        if now - self._last >= _SECONDS:
            self._last = now
            self._log.warning(text, *values)
