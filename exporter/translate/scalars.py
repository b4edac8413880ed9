"""The characters of a scalar with their places in the file, and how a text is written into it."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from exporter.translate.edits import Edit

# Characters of a scalar: what each is, and where it is in the file.
_Character = tuple[str, int, int]

_BREAK = re.compile(r"\r\n|[\r\n\x85\u2028\u2029]")
_JSON = re.compile(r"\\u[0-9a-fA-F]{4}(?:\\u[dD][c-fC-F][0-9a-fA-F]{2})?|\\.|.", re.DOTALL)
_HEADER = re.compile(r"[|>][-+0-9]*[^\r\n]*(?:\r\n|[\r\n])?")
# Anchors and tags.
_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")
_SIMPLE_ESCAPES = {"0": "\0", "a": "\a", "b": "\b", "t": "\t", "\t": "\t", "n": "\n", "v": "\v", "f": "\f"}
_SIMPLE_ESCAPES |= {"r": "\r", "e": "\x1b", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029"}
_HEXADECIMAL = {"x": 2, "u": 4, "U": 8}


@dataclass(frozen=True, slots=True)
class Text:
    """A text with the place of each of its characters in the file."""

    value: str
    starts: list[int]
    ends: list[int]
    # The place of the first character, also of an empty text.
    begin: int
    write: Callable[[str], str]

    def placed(self, edit: Edit) -> Edit:
        """Return a change of this text as a change of the file."""
        start, end, new = edit
        # What is put after a word belongs to its line, and what is put before one does too.
        after_word = start == end and start > 0 and not self.value[start - 1].isspace()
        at = self.ends[start - 1] if after_word else self.place(start)
        return Edit(at, self.ends[end - 1] if start < end else at, self.write(new))

    def of(self, source: str) -> "Text":
        """Return the same of another file, which differs in no length and in no escape."""
        places = zip(self.value, self.starts, self.ends, strict=True)
        value = "".join(source[start] if end - start == 1 else char for char, start, end in places)
        return replace(self, value=value)

    def place(self, at: int) -> int:
        """Return the place of a character in the file."""
        return self.starts[at] if at < len(self.starts) else (self.ends[-1] if self.ends else self.begin)


def text_of(source: str, start: int, end: int, style: str, value: str) -> Text | None:
    """Return the characters of a scalar with this value; None if it is of a form that is not understood."""
    try:
        made = _texts(source, start, end, style)
        return next((text for text in made if text.value == value), None)
    except (ValueError, IndexError):
        return None


def _texts(source: str, start: int, end: int, style: str) -> Iterator[Text]:
    """Yield what a scalar may be; more than one if a block gives its indentation relative to its parent."""
    if style != "json" and (properties := _PROPERTIES.match(source, start, end)):
        start = properties.end()
    match style:
        case "json":
            yield _text(_json(source, start + 1, end - 1), start + 1, lambda new: json.dumps(new)[1:-1])
        case "'":
            yield _text(_folded(_single(source, start + 1, end - 1)), start + 1, _doubled)
        case '"':
            yield _text(_folded(_double(source, start + 1, end - 1)), start + 1, _escaped)
        case "":
            yield _text(_folded(_plain(source, start, end)), start, str)
        case _:
            for indent in range(_most_indent(source, start, end), -1, -1):
                yield _text(_block(source, start, end, indent), start, str)


def _text(characters: Iterator[_Character], begin: int, write: Callable[[str], str]) -> Text:
    # A character may be two in Python: none of what is changed is.
    found = list(characters)
    return Text(
        "".join(char for char, _, _ in found),
        [start for _, start, _ in found],
        [end for _, _, end in found],
        begin,
        write,
    )


def _doubled(new: str) -> str:
    return new.replace("'", "''")


def _escaped(new: str) -> str:
    return new.replace("\\", r"\\").replace('"', r"\"")


def _json(source: str, start: int, end: int) -> Iterator[_Character]:
    for found in _JSON.finditer(source, start, end):
        char = found[0] if found[0][0] != "\\" else json.loads(f'"{found[0]}"', strict=False)
        yield from ((one, found.start(), found.end()) for one in char)


def _plain(source: str, start: int, end: int) -> Iterator[_Character]:
    return ((source[at], at, at + 1) for at in range(start, end))


def _single(source: str, start: int, end: int) -> Iterator[_Character]:
    for found in re.compile("''|.", re.DOTALL).finditer(source, start, end):
        yield found[0][0], found.start(), found.end()


def _double(source: str, start: int, end: int) -> Iterator[_Character]:
    """Yield the characters of a double-quoted scalar; those of escapes are never folded."""
    at = start
    while at < end:
        if source[at] != "\\":
            yield source[at], at, at + 1
            at += 1
            continue
        letter = source[at + 1]
        if found := _BREAK.match(source, at + 1):
            # The line goes on without a space.
            after = re.compile(r"[ \t]*").match(source, found.end())
            at = after.end() if after else found.end()
            continue
        digits = _HEXADECIMAL.get(letter, 0)
        after_escape = at + 2 + digits
        char = chr(int(source[at + 2 : after_escape], 16)) if digits else _SIMPLE_ESCAPES.get(letter, letter)
        yield char, at, after_escape
        at = after_escape


def _folded(characters: Iterator[_Character]) -> Iterator[_Character]:
    """Yield characters with line breaks folded: one becomes a space, several become one less."""
    kept: list[_Character] = []
    breaks: list[_Character] = []
    for char, start, end in characters:
        literal = end - start == 1 or char == "'"
        if literal and char in "\r\n\x85\u2028\u2029":
            if not (char == "\n" and breaks and breaks[-1][0] == "\r" and breaks[-1][2] == start):
                breaks.append((char, start, end))
            else:
                breaks[-1] = (char, breaks[-1][1], end)
            while kept and kept[-1][0] in " \t" and kept[-1][2] - kept[-1][1] == 1:
                kept.pop()
        elif breaks and literal and char in " \t":
            continue
        else:
            if breaks:
                kept += [(" ", breaks[0][1], start)] if len(breaks) == 1 else _newlines(breaks[1:])
                breaks = []
            kept.append((char, start, end))
    if breaks:
        kept += [(" ", breaks[0][1], breaks[0][2])] if len(breaks) == 1 else _newlines(breaks[1:])
    yield from kept


def _newlines(breaks: list[_Character]) -> list[_Character]:
    return [("\n", start, end) for _, start, end in breaks]


def _most_indent(source: str, start: int, end: int) -> int:
    header = _HEADER.match(source, start, end)
    lines = _lines(source, header.end() if header else end, end)
    return next((len(line) - len(line.lstrip(" ")) for _, _, line in lines if line.strip(" ")), 0)


def _block(source: str, start: int, end: int, indent: int) -> Iterator[_Character]:
    """Yield the characters of a literal or folded block, from its header on."""
    header = _HEADER.match(source, start, end)
    if header is None:
        return
    found: list[_Character] = []
    for at, after, line in _lines(source, header.end(), end):
        found += [(char, at + place, at + place + 1) for place, char in enumerate(line) if place >= indent]
        found.append(("\n", at + len(line), after))
    chomped = _chomped(found, header[0])
    yield from chomped if header[0][0] == "|" else _unfolded(chomped)


def _lines(source: str, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    """Yield the start of each line, the start of the next, and its content."""
    at = start
    while at < end:
        found = _BREAK.search(source, at, end)
        stop, after = (found.start(), found.end()) if found else (end, end)
        yield at, after, source[at:stop]
        at = after


def _chomped(characters: list[_Character], header: str) -> list[_Character]:
    content = len(characters)
    while content and characters[content - 1][0] == "\n":
        content -= 1
    mark = header.partition("#")[0]
    keep = len(characters) if "+" in mark else content + (0 if "-" in mark else 1)
    return characters[:keep]


def _unfolded(characters: list[_Character]) -> Iterator[_Character]:
    """Yield the characters of a folded block: breaks between lines at the left margin become spaces."""
    at = 0
    body = len(characters)
    while body and characters[body - 1][0] == "\n":
        body -= 1
    while at < body:
        char, start, end = characters[at]
        if char != "\n":
            yield char, start, end
            at += 1
            continue
        after = at
        while after < body and characters[after][0] == "\n":
            after += 1
        # Those before the first line are no breaks between lines.
        kept = at == 0 or characters[after][0] in " \t" or _line_is_indented(characters, at)
        if kept:
            yield from characters[at:after]
        elif after - at == 1:
            yield " ", start, end
        else:
            yield from characters[at + 1 : after]
        at = after
    yield from characters[body:]


def _line_is_indented(characters: list[_Character], end: int) -> bool:
    at = end
    while at and characters[at - 1][0] != "\n":
        at -= 1
    return at < end and characters[at][0] in " \t"
