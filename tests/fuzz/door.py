"""The first check of a decoder: whether an input gets behind it, to where there is something to be decoded.

Random bytes hardly ever have the magic number and the size of a file, or are JSON at all. A decoder that is
only given such bytes is fuzzed at its door.
"""

from collections.abc import Sequence
from typing import Any

from tests.fuzz.target import Target

_REFUSED = object()
# Whatever it is that comes up there, it is what is looked for.
_BROKEN = object()


class Door:
    """The door of one target, asked once for each input."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._nothing = self._answer(b"")
        self._known: dict[bytes, bool] = {}

    def opens(self, content: bytes) -> bool:
        """Tell whether an input is decoded to something."""
        if content not in self._known:
            self._known[content] = self._reaches(self._answer(content))
        return self._known[content]

    def seeds(self) -> Sequence[bytes]:
        """Return the seeds that get behind it, all where none does."""
        seeds = [seed for seed in dict.fromkeys(self._target.seeds()) if seed]
        return list(filter(self.opens, seeds)) or seeds

    def _reaches(self, told: Any) -> bool:
        if told is _REFUSED or told is _BROKEN:
            return told is _BROKEN
        if self._target.reached is not None:
            return self._target.reached(told)
        # Compared as text too, where what is not a number is equal to itself.
        return bool(told != self._nothing) and repr(told) != repr(self._nothing)

    def _answer(self, content: bytes) -> Any:
        try:
            return self._target.decode(content)
        except self._target.refuses:
            return _REFUSED
        except Exception:  # noqa: BLE001 - as said above
            return _BROKEN
