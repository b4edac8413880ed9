"""A decoder under fuzz: how bytes become its input, and its promises for any input."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.together.fuzz.promises import BrokenPromiseError, require_sound

# A message about outside text goes into logs and pages: it must not repeat all of it.
LONGEST_MESSAGE = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One decoder, or several behind one function."""

    name: str
    # Modules that run: decoding the seeds must enter each of them.
    covers: tuple[str, ...]
    # Valid inputs.
    seeds: Callable[[], Sequence[bytes]]
    # Calls the product with an input, and may raise only ``refuses``.
    decode: Callable[[bytes], Any]
    refuses: tuple[type[Exception], ...] = ()
    # Raises BrokenPromiseError for a result that breaks a promise of this target.
    check: Callable[[Any], None] | None = None
    # Whether an input with this result got behind the first check of the decoder; by default, if the result
    # differs from that of an empty input.
    reached: Callable[[Any], bool] | None = None
    # Put into inputs.
    words: tuple[bytes, ...] = ()
    # Relative to that of other targets: a target with higher cost has fewer inputs.
    cost: int = 1


def examine(target: Target, content: bytes, *, twice: bool = True) -> None:
    """Check all promises of a decoder on one input; with ``twice``, decode again and compare.

    Raises BrokenPromiseError, or an error of the decoder that is not in ``refuses``.
    """
    try:
        result = target.decode(content)
    except target.refuses as error:
        _require_message(target, str(error), len(content))
        return
    require_sound(result)
    if target.check is not None:
        target.check(result)
    # Compared as text, NaN is equal to itself.
    if twice and result != (again := target.decode(content)) and repr(result) != repr(again):
        raise BrokenPromiseError(
            f"{target.name}: the same bytes are decoded to {result!r:.300} and {again!r:.300}"
        )


def _require_message(target: Target, message: str, length: int) -> None:
    # An escaped character may take four.
    if not message or len(message) > LONGEST_MESSAGE + 4 * length:
        raise BrokenPromiseError(f"{target.name}: refuses with a message of {len(message)} characters")
