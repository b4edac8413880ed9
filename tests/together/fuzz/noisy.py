"""A driver's library whose answers an input spoils: with other bytes, or another code.

The functions are those of the fake driver, and the binding above them is the real one. Each byte of the input
is for one call: nothing, bytes over one of its out parameters, or an error. After the end of the input all
calls succeed.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

# A call is left alone below SPOILED, spoiled from there on, and refused from REFUSED on.
SPOILED, REFUSED = 0x80, 0xE0
# The code for the last byte: NVML_ERROR_UNKNOWN.
UNKNOWN = 999
# An answer may be a table of kilobytes; of a longer one a part is spoiled.
MOST = 64
# In an answer that is longer than this, two bytes say where the part begins.
SHORT = 256


class Tape:
    """The bytes of an input, taken from the beginning on."""

    def __init__(self, content: bytes = b"") -> None:
        self._content, self._place = content, 0

    def take(self, count: int) -> bytes:
        """Return the next bytes, fewer at the end."""
        taken = self._content[self._place : self._place + count]
        self._place += len(taken)
        return taken

    def number(self, count: int = 1) -> int:
        """Return the next number of ``count`` bytes, 0 at the end."""
        return int.from_bytes(self.take(count), "little") if self._place < len(self._content) else 0


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
            mark = self.tape.number()
            if mark < SPOILED:
                return code
            if mark >= REFUSED:
                return UNKNOWN if mark == 0xFF else mark - REFUSED
            self._spoil(arguments, mark)
            return code

        return call

    def _spoil(self, arguments: Sequence[Any], mark: int) -> None:
        outs = [place for place, argument in enumerate(arguments) if _is_out(argument)]
        if not outs:
            return
        place = outs[mark % len(outs)]
        memory = _memory(arguments[place])
        if isinstance(memory, ctypes.c_uint) and _is_count(arguments, place):
            # The binding makes as many records as a driver says that there are, which can be four thousand
            # millions: of a wrong number, one byte is as good as four.
            memory.value = self.tape.number()
        else:
            self._write(memory)

    def _write(self, out: Any) -> None:
        size = ctypes.sizeof(out)
        offset = self.tape.number(1 if size <= SHORT else 2) % (size or 1)
        length = self.tape.number() % MOST
        found = self.tape.take(min(length, size - offset))
        ctypes.memmove(ctypes.addressof(out) + offset, found, len(found))


def _memory(argument: Any) -> Any:
    """Return what is behind a reference, else the argument itself."""
    return getattr(argument, "_obj", argument)


def _is_out(argument: Any) -> bool:
    """Whether something is written there; an input or a handle is not."""
    memory = _memory(argument)
    return isinstance(memory, ctypes.Array | ctypes.Structure) or (
        isinstance(memory, ctypes._SimpleCData) and memory is not argument
    )


def _is_count(arguments: Sequence[Any], place: int) -> bool:
    """Whether a number counts records: they, or None in the place of them, stand beside it."""
    others = (_memory(each) for each in (*arguments[:place], *arguments[place + 1 :]))
    return any(each is None or isinstance(each, ctypes.Array) for each in others)
