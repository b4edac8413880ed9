"""The log under bad conditions."""

import logging
import threading

import pytest

from exporter.output import set_up_logging


def test_a_message_is_kept_while_no_thread_can_be_started(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A pod may have all its threads in use for a moment: nothing that logs may fail then."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    set_up_logging("warning", "text")
    try:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            logging.getLogger("test").warning("first")
        logging.getLogger("test").warning("second")
        root.handlers[0].flush()
    finally:
        logging.basicConfig(level=level, handlers=handlers, force=True)
    lines = capfd.readouterr().err.splitlines()
    assert [line.split()[-1] for line in lines] == ["first", "second"]
