"""``translate``: rules, dashboards and triggers with DCGM's new names, or with ours."""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from pathlib import Path

from exporter.config import SettingsError
from exporter.output import print_text, write_whole
from exporter.translate.documents import UnreadableFileError
from exporter.translate.files import TranslatedFile, records, translate_file
from exporter.translate.findings import Lines
from exporter.translate.names import TARGETS, Names
from exporter.wording import plural, printable

STANDARD_INPUT = "-"
# Longer expressions are shortened in reports.
_MOST_CHARACTERS = 200
UNTRANSLATED, FAILED = 1, 2


def translate(files: Sequence[str], target: str, keep: Sequence[str], *, whole: bool, in_place: bool) -> int:
    """Print or write the translation of files, and report what was not translated; return the exit code."""
    if whole and len(files) != 1:
        raise SettingsError("--print is for one file")
    if in_place and STANDARD_INPUT in files:
        raise SettingsError("--in-place needs files, and not the standard input")
    texts, failed = _read(files)
    names = _names(texts, target, keep)
    done: dict[str, TranslatedFile] = {}
    for file, text in texts.items():
        try:
            done[file] = translate_file(text, names)
        except UnreadableFileError as error:
            _report(f"{file}: {error}")
            failed = True
    for file, translated in done.items():
        if in_place:
            failed |= not _written(file, texts[file], translated)
        else:
            print_text(translated.text if whole else "".join(_diff(file, texts[file], translated.text)))
    problems = [_listed(file, texts[file], translated) for file, translated in done.items()]
    _report(_summary(done, sum(problems)))
    if failed:
        return FAILED
    return UNTRANSLATED if any(problems) else 0


def _read(files: Sequence[str]) -> tuple[dict[str, str], bool]:
    """Return the texts of the files that can be read, and whether there are others."""
    texts = {}
    failed = False
    for file in files:
        try:
            texts[file] = read_text(file)
        except UnreadableFileError as error:
            _report(f"{file}: {error}")
            failed = True
    return texts, failed


def read_text(file: str) -> str:
    """Return the text of a file, or of the standard input; raises UnreadableFileError."""
    try:
        return (sys.stdin.buffer.read() if file == STANDARD_INPUT else Path(file).read_bytes()).decode()
    except OSError as error:
        raise UnreadableFileError(error.strerror) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UnreadableFileError(f"not UTF-8: line {line}, {error.reason}") from None


def _names(texts: Mapping[str, str], target: str, keep: Sequence[str]) -> Names:
    names = TARGETS[target]
    if unknown := sorted(set(keep) - names.series.keys()):
        raise SettingsError(f"--keep: {', '.join(unknown)} would not be replaced")
    found = records(texts.values(), names)
    for record in sorted(found & names.series.keys()):
        _report(f"note: {record} is a recording rule of these files: it was not replaced")
    return names.keep({*keep, *found}).with_records(found)


def _written(file: str, text: str, translated: TranslatedFile) -> bool:
    """Write a file if it has changed; return False if that fails, after reporting the reason."""
    if translated.text == text:
        return True
    path = Path(file)
    try:
        mode = path.stat().st_mode
        write_whole(path, translated.text)
        path.chmod(mode)
    except OSError as error:
        _report(f"{file}: cannot be written, and is as it was: {error.strerror}")
        return False
    return True


def _diff(file: str, old: str, new: str) -> Iterator[str]:
    # Not splitlines(): other characters than line feeds end its lines, too.
    path = file.lstrip("/")
    old_path, new_path = (_quoted(f"{side}/{path}") for side in "ab")
    before, after = ([*re.findall("[^\n]*\n|[^\n]+", text)] for text in (old, new))
    for line in unified_diff(before, after, old_path, new_path):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _quoted(path: str) -> str:
    """Return a path as git writes it in a diff: in quotes if it has a line break or the like."""
    return path if path.isprintable() and not {'"', "\\"} & {*path} else json.dumps(path, ensure_ascii=False)


def _listed(file: str, text: str, translated: TranslatedFile) -> int:
    """Report the findings of a file; return the number of problems."""
    lines = Lines(text)
    for finding in translated.findings:
        line = lines.number(finding.place)
        kind = "not translated" if finding.level == "problem" else "note"
        about = f": {finding.text}" if finding.text else ""
        _report(f"{file}:{line}: {kind}: {finding.reason}{_shortened(about)}")
    return sum(finding.level == "problem" for finding in translated.findings)


def _summary(done: Mapping[str, TranslatedFile], problems: int) -> str:
    translated = sum(each.translated for each in done.values())
    return f"{plural(translated, 'expression')} translated, {problems} not, in {plural(len(done), 'file')}"


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def _report(line: str) -> None:
    sys.stderr.write(f"{printable(line)}\n")
