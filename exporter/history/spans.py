"""Ranges of time that a page offers, such as ``6h``: their names and lengths."""

import re
from typing import Final

_OFFERED: Final = {"5m": 300.0, "1h": 3600.0, "6h": 21600.0, "24h": 86400.0, "7d": 604800.0}
_SPAN: Final = re.compile(r"([1-9][0-9]{0,5})([smhd])")
_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def spans_of(kept: float) -> tuple[str, ...]:
    """Return the ranges to offer if memory keeps ``kept`` seconds, the shortest first, all of it last."""
    names = [name for name, seconds in _OFFERED.items() if seconds <= kept]
    if kept not in _OFFERED.values():
        names.append(span_text(kept // 1).replace(" ", ""))
    return tuple(names)


def span_seconds(name: str) -> float | None:
    """Return the seconds of a range such as ``5m`` or ``7d``, None if it is not valid."""
    match = _SPAN.fullmatch(name)
    return None if match is None else int(match[1]) * _SECONDS[match[2]]


def span_text(seconds: float) -> str:
    """Return seconds as text in the largest unit that divides them: 1 h, 90 m, 45 s."""
    for unit, length in (("h", 3600), ("m", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g} {unit}"
    return f"{seconds:g} s"
