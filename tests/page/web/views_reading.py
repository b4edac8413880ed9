"""Snapshots to draw, and a parser of the pages."""

import asyncio
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from html.parser import HTMLParser

from exporter.config import load_settings
from exporter.demo.node import FakeNode
from exporter.demo.scenario.catalog import load
from exporter.model import (
    CollectorHealth,
    ContainerRef,
    ContainerRow,
    DeviceKey,
    DriverInfo,
    GpuIdentity,
    GpuReading,
    GpuRow,
    HardwareReading,
    Memory,
    MigReading,
    MigRow,
    NodeRow,
    SliceCount,
    Snapshot,
    Totals,
)
from exporter.poll.condition_tracker import ConditionTracker
from exporter.poll.poller import Poller
from exporter.poll.sources import Sources
from exporter.web.kit.html import page
from exporter.web.node.pages.layout import gpu_drawing, node_drawing
from exporter.web.node.pages.scene import Scene
from tests.core.poller.bench import budget_of

SCENARIOS = {
    "t4-timeslicing": "a pool with many holders: quiet ones, over a notional share, one without a slice",
    "a100-mig-mixed": "MIG devices of different profiles, free places, compute that is unknown",
    "mps-daemon": "MPS: a pool with limits, where a share of compute is never exceeded",
    "hami": "holders that are idle or over an enforced share, and unattributed memory",
    "mi300x-cpx": "AMD partitions next to a whole GPU",
    "vgpu-host": "vGPUs with readings of their own",
    "hami-vendors": "devices that the exporter does not read",
    "lost-gpu": "a whole GPU that does not answer, and still has its holder",
    "sick-gpus": "conditions that need attention",
    "no-gpu": "nothing to show",
}
"""The scenarios that differ on a page, and how. The others differ in what pages never see."""
GIB = 1 << 30
NOW = 1_700_000_000.0
UUID = "GPU-0"
COLLECTORS = ("nvml", "podresources", "processes", "identity")
_VOID = frozenset({"meta", "link", "br", "img", "input", "hr"})


@cache
def scenario(name) -> Snapshot:
    """Return a snapshot of a fake node after half a minute, read as a real node is."""
    return asyncio.run(_poll(name))


async def _poll(name) -> Snapshot:
    async with FakeNode(load(name), clock=lambda: 0.0) as node:
        settings = replace(load_settings({}, {}), node_name=node.name, **asdict(node.paths))
        sources = Sources(settings, node.nvml, clock=lambda: node.time, budget=budget_of(settings, 10.0))
        poller = Poller(settings, sources, demo=True, clock=lambda: node.time, wall=lambda: NOW + node.time)
        for second in (0, 15, 30):
            await node.step(second)
            shown = await poller.poll()
        # Nothing more is waited for, so that closing need not wait.
        node.nvml.release()
        await poller.close()
        return shown


@dataclass
class Element:
    """An element with its attributes, its children, and its own text."""

    tag: str
    attributes: dict
    children: list = field(default_factory=list)

    @property
    def text(self) -> str:
        """All visible text below it, with single spaces."""
        shown = [child for child in self.children if isinstance(child, str) or child.is_seen]
        parts = [child if isinstance(child, str) else child.text for child in shown]
        return " ".join(" ".join(parts).split())

    @property
    def is_seen(self) -> bool:
        """Whether it is on the page, and not only in a tooltip."""
        return self.tag != "title" and "hidden" not in self.attributes

    @property
    def classes(self) -> set:
        """Its classes."""
        return set((self.attributes.get("class") or "").split())

    def all(self, tag=None, of=None, **attributes) -> list:
        """Return the elements below with that tag, class ``of``, and attributes."""
        found = []
        for child in self.children:
            if isinstance(child, Element) and "hidden" not in child.attributes:
                alike = all(child.attributes.get(name) == value for name, value in attributes.items())
                if tag in (None, child.tag) and (of is None or of in child.classes) and alike:
                    found.append(child)
                found += child.all(tag, of, **attributes)
        return found

    def one(self, tag=None, of=None, **attributes) -> "Element":
        """Return the only such element."""
        (found,) = self.all(tag, of, **attributes)
        return found


class _Reader(HTMLParser):
    """Builds the tree, and fails if an element is not closed where it should be."""

    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("", {})]

    def handle_starttag(self, tag, attrs) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"an attribute twice on {tag}"
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_endtag(self, tag) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data) -> None:
        self.open[-1].children.append(data)


