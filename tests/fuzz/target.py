"""A decoder under fuzz: how bytes become its input, and what it promises of whatever comes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.fuzz.promises import BrokenPromiseError, require_sound

# A message about outside text goes into logs and pages: it names the thing, and does not repeat all of it.
LONGEST_MESSAGE = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One decoder, or one family of them behind one door.

    ``covers`` names the modules whose decoding it runs: running ``seeds`` must enter each of them. ``decode``
    calls the product with what it makes of the bytes, and may raise ``refuses`` only. ``check`` is what holds
    of its answers beyond what holds of all; it raises BrokenPromiseError. ``words`` are put into inputs.
    ``reached`` tells of an answer that the input got behind the first check of the decoder; by default it
    is one that is not refused, and other than that to an empty input. ``cost`` is how many times as much as
    another's an input takes, as to a whole node or device: where tests run often, such a target has fewer.
    """

    name: str
    covers: tuple[str, ...]
    seeds: Callable[[], Sequence[bytes]]
    decode: Callable[[bytes], Any]
    refuses: tuple[type[Exception], ...] = ()
    check: Callable[[Any], None] | None = None
    reached: Callable[[Any], bool] | None = None
    words: tuple[bytes, ...] = ()
    cost: int = 1


def examine(target: Target, content: bytes, *, twice: bool = True) -> None:
    """Hold a decoder to all of its promises on one input.

    Raises BrokenPromiseError, or whatever the decoder raised that it does not promise to raise. ``twice``:
    decode again, and compare.
    """
    try:
        told = target.decode(content)
    except target.refuses as error:
        _require_message(target, str(error), len(content))
        return
    require_sound(told)
    if target.check is not None:
        target.check(told)
    # Compared as text, where what is not a number is equal to itself; dictionaries keep their order.
    if twice and told != (again := target.decode(content)) and repr(told) != repr(again):
        raise BrokenPromiseError(
            f"{target.name}: the same bytes are decoded to {told!r:.300} and {again!r:.300}"
        )


def _require_message(target: Target, message: str, length: int) -> None:
    # Escaped, one character of what is repeated may take four.
    if not message or len(message) > LONGEST_MESSAGE + 4 * length:
        raise BrokenPromiseError(f"{target.name}: refuses with a message of {len(message)} characters")
