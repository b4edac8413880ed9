"""What a program prints, the files that it writes, and its log."""

import json
import logging
import os
import queue
import shutil
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from exporter.config import SettingsError

# Messages that wait for a slow reader; if there are more, the newest are dropped.
MOST_WAITING = 1000
# The shutdown waits this long until they are written.
LAST_SECONDS = 1.0


def print_text(text: str) -> None:
    """Print text at once; raises BrokenPipeError if the reader has gone, SettingsError for other errors."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # The rest of the text would fail again at the end of the program.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SettingsError(f"cannot write to standard output: {error.strerror}") from None


def terminal_width() -> int | None:
    """Return the width of the terminal in characters; None if text is not printed to one."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically; raises OSError.

    If the path exists and is not a regular file, such as a terminal, it is written directly.
    """
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8", newline="")
        return
    target = path.resolve()
    part = target.with_name(f".{target.name[:200]}.{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8", newline="")
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


class _Unblocking(logging.Handler):
    """Writes to standard error in a thread of its own.

    A reader that stops reading, or a full disk, must not block or slow down the program.
    """

    def __init__(self) -> None:
        super().__init__()
        self._waiting: queue.Queue[bytes] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a message; called by one thread at a time."""
        line = f"{self.format(record)}\n".encode(errors="backslashreplace")
        with suppress(queue.Full):
            self._waiting.put_nowait(line)
        if self._thread is None:
            thread = threading.Thread(target=self._write, name="log", daemon=True)
            # If no thread can be started now, the next message tries again.
            with suppress(RuntimeError):
                thread.start()
                self._thread = thread

    def flush(self) -> None:
        """Wait until all messages are written, for LAST_SECONDS at most."""
        with self._waiting.all_tasks_done:
            self._waiting.all_tasks_done.wait_for(lambda: not self._waiting.unfinished_tasks, LAST_SECONDS)

    def _write(self) -> None:
        while line := self._waiting.get():
            with suppress(OSError):
                # Not through Python's own buffer: its lock would block the shutdown.
                while line := line[os.write(2, line) :]:
                    pass
            self._waiting.task_done()


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Return one object: time (UTC), level, logger, message, and the traceback of an error."""
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
    """Keeps a message on one line: it may contain names given by tenants, with line feeds in them."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the method of the library
        """Return the message with unprintable characters escaped."""
        text = super().formatMessage(record)
        return "".join(
            char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
        )


def set_up_logging(level: str, form: str) -> None:
    """Log to standard error from ``level`` on, in place of any earlier configuration."""
    handler = _Unblocking()
    text = _TextFormatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(_JsonFormatter() if form == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # Read when gRPC starts. It writes lines of its own format, such as "Got goaway" when the kubelet ends.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
