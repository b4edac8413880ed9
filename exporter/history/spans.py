"""The spans of time that pages offer to look back over, by their names in URLs."""

import re
from typing import Final

from exporter.history.ring import span_text

OFFERED: Final = ("5m", "1h", "6h", "24h", "7d", "30d")
_SPAN: Final = re.compile(r"([1-9][0-9]{0,5})([smhd])")
_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def spans_of(kept: float, *, longer: bool) -> tuple[str, ...]:
    """List the spans that can be told where memory keeps ``kept`` seconds, the shortest first.

    The whole of what memory keeps is among them. ``longer``: a Prometheus tells of what was before.
    """
    offered = {name: seconds for name in OFFERED if (seconds := span_seconds(name)) is not None}
    offered = {name: seconds for name, seconds in offered.items() if longer or seconds <= kept}
    if kept not in offered.values():
        offered[span_text(kept // 1).replace(" ", "")] = kept
    return tuple(sorted(offered, key=offered.__getitem__))


def span_seconds(name: str) -> float | None:
    """Read a span such as ``5m`` or ``7d``, None where it is none."""
    found = _SPAN.fullmatch(name)
    return None if found is None else int(found[1]) * _SECONDS[found[2]]
