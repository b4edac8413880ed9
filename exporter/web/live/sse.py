"""Server-sent events as bytes, plain and compressed, each made once for all who get them.

A compressed stream is a head and then one part per event. Each part is compressed by itself and ends at a
whole byte, so the same bytes fit into every client's stream, whatever it got before.
"""

import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

CONTENT_TYPE = "text/event-stream"
HEADERS: Mapping[str, str] = {
    "Content-Type": CONTENT_TYPE,
    "Cache-Control": "no-store",
    "Vary": "Accept-Encoding",
    # nginx keeps what it passes on until its buffer is full, unless it is told not to.
    "X-Accel-Buffering": "no",
}
# A magic number, deflate, no name, no time, no particular system.
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_RAW = -zlib.MAX_WBITS
# Levels above take longer than what they save is worth to a page that comes again with the next poll.
_LEVEL = 2


class Message(NamedTuple):
    """One or more events as they are sent, uncompressed and as a part of a compressed stream."""

    plain: bytes
    zipped: bytes


START = Message(b"", _GZIP_HEAD)
"""What a stream begins with."""


def event(name: str, data: Any, tag: str = "") -> Message:
    """Write an event with its data as JSON; ``tag`` is what a client says it has when it comes back."""
    lines = [f"id: {tag}"] if tag else []
    return text("\n".join([*lines, f"event: {name}", f"data: {dumps(data)}", "", ""]))


def text(lines: str) -> Message:
    """Make a message of what is written already."""
    plain = lines.encode()
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW)
    return Message(plain, packer.compress(plain) + packer.flush(zlib.Z_SYNC_FLUSH))


dumps: Callable[[Any], str] = json.JSONEncoder(separators=(",", ":")).encode
"""Write JSON on one line, as an event wants it."""
