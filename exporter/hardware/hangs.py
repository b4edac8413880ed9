"""A call that does not return: the thread in it is left behind, and only what it asks about is left out."""

import time
from typing import Final

# By this name it is counted that something is left out.
HANGS: Final = "Hangs"


class LeftBehindError(BaseException):
    """Ends a thread whose call has returned after another thread has gone on in its place.

    What this one knows is old, and no reader may take it for a failure of the device.
    """


class Hangs:
    """What is left out: ``calls`` has the name of the call that does not return by what it asks about."""

    def __init__(self) -> None:
        self.calls: dict[str, str] = {}

    def watch(self) -> "Watched":
        """Watch the calls of one more thread."""
        return Watched(self.calls)


class Watched:
    """The call that one thread is in; ``leave`` is for another thread, all else for this one.

    Times are those of the monotonic clock.
    """

    def __init__(self, hanging: dict[str, str]) -> None:
        self._hanging = hanging
        self._number = 0
        # The call by its number. Whichever thread takes it out, in one step, decides if it has returned.
        self._pending: dict[int, tuple[str, str, float]] = {}
        self._left = ""
        self._returned = False

    def begin(self, place: str, name: str, now: float) -> None:
        """Note a call about ``place``; "" is the driver as a whole, which nobody can go on without."""
        self._number += 1
        self._pending[self._number] = place, name, now

    def end(self) -> None:
        """Note that the call has returned; raises LeftBehindError if nobody waits for it any more."""
        if self._pending.pop(self._number, None) is None:
            self._returned = True
            self._hanging.pop(self._left, None)
            raise LeftBehindError

    def leave(self, patience: float) -> bool:
        """Leave the thread behind if its call takes longer than ``patience`` seconds; tell whether it is.

        Until that call returns, what it asks about is left out.
        """
        number = self._number
        place, name, began = self._pending.get(number, ("", "", 0.0))
        if not place or time.monotonic() - began < patience:
            return False
        self._left = place
        if self._pending.pop(number, None) is None:
            return False
        self._hanging[place] = name
        # It may have returned just now, when there was nothing yet to take back.
        if self._returned:
            self._hanging.pop(place, None)
        return True
