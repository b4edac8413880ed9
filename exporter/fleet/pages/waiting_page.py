"""The page of the pods that wait: one line each, which opens to its answer."""

import time
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote

from exporter.fleet.model import Node, NodeKey
from exporter.fleet.pages.links import Links, NodeUrl
from exporter.fleet.pages.page import DataAge, Scope
from exporter.fleet.targets import some_names
from exporter.fleet.waiting import Waiting, narrowed
from exporter.fleet.waiting_watch import WaitingRead
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
from exporter.waiting.way import Way
from exporter.web.kit.elements import Notice
from exporter.web.kit.html import Drawing, piece
from exporter.wording import duration, plural

_PIECES = "pieces/waiting.html"
MOST_PODS = 200
_OLD_INTERVALS = 3


class WaitingScene(NamedTuple):
    """The pods that wait, as shown on the page."""

    read: WaitingRead
    now: float  # Unix time
    node_url: NodeUrl
    nodes: tuple[Node, ...] = ()  # for links to their pages
    namespaces: tuple[str, ...] = ()  # of the pods, () for all
    narrowed_by_url: bool = False


class ShownWay(NamedTuple):
    """A way, with a link to the page of its node."""

    way: Way
    words: str
    href: str


class ShownPod(NamedTuple):
    """A pod that waits, as one line, and its answer."""

    id: str
    answer: Answer
    waits: str
    devices: str
    requested: str
    reason: str
    nearest: str  # "" if nothing is known to help
    owner: str
    sentences: tuple[str, ...]
    ways: tuple[ShownWay, ...]
    nothing: str  # said instead of ways, "" if there are some, or none are looked for
    ahead: str


def waiting_drawing(scene: WaitingScene) -> Drawing:
    """Return the page; without answers, why there are none."""
    whole = scene.read.waiting
    waiting = None if whole is None else narrowed(whole, scene.namespaces)
    links = Links(scene.nodes, scene.node_url)
    answers = (waiting.answers if waiting else None) or ()
    pods = [_pod(answer, links) for answer in answers[:MOST_PODS]]
    known = waiting is not None and waiting.answers is not None
    return Drawing(
        layout="waiting.html",
        title="Pods that wait for a GPU",
        pieces={
            "name": piece(_PIECES, "name_of", _facts(waiting) if waiting else (), _scope(scene)),
            "status": piece("pieces/fleet.html", "status_of", _age(scene)),
            "notices": piece("pieces/fleet.html", "notices_of", list(_notices(scene.read))),
            "pods": piece(_PIECES, "pods_of", pods, len(answers) - len(pods), known),
            "seen": piece(_PIECES, "seen_of", _seen(waiting, scene.now) if waiting else ""),
        },
        facts={"demo": False},
    )


def _scope(scene: WaitingScene) -> Scope | None:
    if not scene.namespaces:
        return None
    return Scope(some_names(scene.namespaces), "waiting" if scene.narrowed_by_url else "")


def _facts(waiting: Waiting) -> list[str]:
    if waiting.answers is None:
        return ["pods are not known"]
    verb = "waits" if len(waiting.answers) == 1 else "wait"
    facts = [f"{plural(len(waiting.answers), 'pod')} {verb} for a device"]
    if waiting.others:
        facts.append(f"{waiting.others} more without asking for one")
    return facts


def _age(scene: WaitingScene) -> DataAge:
    read = scene.read
    if read.waiting is None:
        return DataAge("not read yet", "", old=False)
    age = max(scene.now - read.waiting.at, 0.0)
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(read.waiting.at))
    old_after = 0.0 if read.error else _OLD_INTERVALS * read.interval
    return DataAge(f"read {duration(age)} ago", at, age > old_after, old_after)


def _notices(read: WaitingRead) -> Iterator[Notice]:
    if read.waiting is None:
        yield Notice("note", "No answers", f"{read.error[:1].upper()}{read.error[1:]}.")
        return
    if read.error:
        yield Notice(
            "bad", "The answers could not be renewed", f"{read.error}. The page shows the last ones."
        )
    for each in read.waiting.unseen:
        yield Notice("note", "Not known", f"{each}.")


def _seen(waiting: Waiting, now: float) -> str:
    return f"Known: {ages_words(waiting, now)}."


def _pod(answer: Answer, links: Links) -> ShownPod:
    looked_for = answer.nodes and not (answer.fits or answer.passes or answer.before or answer.pod.gates)
    return ShownPod(
        id=f"pod-{quote(str(answer.pod.key), safe='')}",
        answer=answer,
        waits=waits_words(answer),
        devices=devices_words(answer),
        requested=requested(answer),
        reason=reason_words(answer),
        nearest=way_words(answer.ways[0]) if answer.ways else "",
        owner=answer.pod.owner,
        sentences=tuple(sentences(answer)),
        ways=tuple(ShownWay(way, way_words(way), links.node(NodeKey("", way.node))) for way in answer.ways),
        nothing=f"{NO_MORE[0].upper()}{NO_MORE[1:]}." if looked_for and not answer.ways else "",
        ahead=ahead_words(answer),
    )
