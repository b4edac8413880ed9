"""Server-sent events as bytes, plain and compressed, each made once for all clients.

A compressed stream is a gzip header and then one part per event. Each part is compressed on its own and ends
at a whole byte, so the same bytes fit into the stream of every client.

Format: https://html.spec.whatwg.org/multipage/server-sent-events.html
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
    # Without this nginx buffers the stream.
    "X-Accel-Buffering": "no",
}
# Magic number, deflate, no flags, no time, no extra flags, unknown system: RFC 1952, 2.3.
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_RAW = -zlib.MAX_WBITS
# Higher levels cost more time than they save for events that come with every poll.
_LEVEL = 2


class Message(NamedTuple):
    """One or more events as they are sent."""

    plain: bytes
    zipped: bytes  # as a part of a compressed stream


START = Message(b"", _GZIP_HEAD)
"""The start of a stream."""


def event(name: str, data: Any, tag: str = "") -> Message:
    """Return an event with its data as JSON; ``tag`` is its id, which clients send when they reconnect."""
    lines = [f"id: {tag}"] if tag else []
    return text("\n".join([*lines, f"event: {name}", f"data: {dumps(data)}", "", ""]))


def text(lines: str) -> Message:
    """Return a message of lines in the format of server-sent events."""
    plain = lines.encode()
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW)
    return Message(plain, packer.compress(plain) + packer.flush(zlib.Z_SYNC_FLUSH))


dumps: Callable[[Any], str] = json.JSONEncoder(separators=(",", ":")).encode
"""Return JSON on one line, as events need it."""
