"""Many ids that differ by a number, in one: ``0-{00..99}`` stands for ``0-00``, ``0-01`` and so on.

The numbers are as wide as the first one is written, or wider.
"""

import re
from collections.abc import Iterable, Iterator

from exporter.demo.codec import fail

MOST = 1 << 20
# As many as need fewer characters as a range.
FEWEST = 3
_NUMBERED = re.compile(r"((?:.*[^0-9])?)([0-9]{1,7})")
_RANGE = re.compile(r"\{([0-9]{1,7})\.\.([0-9]{1,7})\}")


def written_out(ids: Iterable[str], path: str) -> tuple[str, ...]:
    """Return the ids with all ranges written out; ``path`` is where they stand in the scenario."""
    return tuple(each for written in ids for each in _written_out(written, path))


def _written_out(written: str, path: str) -> Iterator[str]:
    match = _RANGE.search(written)
    if match is None:
        yield written
        return
    first, last = int(match[1]), int(match[2])
    if not first <= last < first + MOST:
        fail(path, f"{match[0]} is no range of at most {MOST} numbers")
    for number in range(first, last + 1):
        yield f"{written[: match.start()]}{number:0{len(match[1])}d}{written[match.end() :]}"


def folded(ids: Iterable[str]) -> tuple[str, ...]:
    """Put ranges in the place of ids that differ by a number; they stand for the same ids, in some order."""
    numbered = {each: _NUMBERED.fullmatch(each) for each in ids}
    runs: dict[str, list[list[str]]] = {}
    for match in sorted((match for match in numbered.values() if match), key=_place):
        of_text = runs.setdefault(match[1], [])
        if of_text and match[2] == _next(of_text[-1]):
            of_text[-1].append(match[2])
        else:
            of_text.append([match[2]])
    alone = (each for each, match in numbered.items() if match is None)
    return (
        *alone,
        *(each for text, of_text in runs.items() for run in of_text for each in _written(text, run)),
    )


def _place(match: re.Match[str]) -> tuple[str, int, int]:
    return match[1], int(match[2]), len(match[2])


def _next(run: list[str]) -> str:
    return f"{int(run[-1]) + 1:0{len(run[0])}d}"


def _written(text: str, run: list[str]) -> Iterator[str]:
    if len(run) >= FEWEST:
        yield f"{text}{{{run[0]}..{run[-1]}}}"
    else:
        yield from (f"{text}{number}" for number in run)