def read(html) -> Element:
    """Return the tree of a page."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    (root,) = reader.open
    return root


def draw(snapshot, **options) -> Element:
    """Return the parsed page of a snapshot, three seconds after the poll."""
    return read(node_page(snapshot, **options))


def node_page(snapshot, **options) -> str:
    """Return the page of a snapshot."""
    return page(node_drawing(Scene(snapshot, **{"now": snapshot.timestamp + 3, **options})), "")


def gpu_page(snapshot, uuid, **options) -> str | None:
    """Return the page of one of its GPUs."""
    drawing = gpu_drawing(Scene(snapshot, **{"now": snapshot.timestamp + 3, "root": "../", **options}), uuid)
    return None if drawing is None else page(drawing, "../")


def gpu(index=0, sharing="exclusive", *, used=8 * GIB, model="NVIDIA L4", **facts) -> GpuRow:
    """Return a GPU of 16 GiB that is 60 % busy; keywords replace fields of the row and of its reading."""
    identity = GpuIdentity(uuid=f"GPU-{index}", index=index, model=model)
    reading = GpuReading(
        identity=identity,
        memory=None if used is None else Memory(total=16 * GIB, used=used, free=16 * GIB - used),
        utilization_percent=60,
        mig_enabled=False,
    )
    of_reading = {name: facts.pop(name) for name in list(facts) if name in GpuReading.__slots__}
    row = GpuRow(
        identity=identity,
        reading=replace(reading, **of_reading),
        sharing=sharing,
        slices=(SliceCount("nvidia.com/gpu", 1, 1),),
        holders=1,
        memory_entitled=16 * GIB,
        unattributed_memory=GIB,
        unattributed_utilization=0.0,
    )
    return replace(row, **facts)


def mig(name, *, used=2 * GIB, slices=2, held=1, offered=1, gpu_uuid=UUID, **facts) -> MigRow:
    """Return a MIG device of 5 GiB and some compute slices."""
    reading = MigReading(
        uuid=name,
        gi=1,
        ci=0,
        profile=f"{slices}g.5gb",
        memory=Memory(total=5 * GIB, used=used, free=5 * GIB - used),
        compute_slices=slices,
        instance_slices=slices,
    )
    return MigRow(
        device=DeviceKey(gpu_uuid, name),
        reading=replace(reading, **facts),
        slices=(SliceCount("nvidia.com/mig", offered, held),),
        holders=held,
        unattributed_memory=0,
    )


def holder(pod, device=UUID, **facts) -> ContainerRow:
    """Return a container that holds a device and computed a minute ago; keywords replace fields."""
    key = device if isinstance(device, DeviceKey) else DeviceKey(device)
    row = ContainerRow(
        holder=ContainerRef("ml", pod, "main"),
        device=key,
        resource="nvidia.com/gpu",
        sharing="exclusive",
        isolation="hard",
        slices=1,
        memory_entitled=16 * GIB,
        compute_entitled=1.0,
        memory_used=7 * GIB,
        compute_used=0.6,
        totals=Totals(first_seen=NOW - 9000, last_active=NOW - 30, seen_computing=True),
    )
    return replace(row, **facts)


def judged(gpus, released="") -> tuple[GpuRow, ...]:
    """Return GPUs with the conditions that a first poll decides."""
    hardware = HardwareReading(driver=DriverInfo(), gpus=(), gpu_count=None, released=released)
    return ConditionTracker().advance(gpus, hardware, NOW)


def snapshot(gpus=(), containers=(), migs=(), failing=None, **facts) -> Snapshot:
    """Return a node; ``failing`` maps collectors to messages, ``node`` is a dict of its fields."""
    failing = failing or {}
    values = {"name": "node-1", "gpu_count": len(gpus), "process_view": True} | facts.pop("node", {})
    return replace(
        Snapshot(
            timestamp=NOW,
            sequence=1,
            node=NodeRow(**values),
            gpus=judged(gpus, values.get("released", "")),
            migs=tuple(migs),
            containers=tuple(containers),
            collectors=tuple(
                CollectorHealth(name=name, success=name not in failing, message=failing.get(name, ""))
                for name in COLLECTORS
            ),
        ),
        **facts,
    )
