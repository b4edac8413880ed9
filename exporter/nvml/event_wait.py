"""A thread that waits on an event set of the driver, and does nothing else there."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pynvml

from exporter.nvml.driver.library import error_name

log = logging.getLogger(__name__)
# So long may one wait take, and so long is waited for the thread when it has been told to end.
SLICE_MILLISECONDS = 100
END_SECONDS = 1.0
# A driver may end a wait early and hand out events without end; the sweeps need their turn.
BURST = 100
REST_SECONDS = 0.01
TIMEOUT = 10
# A wait that takes so long does not come back with what occurs meanwhile.
HUNG_SECONDS = 5.0


class EventWait:
    """Waits on ``event_set`` until it is told to end or a wait fails.

    After each event, and after each wait without one, ``turn`` gets the event or None. ``failure`` is NVML's
    name of the error that ended it, with its ``code``; "" while there is none.
    """

    def __init__(self, event_set: Any, turn: Callable[[Any], None]) -> None:
        self.event_set = event_set
        self.failure = ""
        self.code: int | None = None
        self._turn = turn
        self._told = threading.Event()
        self._asked = time.monotonic()
        # As a daemon it cannot keep the program from ending, should the driver not let it return.
        self._thread = threading.Thread(target=self._run, name="nvml-events", daemon=True)

    @property
    def waits(self) -> bool:
        """Whether events that occur now are going to be noticed."""
        hangs = time.monotonic() - self._asked > HUNG_SECONDS
        return self._thread.is_alive() and not (hangs or self.failure or self._told.is_set())

    def begin(self) -> None:
        """Begin to wait, unless it has begun."""
        if self._thread.ident is not None:
            return
        try:
            self._thread.start()
        except RuntimeError:
            # No more threads can be started now; the next sweep tries again.
            self.failure = "RuntimeError"

    def end(self) -> bool:
        """End the wait; False if the thread does not come out of the driver."""
        if self._thread.is_alive() and not self._told.is_set():
            self._told.set()
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
                self._turn(None)

    def _wait(self) -> None:
        taken = 0
        while not self._told.is_set():
            event = self._next()
            self._turn(event)
            taken += 1
            if event is None or taken % BURST == 0:
                self._told.wait(REST_SECONDS)

    def _next(self) -> Any:
        self._asked = time.monotonic()
        try:
            return pynvml.nvmlEventSetWait_v2(self.event_set, SLICE_MILLISECONDS)
        except pynvml.NVMLError as error:
            if error.value != TIMEOUT:
                raise
        return None
