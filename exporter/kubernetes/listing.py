"""A list of objects taken apart while it comes in: all of a node's pods at once can take too much memory."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from exporter.kubernetes.errors import NoListError, TooLongError

# What etcd stores of one object is 1.5 MiB at most, which as JSON is somewhat more.
LONGEST_OBJECT: Final = 4 << 20
# What stands around the objects takes some hundred bytes.
LONGEST_FRAME: Final = 1 << 16
# Brackets around an object of the list: those of the list, and those of the whole.
_AROUND: Final = 2
_ITEMS: Final = re.compile(rb'"items"\s*:\s*\Z')
_OUTSIDE: Final = re.compile(rb'(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
_INSIDE: Final = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)


class Listing:
    """Takes a list in pieces of any size, and keeps of it no more than one object and what is around them.

    It looks at brackets and strings only: what else is wrong with an object costs that object.
    """

    def __init__(self) -> None:
        self._frame = bytearray()
        self._object = bytearray()
        self._rest = b""
        self._depth = 0
        self._in_string = False
        self._in_items = False

    def feed(self, piece: bytes) -> Iterator[bytes | None]:
        """Yield each object that ends in this piece, None for one that is too long; raises TooLongError."""
        text, place, self._rest = self._rest + piece, 0, b""
        while place < len(text):
            match = (_INSIDE if self._in_string else _OUTSIDE).match(text, place)
            end = match.end() if match is not None else place
            self._take(text[place:end])
            mark = text[end : end + 1]
            place = end + 1
            if mark == b'"':
                self._take(mark)
                self._in_string = not self._in_string
            elif mark == b"\\":
                # The character that it is about comes with the next piece.
                self._rest = mark
            elif mark in (b"{", b"["):
                self._open(mark)
            elif mark:
                yield from self._close(mark)

    def version(self) -> str:
        """Return the version of the list when all of it has come; raises NoListError where it is none."""
        try:
            frame = json.loads(self._frame)
        except (ValueError, RecursionError):
            frame = None
        if not isinstance(frame, dict) or not isinstance(frame.get("items") or [], list):
            raise NoListError("what the API server answers is no list of objects")
        return _version(frame.get("metadata"))

    def _open(self, mark: bytes) -> None:
        begins = mark == b"[" and self._depth == 1 and _ITEMS.search(self._frame) is not None
        self._depth += 1
        self._take(mark)
        self._in_items = self._in_items or begins

    def _close(self, mark: bytes) -> Iterator[bytes | None]:
        self._in_items = self._in_items and self._depth > _AROUND
        self._take(mark)
        self._depth -= 1
        if self._in_items and self._depth == _AROUND:
            yield bytes(self._object) if len(self._object) <= LONGEST_OBJECT else None
            self._object.clear()

    def _take(self, text: bytes) -> None:
        """Keep a part of an object or of what is around them; what is between objects says nothing."""
        if not self._in_items:
            self._frame += text
            if len(self._frame) > LONGEST_FRAME:
                raise TooLongError("what the API server answers is no list of objects: it has too much else")
        elif self._depth > _AROUND and len(self._object) <= LONGEST_OBJECT:
            self._object += text


def _version(metadata: Any) -> str:
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if not isinstance(version, str) or not version:
        raise NoListError("the API server's list of objects is without a version")
    return version
