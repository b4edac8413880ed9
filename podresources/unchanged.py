"""What is made of the parts of an answer, kept for as long as the kubelet repeats them."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")
_Print = tuple[int, int]


class Unchanged(Generic[T]):
    """Makes a value of each payload, but not of one that was among those of the read before.

    Pods stay as they are for hours, and each of them is some kilobytes: they are told apart by length and
    Python's keyed hash of 64 bits, not kept. One read at a time.
    """

    def __init__(self, make: Callable[[bytes], T]) -> None:
        self._make = make
        self._made: dict[_Print, T] = {}

    def of(self, payloads: Iterable[bytes]) -> list[T]:
        """Give the value of each payload, in their order; what ``make`` raises goes through."""
        before, now = self._made, dict[_Print, T]()
        values = []
        for payload in payloads:
            key = len(payload), hash(payload)
            value = now[key] if key in now else before[key] if key in before else self._make(payload)
            now[key] = value
            values.append(value)
        self._made = now
        return values
