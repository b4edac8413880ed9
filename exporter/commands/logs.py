"""The program's own messages, to standard error, as text or as one JSON object per line."""

import contextlib
import json
import logging
import os
import queue
import threading
import time

# So many messages wait for a reader who is slow; of more, the newest are lost.
MOST_WAITING = 1000
# How long the end of the program waits until they are read.
LAST_SECONDS = 1.0


class _Unblocking(logging.Handler):
    """Writes to standard error in a thread of its own.

    Whoever reads the log may stop reading, and the disk that it goes to may be full: neither may stop, or
    even slow, who has something to tell.
    """

    def __init__(self) -> None:
        super().__init__()
        self._waiting: queue.Queue[bytes] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Hand a message over; called by one thread at a time."""
        line = f"{self.format(record)}\n".encode(errors="backslashreplace")
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(line)
        if self._thread is None:
            thread = threading.Thread(target=self._write, name="log", daemon=True)
            # Where no thread can be started now, the next message tries again.
            with contextlib.suppress(RuntimeError):
                thread.start()
                self._thread = thread

    def flush(self) -> None:
        """Wait until what was told is written, but not for ever."""
        with self._waiting.all_tasks_done:
            self._waiting.all_tasks_done.wait_for(self._all_done, LAST_SECONDS)

    def _all_done(self) -> bool:
        return not self._waiting.unfinished_tasks

    def _write(self) -> None:
        while line := self._waiting.get():
            with contextlib.suppress(OSError):
                # Past Python's own buffer, whose lock would keep the program from ending.
                while line := line[os.write(2, line) :]:
                    pass
            self._waiting.task_done()


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
    handler = _Unblocking()
    text = _TextFormatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(_JsonFormatter() if form == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
