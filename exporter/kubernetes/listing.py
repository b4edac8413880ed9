"""A list of the Kubernetes API, parsed in pieces as it comes in.

Format: https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

# etcd stores at most 1.5 MiB for one object; as JSON it is somewhat larger.
LONGEST_OBJECT: Final = 4 << 20
# The text around the objects takes some hundred bytes.
LONGEST_FRAME: Final = 1 << 16
# Nesting of the objects: in the list, which is in the answer.
_DEPTH: Final = 2
_ITEMS: Final = re.compile(rb'"items"\s*:\s*\Z')
_OUTSIDE: Final = re.compile(rb'(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
_NESTED: Final = 24


def _nested() -> str:
    """Return a pattern of an object or a list with all that is in it, nested this deeply at most.

    It reads each character once: nothing in it can be matched in two ways.
    """
    text = r'[^"{}\[\]]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"{}\[\]]*+)*+'
    pattern = rf"[{{\[]{text}[}}\]]"
    for _ in range(_NESTED):
        pattern = rf"[{{\[]{text}(?:{pattern}{text})*+[}}\]]"
    return pattern


_WHOLE: Final = re.compile(_nested().encode(), re.DOTALL)
# A third of a pod, of which nothing is read; parsing it would take most of the time.
_MANAGED: Final = re.compile(rb'"managedFields":' + _WHOLE.pattern, re.DOTALL)
_INSIDE: Final = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)


class NoListError(Exception):
    """The server's answer is not a complete list of objects, or longer than that of any node can be."""


class ListParser:
    """Parses a list in pieces of any size; keeps one object and the text around the objects in memory.

    Only brackets and strings are parsed here: any other error in an object affects that object alone.
    """

    def __init__(self) -> None:
        self.rest = ""  # by which the next page is asked for, "" if this is the last one
        self._frame = bytearray()
        self._object = bytearray()
        self._rest = b""
        self._depth = 0
        self._in_string = False
        self._in_items = False

    def feed(self, piece: bytes) -> Iterator[bytes | None]:
        """Yield each object that ends in this piece, None for one that is too long.

        Raises NoListError for a text around the objects that cannot be that of a list.
        """
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
                # The escaped character comes with the next piece.
                self._rest = mark
            elif mark in (b"{", b"["):
                first = self._in_items and self._depth == _DEPTH
                whole = _WHOLE.match(text, end) if first else None
                if whole is None:
                    self._open(mark)
                else:
                    place = whole.end()
                    yield whole[0] if len(whole[0]) <= LONGEST_OBJECT else None
            elif mark:
                yield from self._close(mark)

    def version(self) -> str:
        """Return the version of a complete list; raises NoListError if it is not one."""
        try:
            frame = json.loads(self._frame)
        except (ValueError, RecursionError):
            frame = None
        if not isinstance(frame, dict) or not isinstance(frame.get("items") or [], list):
            raise NoListError("the API server's answer is not a list of objects")
        metadata = frame.get("metadata")
        version, self.rest = (_text_of(metadata, name) for name in ("resourceVersion", "continue"))
        if not version:
            raise NoListError("the API server's list of objects has no version")
        return version

    def _open(self, mark: bytes) -> None:
        begins = mark == b"[" and self._depth == 1 and _ITEMS.search(self._frame) is not None
        self._depth += 1
        self._take(mark)
        self._in_items = self._in_items or begins

    def _close(self, mark: bytes) -> Iterator[bytes | None]:
        self._in_items = self._in_items and self._depth > _DEPTH
        self._take(mark)
        self._depth -= 1
        if self._in_items and self._depth == _DEPTH:
            yield bytes(self._object) if len(self._object) <= LONGEST_OBJECT else None
            self._object.clear()

    def _take(self, text: bytes) -> None:
        """Keep a part of an object, or of the text around the objects; drop the text between them."""
        if not self._in_items:
            self._frame += text
            if len(self._frame) > LONGEST_FRAME:
                raise NoListError("the API server's answer is not a list of objects: it has too much else")
        elif self._depth > _DEPTH and len(self._object) <= LONGEST_OBJECT:
            self._object += text


def without_managed_fields(about: bytes) -> bytes:
    """Return an object as JSON without the fields that record who has changed it."""
    return _MANAGED.sub(b'"managedFields":null', about)


def _text_of(metadata: Any, name: str) -> str:
    text = metadata.get(name) if isinstance(metadata, dict) else None
    return text if isinstance(text, str) else ""
