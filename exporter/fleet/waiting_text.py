"""Why a pod waits, and all pods that wait, as text for a terminal."""

from collections.abc import Iterator, Sequence

from exporter.fleet.waiting import Waiting
from exporter.fleet.waiting_words import (
    NO_MORE,
    ages_words,
    ahead_words,
    devices_words,
    reason_words,
    requested,
    sentences,
    waits_words,
    way_words,
)
from exporter.waiting.answer import Answer
from exporter.waiting.objects import PodKey
from exporter.wording import UNKNOWN, aligned, plural, printable

WIDTH = 100


def why_text(waiting: Waiting, key: PodKey, width: int | None = None) -> str:
    """Return the answer for one pod; if it does not wait, what is known of it."""
    width = width or WIDTH
    lines: list[str] = []
    if waiting.answers is None:
        lines.append("The pods of the cluster are not known.")
    elif not waiting.answers:
        lines.append(_not_waiting(waiting, key))
    for answer in waiting.answers or ():
        lines += _answer(answer, width)
    return _text([*lines, "", *_end(waiting, width)])


def waiting_text(waiting: Waiting, width: int | None = None) -> str:
    """Return the pods that wait for a device, the longest first: a row each, and below it what is nearest."""
    width = width or WIDTH
    lines = list(_list(waiting.answers, width)) if waiting.answers else []
    if waiting.answers is None:
        lines.append("The pods of the cluster are not known.")
    elif not waiting.answers:
        scope = f" in {', '.join(map(printable, waiting.only))}" if waiting.only else ""
        lines.append(f"No pod waits for a device{scope}.")
    if waiting.others:
        wait = "waits" if waiting.others == 1 else "wait"
        lines += ["", f"{plural(waiting.others, 'other pod')} {wait} without asking for a device."]
    return _text([*lines, "", *_end(waiting, width)])


def _list(answers: Sequence[Answer], width: int) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [("NAMESPACE / POD", "WAITS", "FOR", "AHEAD", "WHY")]
    for answer in answers:
        ahead = UNKNOWN if answer.ahead is None else str(answer.ahead)
        row = (str(answer.pod.key), waits_words(answer), devices_words(answer), ahead)
        rows.append(_printable((*row, reason_words(answer))))
    heading, *lines = aligned(rows, width)
    yield heading
    for line, answer in zip(lines, answers, strict=True):
        yield line
        if answer.ways:
            # In a column of its own it would leave the others no room.
            yield from _wrapped(f"nearest: {way_words(answer.ways[0])}", width, "  ")


def _answer(answer: Answer, width: int) -> Iterator[str]:
    pod = printable(str(answer.pod.key))
    time = "" if answer.seconds is None else f" {waits_words(answer)}"
    yield from _wrapped(f"{pod} waits{time} for {requested(answer)}", width, "")
    for sentence in sentences(answer):
        yield from _wrapped(f"{sentence}.", width, "  ")
    if answer.ways:
        yield from _ways(answer, width)
    elif answer.nodes and not (answer.fits or answer.passes or answer.before or answer.pod.gates):
        yield f"  {NO_MORE[0].upper()}{NO_MORE[1:]}."
    for each in answer.not_helping:
        yield from _wrapped(f"would not help: {each.what}", width, "  ")
    if ahead := ahead_words(answer):
        yield from _wrapped(f"{ahead}.", width, "  ")


def _ways(answer: Answer, width: int) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [("", "NEAREST", "WHO IS ASKED")]
    for number, way in enumerate(answer.ways, 1):
        rows.append(_printable((str(number), way_words(way), way.asked)))
    heading, *lines = aligned(rows, width - 2)
    yield f"  {heading}"
    for row, way in zip(lines, answer.ways, strict=True):
        yield from (f"  {line}" for line in row.splitlines())
        yield from (f"       {printable(command)}" for command in way.commands)
        if way.stops:
            yield from _wrapped(f"but {way.stops}", width, "     ")


def _not_waiting(waiting: Waiting, key: PodKey) -> str:
    objects = waiting.view.objects
    placed = [pod for pod in objects.placed if pod.key == key] if objects is not None else []
    name = printable(str(key))
    if placed:
        ending = ", where it is ending" if placed[0].ending else ""
        return f"{name} does not wait: it is on node {printable(placed[0].node)}{ending}."
    return f"No pod {name} waits: it does not exist, has ended, or was not seen yet."


def _end(waiting: Waiting, width: int) -> Iterator[str]:
    """Yield how old what is known is, and what could not be seen."""
    yield from _wrapped(f"Known: {ages_words(waiting)}.", width, "")
    for each in waiting.unseen:
        yield from _wrapped(f"! not known: {each}.", width, "")


def _wrapped(text: str, width: int, indent: str) -> Iterator[str]:
    """Yield a text as lines, indented and at most so wide as far as its words allow."""
    (lines,) = aligned([(printable(text),)], width - len(indent))
    return (f"{indent}{line}" for line in lines.splitlines())


def _printable(row: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(printable, row))


def _text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
