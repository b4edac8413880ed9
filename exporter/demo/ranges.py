"""Many ids that differ by a number, in one: ``0-{00..99}`` stands for ``0-00``, ``0-01`` and so on.

The numbers are as wide as the first one is written, or wider.
"""

import re
from collections.abc import Iterable, Iterator

from exporter.demo.codec import fail

MOST = 1 << 20
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
