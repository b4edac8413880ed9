"""Errors that are logged or not caught during a fault."""

import contextlib
import logging
import threading
from collections.abc import Iterator


class _Errors(logging.Handler):
    """Keeps records with a traceback or of level error: no fault outside should lead to one."""

    def __init__(self, crashes: list[str]) -> None:
        super().__init__(logging.DEBUG)
        self._crashes = crashes

    def emit(self, record: logging.LogRecord) -> None:
        # The fake server logs this of a client that has left.
        left = record.name.startswith("grpc") and "by servicer" in record.getMessage()
        if not left and (record.levelno >= logging.ERROR or record.exc_info):
            self._crashes.append(
                f"{record.name}: {record.getMessage()} {record.exc_info and record.exc_info[1]!r}"
            )


@contextlib.contextmanager
def crashes(found: list[str]) -> Iterator[None]:
    """Note errors that are logged, and exceptions that end a thread."""
    handler, before = _Errors(found), threading.excepthook
    logging.getLogger().addHandler(handler)
    threading.excepthook = lambda args: found.append(f"thread {args.thread}: {args.exc_value!r}")
    try:
        yield
    finally:
        threading.excepthook = before
        logging.getLogger().removeHandler(handler)
