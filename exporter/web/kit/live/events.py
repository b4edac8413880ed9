"""The events of an open page, in the format of server-sent events.

- ``hello`` first: ``{"now": Unix time of the server, "version": version of the program and its scripts}``. A
  page of another version should be reloaded.
- ``change`` with each snapshot; its id is the name of the snapshot: ``{"now": Unix time of the server,
  "timestamp": Unix time of the poll, "title": …, "pieces": {id: HTML of the element with that id}, "lists":
  {id: [ids of its children, in order]}}``, with the changed parts only. A client sends the name of its
  snapshot as ``?since=`` or ``Last-Event-ID``; unless that is the previous one, it gets all parts.
- ``beat`` if nothing has changed for a while.
- ``gone``, then the end of the stream, if the subject of the page no longer exists.

A compressed stream is a gzip header and then one part per event. Each part is compressed on its own and ends
at a whole byte, so the same bytes fit into the stream of every client.

Format: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import json
import time
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from exporter.web.kit.html import Drawing, escape_controls
from exporter.web.kit.http.assets import version

# Magic number, deflate, no flags, no time, no extra flags, unknown system: RFC 1952, 2.3.
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_RAW = -zlib.MAX_WBITS
# Higher levels cost more time than they save for events that come with every poll.
_LEVEL = 2
# JSON on one line, as events need it.
_dumps = json.JSONEncoder(separators=(",", ":")).encode


class Message(NamedTuple):
    """An event as it is sent."""

    plain: bytes
    zipped: bytes  # as a part of a compressed stream


def event(name: str, data: Any, tag: str = "") -> Message:
    """Return an event with its data as JSON; ``tag`` is its id, which clients send when they reconnect."""
    lines = [f"id: {tag}"] if tag else []
    plain = "\n".join([*lines, f"event: {name}", f"data: {_dumps(data)}", "", ""]).encode()
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW)
    return Message(plain, packer.compress(plain) + packer.flush(zlib.Z_SYNC_FLUSH))


START = Message(b"", _GZIP_HEAD)
"""The start of a stream."""
# An event, not a comment: scripts do not see comments, and silence means a broken stream.
BEAT = event("beat", {})
GONE = event("gone", {})


class Drawn(NamedTuple):
    """A page as drawn from a snapshot."""

    tag: str  # name of the snapshot
    timestamp: float  # Unix time of the snapshot
    drawing: Drawing


def hello() -> Message:
    """Return the first event of a stream."""
    return event("hello", {"now": round(time.time(), 3), "version": version()})


def change(old: Drawing | None, new: Drawn) -> Message:
    """Return the event with the pieces that are not in the old drawing, all of them if there is none.

    Children that are in no list are removed from the page.
    """
    drawing = new.drawing
    data = {
        "now": round(time.time(), 3),
        "timestamp": new.timestamp,
        "title": escape_controls(drawing.title),
        "pieces": _news(old.pieces if old else {}, drawing.pieces),
        "lists": _news(old.lists if old else {}, drawing.lists),
    }
    return event("change", data, new.tag)


def _news(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in new.items() if old.get(name) != value}
