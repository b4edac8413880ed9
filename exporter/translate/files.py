"""Translates whole files."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from exporter.translate.documents import Mapping, Node, Scalar, UnreadableFileError, read, scalars
from exporter.translate.documents import Sequence as List
from exporter.translate.edits import changed
from exporter.translate.expression import concerns
from exporter.translate.findings import Finding
from exporter.translate.names import Names
from exporter.translate.places import Places
from exporter.translate.queries import query_of
from exporter.translate.uses import PlacedUse

# Some editors put it at the beginning of a file.
_MARK = "\ufeff"


@dataclass(frozen=True, slots=True)
class TranslatedFile:
    """The new text of a file, and what was not translated."""

    text: str
    # Expressions with a change.
    translated: int = 0
    findings: Sequence[Finding] = field(default_factory=list)
    # All expressions, with the old names in them.
    uses: Sequence[PlacedUse] = field(default_factory=list)


def translate_file(text: str, names: Names, *, whole: bool = False) -> TranslatedFile:
    """Return a file with its expressions translated; raises UnreadableFileError.

    A file without a name of DCGM is not even read, unless the uses of the ``whole`` are wanted.
    """
    if not whole and not concerns(text, names):
        return TranslatedFile(text)
    content = text.removeprefix(_MARK)
    documents = read(content)
    places = Places(names)
    try:
        places.translate_all(content, documents)
    except RecursionError:
        raise UnreadableFileError("it is nested too deeply") from None
    new = changed(content, places.edits())
    _check(documents, new, places)
    findings = {*places.findings, *(_optional(*pair, at) for pair, at in places.optional.items())}
    mark = text[: len(text) - len(content)]
    findings = {each._replace(place=each.place + len(mark)) for each in findings}
    uses = sorted(
        (each._replace(place=each.place + len(mark)) for each in places.uses), key=lambda each: each.place
    )
    return TranslatedFile(mark + new, places.translated, sorted(findings), uses)


def _optional(old: str, new: str, place: int) -> Finding:
    reason = (
        f"{old} is no default counter of dcgm-exporter: {new} is printed only if its collector file "
        f"lists it; --keep {old} keeps the old name"
    )
    return Finding(place, "note", reason)


def _check(documents: Sequence[Node], new: str, places: Places) -> None:
    """Raise UnreadableFileError unless the new text has the same content but for the changes."""
    try:
        after = [scalar.value for document in read(new) for scalar in scalars(document)]
    except UnreadableFileError as error:
        raise UnreadableFileError(f"its translation would not be valid: {error}") from None
    before = [
        changed(scalar.value, places.changes.get(scalar, ()))
        for document in documents
        for scalar in scalars(document)
    ]
    if before != after:
        raise UnreadableFileError("its translation would change more than its expressions")


def records(texts: Iterable[str], names: Names) -> set[str]:
    """Return the recording rules of series of DCGM in some files, also those of such rules.

    Files that cannot be read have none.
    """
    return records_of([rule for text in texts for rule in recording_rules(text)], names)


def records_of(rules: Sequence[tuple[str, str]], names: Names) -> set[str]:
    """Return those of some recording rules, by name and expression."""
    found: set[str] = set()
    while True:
        known = names.with_records(found)
        more = {record for record, expr in rules if concerns(expr, known)}
        if more == found:
            return found
        found = more


def recording_rules(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and expressions of recording rules; none of a file that cannot be read."""
    if "record" not in text:
        return
    try:
        documents = read(text.removeprefix(_MARK))
    except UnreadableFileError:
        return
    seen: set[int] = set()
    waiting = list(documents)
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Mapping):
            if node.word("record") and (query := query_of(node)):
                yield node.word("record"), query.value
            waiting += [part for pair in node.pairs for part in pair]
        elif isinstance(node, List):
            waiting += node.items
        elif isinstance(node, Scalar) and "record:" in node.value and "expr" in node.value:
            yield from recording_rules(node.value)
