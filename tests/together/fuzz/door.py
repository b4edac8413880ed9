"""The door of a decoder is its first check: random bytes hardly ever have a magic number, or are JSON."""

from collections.abc import Sequence
from typing import Any

from tests.together.fuzz.target import Target

_REFUSED = object()
# Another error: a finding.
_BROKEN = object()


class Door:
    """The door of one target, asked once for each input."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._nothing = self._answer(b"")
        self._known: dict[bytes, bool] = {}

    def opens(self, content: bytes) -> bool:
        """Return whether an input gets behind the door."""
        if content not in self._known:
            self._known[content] = self._reaches(self._answer(content))
        return self._known[content]

    def seeds(self) -> Sequence[bytes]:
        """Return the seeds that get behind it, or all if none does."""
        seeds = [seed for seed in dict.fromkeys(self._target.seeds()) if seed]
        return list(filter(self.opens, seeds)) or seeds

    def _reaches(self, result: Any) -> bool:
        if result is _REFUSED or result is _BROKEN:
            return result is _BROKEN
        if self._target.reached is not None:
            return self._target.reached(result)
        # Compared as text too: NaN is equal to itself.
        return bool(result != self._nothing) and repr(result) != repr(self._nothing)

    def _answer(self, content: bytes) -> Any:
        try:
            return self._target.decode(content)
        except self._target.refuses:
            return _REFUSED
        except Exception:  # noqa: BLE001 - any error is a finding
            return _BROKEN
