"""Whether the work of a decoder grows faster than its input: valid inputs with a part repeated.

A regular expression that backtracks, or a list that is searched for each entry, is fast on a short input.
Sixteen times the input may take sixteen times as long, not 256 times: a ratio of CPU times in the same run.
"""

import contextlib
import time
import tracemalloc
from collections.abc import Callable, Iterator

from tests.together.fuzz.target import Target

FEW, TIMES = 1024, 16
# Between what is linear (TIMES) and what is quadratic (TIMES squared).
MOST_GROWTH = 4 * TIMES
# Less than this is the overhead of the call.
LEAST_SECONDS, LEAST_BYTES = 1e-4, 1 << 16
TRIES = 3
LENGTHS = (1, 4, 16, 64)
PLACES = 5
# Of targets with more seeds, this many, spread over all.
MOST_SEEDS = 8

Measure = Callable[[Callable[[], None]], float]


def superlinear(target: Target, measure: Measure | None = None) -> Iterator[tuple[str, bytes]]:
    """Yield ``time`` or ``memory`` if it grows too fast, with the input.

    ``measure`` returns the cost of a call, by default its CPU time.
    """
    seeds = target.seeds()
    for seed in seeds[:: 1 + len(seeds) // MOST_SEEDS]:
        # Of a short seed some parts are the same.
        for head, part, tail in dict.fromkeys(_parts(seed, target.words)):
            short, long = (head + part * (size // len(part)) + tail for size in (FEW, FEW * TIMES))
            if _grows(target, short, long, measure or _seconds, LEAST_SECONDS):
                yield "time", long
            if measure is None and _grows(target, short, long, _bytes, LEAST_BYTES):
                yield "memory", long


def _parts(seed: bytes, words: tuple[bytes, ...]) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield parts of an input with the rest before and after them, and words in its middle."""
    for number in range(PLACES):
        place = number * len(seed) // PLACES
        for length in LENGTHS:
            if part := seed[place : place + length]:
                yield seed[:place], part, seed[place + length :]
    for word in words:
        yield seed[: len(seed) // 2], word, seed[len(seed) // 2 :]


def _grows(target: Target, short: bytes, long: bytes, measure: Measure, least: float) -> bool:
    """Return whether the long input costs too much, several times in a row."""
    for _ in range(TRIES):
        before = max(measure(lambda: _decode(target, short)), least)
        if measure(lambda: _decode(target, long)) <= MOST_GROWTH * before:
            return False
    return True


def _decode(target: Target, content: bytes) -> None:
    with contextlib.suppress(Exception):
        target.decode(content)


def _seconds(call: Callable[[], None]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def _bytes(call: Callable[[], None]) -> float:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
