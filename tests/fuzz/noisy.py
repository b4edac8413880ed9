"""A driver's library whose answers an input spoils: bytes over what it wrote, or another code.

The functions are those of the fake driver, and the binding above them is the real one. One byte of the input
says what befalls one call: nothing, so many bytes over one of its out parameters, or an error. Behind the end
of the input all calls are well.
"""

import ctypes
from collections.abc import Callable
from typing import Any

# From these on, the byte of a call is something else than: leave it as it is.
SPOILED, REFUSED = 0x80, 0xE0
# An answer may be a table of kilobytes; of a longer one the beginning is spoiled.
MOST = 64
# Counts: the binding allocates as many records as a driver says that there are, of which a spoiled answer
# could say four thousand millions. How many there are at most is therefore not spoiled, but how they are.
COUNT = ctypes.c_uint


class Tape:
    """The bytes of an input, taken from the beginning on."""

    def __init__(self, content: bytes = b"") -> None:
        self._content, self._place = content, 0

    def take(self, count: int) -> bytes:
        """Take so many bytes, fewer at the end."""
        found = self._content[self._place : self._place + count]
        self._place += len(found)
        return found


class Noisy:
    """The functions of a library, spoiled by ``tape``."""

    def __init__(self, library: Any) -> None:
        self.tape = Tape()
        self.nvmlErrorString = library.nvmlErrorString
        for name, function in vars(library).items():
            if name.startswith("nvml") and name != "nvmlErrorString":
                setattr(self, name, self._spoiled(function))

    def _spoiled(self, function: Callable[..., int]) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            code = function(*arguments)
            mark = (self.tape.take(1) or b"\0")[0]
            if mark >= REFUSED:
                return mark - REFUSED
            if mark >= SPOILED:
                outs = [out for out in map(_memory, arguments) if out is not None]
                if outs:
                    out = outs[mark % len(outs)]
                    self._write(out)
            return code

        return call

    def _write(self, out: Any) -> None:
        offset = int.from_bytes(self.tape.take(1), "little")
        length = int.from_bytes(self.tape.take(1), "little") % MOST
        size = ctypes.sizeof(out)
        found = self.tape.take(min(length, max(0, size - offset)))
        ctypes.memmove(ctypes.addressof(out) + min(offset, size), found, len(found))


def _memory(argument: Any) -> Any:
    """Return what an out parameter points to, None for an input, a handle or a count of records."""
    found = getattr(argument, "_obj", argument)
    if isinstance(found, ctypes.Array | ctypes.Structure) or (
        isinstance(found, ctypes._SimpleCData) and found is not argument and not isinstance(found, COUNT)
    ):
        return found
    return None
