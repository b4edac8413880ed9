"""A call that does not return: the thread in it is left behind, and only what it asks about is left out."""

import threading
import time


class LeftBehindError(BaseException):
    """Ends a thread whose call has returned after another thread has gone on in its place.

    What this one knows is old, and no reader may take it for a failure of the device.
    """


class Hangs:
    """What is left out: ``calls`` has the name of the call that does not return by what it asks about."""

    def __init__(self) -> None:
        self.calls: dict[str, str] = {}
        self._lock = threading.Lock()

    def watch(self) -> "Watched":
        """Watch the calls of one more thread."""
        return Watched(self.calls, self._lock)


class Watched:
    """The call that one thread is in; ``leave`` is for another thread, all else for this one.

    Times are those of the monotonic clock.
    """

    def __init__(self, hanging: dict[str, str], lock: threading.Lock) -> None:
        self._hanging = hanging
        self._lock = lock
        self._pending: tuple[str, str, float] | None = None
        self._left = False

    def begin(self, place: str, name: str, now: float) -> None:
        """Note a call about ``place``; "" is the driver as a whole, which nobody can go on without."""
        self._pending = place, name, now

    def end(self) -> None:
        """Note that the call has returned; raises LeftBehindError if nobody waits for it any more."""
        with self._lock:
            pending, self._pending = self._pending, None
            if pending is not None and self._left:
                self._hanging.pop(pending[0], None)
                raise LeftBehindError

    def leave(self, patience: float) -> bool:
        """Leave the thread behind if its call takes longer than ``patience`` seconds; tell whether it is.

        Until that call returns, what it asks about is left out.
        """
        with self._lock:
            if self._pending is None:
                return False
            place, name, began = self._pending
            if not place or time.monotonic() - began < patience:
                return False
            self._left = True
            self._hanging[place] = name
        return True
