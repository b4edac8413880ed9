"""A thread that waits on an event set of the driver."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pynvml

from exporter.nvml.driver.library import error_name

log = logging.getLogger(__name__)
# Timeout of one call that waits, and time to end the thread. An event ends the call at once; waking ten times
# a second cost 0.26 % of a core, twice a second a fifth of that.
SLICE_MILLISECONDS = 500
END_SECONDS = 1.0
# Pause after so many events: a driver may return events without end, and the sweeps need the interpreter.
BURST = 100
REST_SECONDS = 0.01
TIMEOUT = 10
# A longer wait is taken to hang: it does not return with the events that occur meanwhile.
HUNG_SECONDS = 5.0


class EventWait:
    """Waits on ``event_set`` until it is ended or a wait fails, and calls ``handle``.

    ``handle`` receives each event, None after a wait without one, and None after a failure.
    """

    def __init__(self, event_set: Any, handle: Callable[[Any], None]) -> None:
        self.event_set = event_set
        # Name and code of the error that ended it; "" and None while there is none.
        self.failure = ""
        self.code: int | None = None
        self._handle = handle
        self._ended = threading.Event()
        # Start of the current wait, on the monotonic clock.
        self._since = time.monotonic()
        # A daemon, so that a wait that hangs does not keep the program from exiting.
        self._thread = threading.Thread(target=self._run, name="nvml-events", daemon=True)

    @property
    def waits(self) -> bool:
        """Whether events that occur now will be received."""
        hangs = time.monotonic() - self._since > HUNG_SECONDS
        return self._thread.is_alive() and not (hangs or self.failure or self._ended.is_set())

    def begin(self) -> None:
        """Start the thread, unless it has been started; ``failure`` is set if it cannot be."""
        if self._thread.ident is not None:
            return
        try:
            self._thread.start()
        except RuntimeError:
            # No more threads can be started now; the next sweep tries again.
            self.failure = "RuntimeError"

    def end(self) -> bool:
        """End the wait; return False if the thread does not return from the driver."""
        if self._thread.is_alive() and not self._ended.is_set():
            self._ended.set()
            self._thread.join(END_SECONDS)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._wait()
        except pynvml.NVMLError as error:
            self.code, self.failure = error.value, error_name(error)
        except Exception as error:
            log.exception("waiting for GPU events failed; retrying at the next sweep")
            self.failure = type(error).__name__
        finally:
            if self.failure:
                self._handle(None)

    def _wait(self) -> None:
        events = 0
        while not self._ended.is_set():
            event = self._next()
            self._handle(event)
            events += 1
            if event is None or events % BURST == 0:
                self._ended.wait(REST_SECONDS)

    def _next(self) -> Any:
        """Return the next event, or None after a timeout. Raises NVMLError."""
        self._since = time.monotonic()
        try:
            return pynvml.nvmlEventSetWait_v2(self.event_set, SLICE_MILLISECONDS)
        except pynvml.NVMLError as error:
            if error.value != TIMEOUT:
                raise
        return None
