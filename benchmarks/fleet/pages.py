"""Pages of the real program on a fake node, one for each scrape, prepared to be those of any node."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.processes import subject

NODE, TEAM = "@node@", "@team@"
"""Placeholders in a frame: the six digits of a node, and one or two of its namespaces."""

_OPENMETRICS = "application/openmetrics-text; version=1.0.0"
# Fleets have more names of pods, and namespaces, than a node.
_UNIQUE = (
    (re.compile(r"(GPU-[0-9a-f-]{24})[0-9a-f]{6}(?=[0-9a-f]{6})"), rf"\1{NODE}"),
    (re.compile(r"\bbench-[\w-]+"), f"node-{NODE}"),
    (re.compile(r'(serial="\d+)\d{6}"'), rf'\1{NODE}"'),
    (re.compile(r'\b(pod="\w+)-\w+-(\w+)"'), rf'\1-{NODE}-\2"'),
    (re.compile(r'(pod_uid="[^"]+).{6}"'), rf'\1{NODE}"'),
    (re.compile(r'\b(namespace="[^"]+)"'), rf'\1-{TEAM}"'),
)
_TIMESTAMP = re.compile(r"^(\w+_timestamp_seconds(?:\{.*\})?) (\S+)$", re.MULTILINE)

Lines = Sequence[str]


@dataclass(frozen=True, slots=True)
class Frame:
    """A page with placeholders for what differs between nodes."""

    text: str
    time: float  # Unix time of the node when it was rendered

    def at(self, now: float) -> str:
        """Return the page as if it had been rendered at ``now``."""
        later = now - self.time
        return _TIMESTAMP.sub(lambda match: f"{match[1]} {float(match[2]) + later:.3f}", self.text)


def frame(page: Lines) -> Frame:
    """Put placeholders for what differs between nodes."""
    text = "\n".join(page) + "\n"
    for pattern, replacement in _UNIQUE:
        text = pattern.sub(replacement, text)
    return Frame(text, max((float(match[2]) for match in _TIMESTAMP.finditer(text)), default=0.0))


def recorded(node: str, count: int) -> list[list[str]]:
    """Have the program poll a fake node, and scrape it after each poll; return the lines of each page."""
    pages = []
    with subject("by-hand", node) as program:
        for _ in range(count):
            program.ask("poll", times=1)
            pages.append(program.get("metrics", {"Accept": _OPENMETRICS})[1].decode().splitlines())
    return pages


def only(page: Lines, names: frozenset[str]) -> list[str]:
    """Return the lines of these series, with their comments, and the end of the page."""
    families = names | {name.removesuffix("_total").removesuffix("_info") for name in names}
    return [line for line in page if _name(line) in (families if line[0] == "#" else names)] + ["# EOF"]


def _name(line: str) -> str:
    """Return the family of a comment or the series of a sample; "" at the end of a page."""
    words = line.split(maxsplit=3)
    if line.startswith("#"):
        return words[2] if len(words) > 2 else ""
    return words[0].partition("{")[0]
