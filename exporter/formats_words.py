"""How numbers and names are written for a person in a terminal. What is not known is a dash, never 0."""

from collections.abc import Callable, Iterable, Sequence

from exporter.metrics import Number

UNKNOWN = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"

_GIBIBYTE = 1024**3


def printable(text: str) -> str:
    """Show control characters, separators and lone surrogates as escapes: names never steer a terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def decimal(value: Number | None, digits: int) -> str:
    """Write a number with that many decimals; a little more than nothing is not written as 0."""
    if value is None:
        return UNKNOWN
    least = 10**-digits
    return f"<{least}" if 0 < value < least / 2 else f"{value:.{digits}f}"


def gibibytes(size: Number | None) -> str:
    """Write bytes as GiB, without the unit."""
    return decimal(None if size is None else size / _GIBIBYTE, 1)


def used_of(used: str, whole: str, unit: str) -> str:
    """Write a use beside what it is a part of."""
    return f"{used} / {whole} {unit}"


def measure(value: Number | None, unit: str, digits: int = 0) -> str:
    """Write a number with its unit."""
    return f"{decimal(value, digits)} {unit}"


def duration(seconds: float) -> str:
    """Write a time span with its two largest units."""
    minutes = int(seconds) // 60
    if minutes < 1:
        return f"{max(int(seconds), 0)} s"
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def short_names(resources: Sequence[str]) -> Sequence[str]:
    """Call resources by their last part, unless two of them have the same."""
    names = [resource.rpartition("/")[2] for resource in resources]
    return names if len(set(names)) == len(names) else resources


def plural(count: int | None, noun: str) -> str:
    """Write a count with its noun."""
    if count is None:
        return f"{UNKNOWN} {noun}s"
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def total(values: Iterable[Number | None], write: Callable[[Number], str]) -> str:
    """Write the sum of what is known: at least that (``≥``) where a part is not, a dash where none is."""
    parts = list(values)
    known = [value for value in parts if value is not None]
    if parts and not known:
        return UNKNOWN
    return ("" if len(known) == len(parts) else "≥ ") + write(sum(known))
