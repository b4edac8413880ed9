"""The log of the program under bad conditions."""

import logging
import threading
from collections.abc import Iterator

import pytest

from exporter.commands.runtime import set_up_logging


@pytest.fixture
def log() -> Iterator[logging.Handler]:
    """Set the log up, and give what writes it."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    set_up_logging("warning", "text")
    yield root.handlers[0]
    logging.basicConfig(level=level, handlers=before, force=True)


def test_what_is_told_while_no_thread_can_be_started_is_written_later(
    log: logging.Handler, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Where a pod has as many threads as it may have, for a moment, nobody who tells something fails."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        logging.getLogger("told").warning("first")
    logging.getLogger("told").warning("second")
    log.flush()
    lines = capfd.readouterr().err.splitlines()
    assert [line.split()[-1] for line in lines] == ["first", "second"]
