"""What holds for every file and every expression that is translated, whatever is in it."""

import re
from collections.abc import Sequence

from exporter.translate.documents import UnreadableFileError, read, scalars
from exporter.translate.edits import changed
from exporter.translate.expression import translate_expression
from exporter.translate.files import TranslatedFile, records, translate_file
from exporter.translate.names import TARGETS, Names
from exporter.translate.tokens import tokens
from exporter.translate.tree import tree

NAMES = TARGETS["dcgm-4.9"]
_WORD = re.compile(r"(?<![\w:])DCGM_\w+(?![\w:])")


def names_of(text: str) -> Names:
    """Return the names that a file of its own is translated with."""
    found = records([text], NAMES)
    return NAMES.keep(found).with_records(found)


def held_file(text: str) -> TranslatedFile:
    """Translate a file and assert what holds for all; raises UnreadableFileError."""
    names = names_of(text)
    done = translate_file(text, names)
    assert between(done.text) == between(text) or done.text == text, "more than scalars has changed"
    again = translate_file(done.text, names)
    assert (again.text, again.translated) == (done.text, 0), "a second translation changes it"
    said = " ".join(f"{each.reason} {each.text}" for each in done.findings) + _reported(text, done)
    left = {name for name in _WORD.findall(done.text) if name in names.series}
    assert " more" in said or all(name in said for name in left), f"left without a word: {left}"
    assert all(0 <= each.place <= len(text) for each in done.findings)
    assert done.translated or done.text == text or done.findings or "Hostname" in text
    return done


def _reported(text: str, done: TranslatedFile) -> str:
    """Return the sources of the scalars that are reported as a whole."""
    content = text.removeprefix("\ufeff")
    places = {each.place - len(text) + len(content) for each in done.findings}
    found = [each for root in read(content) for each in scalars(root)] if done.findings else []
    return "".join(content[each.start : each.end] for each in found if each.start in places)


def between(text: str) -> Sequence[str]:
    """Return what is between the scalars of a file: marks, spaces and comments."""
    content = text.removeprefix("\ufeff")
    try:
        documents = read(content)
    except UnreadableFileError:
        return [text]
    at, parts = 0, []
    for start, end in sorted((each.start, each.end) for root in documents for each in scalars(root)):
        parts.append(content[at:start])
        at = end
    return [*parts, content[at:]]


def held_expression(text: str) -> str:
    """Translate an expression and assert what holds for all; raises UntranslatableError."""
    made = translate_expression(text, NAMES)
    new = changed(text, made.edits)
    if not any(name in NAMES.series for name in _WORD.findall(text)) and not _has_label(text):
        assert new == text
    if made.edits:
        tree(new)
    assert translate_expression(new, NAMES).edits == []
    words = [token.text for token in tokens(new)] if made.is_dcgm else []
    assert not [word for word in words if word in NAMES.series]
    return new


def _has_label(text: str) -> bool:
    return any(label in text for label in NAMES.labels)
