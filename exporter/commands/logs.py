"""The program's own messages, to standard error, as text or as one JSON object per line."""

import json
import logging
import time


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Make one object: time (UTC), level, logger, message, and the traceback of an error."""
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry)


class _TextFormatter(logging.Formatter):
    """A message has one line: what is named in it may be called by a tenant, line feeds and all."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the method of the library
        """Write what is not printable as Python does."""
        text = super().formatMessage(record)
        return "".join(
            each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
        )


def set_up_logging(level: str, form: str) -> None:
    """Send everything from ``level`` on to standard error, replacing what was set up before."""
    handler = logging.StreamHandler()
    text = _TextFormatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(_JsonFormatter() if form == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
