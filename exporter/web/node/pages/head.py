"""The head of each page: the node, the age of its data, and the state of its sources."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from exporter.model import CollectorHealth, Snapshot
from exporter.web.node.pages.scene import Scene, answers
from exporter.wording import TIMES, duration, mode_word, plural

# Data is old after this many seconds (after which the exporter, by default, stops showing it) and intervals.
_OLD_SECONDS, _OLD_INTERVALS = 60.0, 3
# Short names of the collectors.
_SOURCES = {
    "nvml": "driver",
    "podresources": "kubelet",
    "processes": "processes",
    "identity": "pod names",
}


class Source(NamedTuple):
    """The state of one collector."""

    name: str
    look: str  # good, bad or note
    word: str  # "" if good
    title: str  # its name in the metrics and its error


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The first lines of the page."""

    node: str
    modes: tuple[str, ...]  # ways of sharing
    facts: tuple[str, ...]
    polled: str
    polled_at: str
    old: bool  # whether the last poll is older than ``old_after`` seconds
    old_after: float
    sources: tuple[Source, ...]
    doctor: str  # address of the doctor page
    degraded: bool  # whether a source fails or data is missing


def head(scene: Scene) -> Head:
    """Return the head of the page: the node and its sources."""
    snapshot = scene.snapshot
    age = max(scene.now - snapshot.timestamp, 0.0)
    old_after = max(_OLD_SECONDS, _OLD_INTERVALS * scene.interval)
    blind = bool(snapshot.node.blind) or (bool(snapshot.gpus) and not snapshot.node.process_view)
    failing = scene.failing.keys() - ({"nvml"} if scene.released else set())
    return Head(
        node=snapshot.node.name,
        modes=tuple(
            dict.fromkeys(mode_word(gpu.sharing) for gpu in snapshot.gpus if answers(gpu) or gpu.unread)
        ),
        facts=tuple(_facts(snapshot)),
        polled=f"polled {duration(age)} ago" if snapshot.sequence else "not polled yet",
        polled_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(snapshot.timestamp)),
        old=age > old_after,
        old_after=old_after,
        sources=tuple(_source(scene, health) for health in snapshot.collectors),
        doctor=f"{scene.root}doctor",
        degraded=bool(snapshot.sequence and (failing or blind)),
    )


def _source(scene: Scene, health: CollectorHealth) -> Source:
    look, word = ("good", "") if health.success else ("bad", "failing")
    if health.name == "nvml" and scene.released:
        look, word = "note", "released"
    title = f"{health.name}: {health.message or ('answers' if health.success else 'fails')}"
    return Source(_SOURCES.get(health.name, health.name), look, word, title)


def _facts(snapshot: Snapshot) -> Iterator[str]:
    models = Counter(gpu.identity.model.removeprefix("NVIDIA ") for gpu in snapshot.gpus)
    if models:
        named = (f"{count} {TIMES} {model or 'GPU of unknown model'}" for model, count in models.items())
        yield ", ".join(named)
    elif snapshot.node.gpu_count is not None:
        yield plural(snapshot.node.gpu_count, "GPU")
    driver = snapshot.node.driver
    if driver is not None and driver.driver_version:
        yield f"driver {driver.driver_version}"
    if driver is not None and driver.cuda_version:
        yield f"CUDA {driver.cuda_version}"
