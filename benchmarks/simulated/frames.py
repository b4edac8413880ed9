"""Pages of the real program on a fake node, one for each scrape, made ready to stand for any node."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.request import Request, urlopen

from benchmarks.running import subject

NODE, TEAM, PODS, LABEL, DRIVER = "@node@", "@team@", "@pods@", "@label@", "@driver@"
"""What stands in a frame where nodes differ: six digits, and a digit or two for each of the others."""

_OPENMETRICS = "application/openmetrics-text; version=1.0.0"
# Fleets have more names of pods, and namespaces, than a node.
_UNIQUE = (
    (re.compile(r"(GPU-[0-9a-f-]{24})[0-9a-f]{6}(?=[0-9a-f]{6})"), rf"\1{NODE}"),
    (re.compile(r"\bbench-[\w-]+"), f"node-{NODE}"),
    (re.compile(r'(serial="\d+)\d{6}"'), rf'\1{NODE}"'),
    (re.compile(r'\b(pod="\w+)-\w+-(\w+)"'), rf'\1-{NODE}{PODS}-\2"'),
    (re.compile(r'(pod_uid="[^"]+).{7}"'), rf'\1{NODE}{PODS}"'),
    (re.compile(r'\b(namespace="[^"]+)"'), rf'\1-{TEAM}"'),
    (re.compile(r'((?:driver_version|DRIVER_VERSION)="\d+\.\d+)\.\d+"'), rf'\1.0{DRIVER}"'),
)
_TIMESTAMP = re.compile(r"^(\w+_timestamp_seconds(?:\{.*\})?) (\S+)$", re.MULTILINE)
_OF_PODS = 'label_app_kubernetes_io_name="inference",label_team="research-' + LABEL + '"'
_HOLDER = re.compile(r'^gpuslice_container_info\{(namespace="[^"]+",pod="[^"]+").*?(pod_uid="[^"]+")')


@dataclass(frozen=True, slots=True)
class Frame:
    """A page with what differs between nodes left open; ``time`` is the node's time that it tells of."""

    text: str
    time: float

    def at(self, now: float) -> str:
        """Give the page as if it told of ``now``."""
        later = now - self.time
        return _TIMESTAMP.sub(lambda found: f"{found[1]} {float(found[2]) + later:.3f}", self.text)


async def recorded(node: str, count: int, polls: int = 1) -> list[list[str]]:
    """Have the program poll a fake node and scrape it after so many polls: the lines of each page.

    To these belong the labels of pods, two for each, which its fake kubelet does not tell.
    """
    pages = []
    async with subject("by-hand", node) as program:
        for _ in range(count):
            await program.ask("poll", times=polls)
            pages.append(await asyncio.to_thread(_scraped, f"{program.url}metrics"))
        # It waits for what it is to do next, and would not end before that.
        assert program.process.stdin is not None  # noqa: S101 - it is a pipe
        program.process.stdin.close()
    return [[*page[:-1], *_pod_labels(page), page[-1]] for page in pages]


def _scraped(url: str) -> list[str]:
    with urlopen(Request(url, headers={"Accept": _OPENMETRICS})) as answer:  # noqa: S310 - it is ours
        text: str = answer.read().decode()
    return text.splitlines()


def _pod_labels(page: Sequence[str]) -> Iterator[str]:
    """Give a series for each pod, spelt as the exporter spells it with ``--pod-labels``."""
    yield "# TYPE gpuslice_pod_labels gauge"
    pods = {found.groups() for line in page if (found := _HOLDER.match(line))}
    for names, uid in sorted(pods):
        yield f"gpuslice_pod_labels{{{names},{uid},{_OF_PODS}}} 1"


def name_of(line: str) -> str:
    """Give the family or series that a line is of, be it a sample or a comment; "" for the end of a page."""
    words = line.split(maxsplit=3)
    if line.startswith("#"):
        return words[2] if len(words) > 2 else ""
    return words[0].partition("{")[0]


def only(page: Sequence[str], names: frozenset[str]) -> list[str]:
    """Leave of a page what is of these series."""
    families = names | {name.removesuffix("_total").removesuffix("_info") for name in names}
    return [
        line
        for line in page
        if name_of(line) in (families if line.startswith("#") else names) or line == "# EOF"
    ]


def frame(page: Sequence[str]) -> Frame:
    """Leave open what differs between nodes."""
    text = "\n".join(page) + "\n"
    for pattern, replacement in _UNIQUE:
        text = pattern.sub(replacement, text)
    return Frame(text, max((float(found[2]) for found in _TIMESTAMP.finditer(text)), default=0.0))
