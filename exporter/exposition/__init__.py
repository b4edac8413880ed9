"""The metrics page: renders a snapshot to bytes, at most once for each snapshot and format.

A sample costs one call of its value function, and one f-string if any sample of its family has changed since
the last page. Label sets are rendered once for each entity and kept while it exists. Both formats have the
same samples, and differ in headers only. Metrics about the exporter itself are at its end.
"""

import gzip
import platform
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from prometheus_client import CollectorRegistry, Gauge, Info, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from exporter import __version__
from exporter.exposition.lines import Entities, LabelCache, lines_of, openmetrics_header, text_header
from exporter.exposition.negotiation import Format, accepts_gzip, choose_format
from exporter.metrics import ENTITIES, AnyFamily, Enumerate, dcgm
from exporter.metrics.dcgm import HostnameLabel
from exporter.metrics.selection import Selection
from exporter.model import Snapshot

__all__ = ["Exposition", "Format", "Page", "accepts_gzip", "choose_format"]

EVERYTHING = Selection(metric_set="full", dcgm_names="all")
# Half the time of the default 6, for an eighth more bytes.
GZIP_LEVEL = 3
Made = TypeVar("Made")
# A family with the lines of its samples in UTF-8, never empty.
Block: TypeAlias = tuple[AnyFamily, bytes]


class SelfMetrics:
    """The exporter's own instruments; other modules may add theirs to ``registry``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        build = Info("gpuslice_build", "Version of the exporter and of Python.", registry=self.registry)
        build.info({"version": __version__, "python": platform.python_version()})
        self._render = Gauge(
            "gpuslice_render_duration_seconds",
            "Time to render the samples of this page, in seconds.",
            registry=self.registry,
        )

    def rendered(self, seconds: float) -> None:
        """Set the render time of the current page, in seconds."""
        self._render.set(seconds)

    def body(self, *, openmetrics: bool) -> bytes:
        """Return the registry as a part of a page: in OpenMetrics without the closing ``# EOF``."""
        if openmetrics:
            page: bytes = generate_openmetrics(self.registry)  # type: ignore[no-untyped-call]
            return page.removesuffix(b"# EOF\n")
        return generate_latest(self.registry)


class Exposition:
    """Renders snapshots. Thread-safe.

    ``selection`` has the families of the page, by default all of one version of DCGM; ``hostname_label`` is
    the name of the node label under DCGM's old names. No series is twice on a page: of two samples with the
    same labels the first counts.
    """

    def __init__(
        self,
        selection: Selection = EVERYTHING,
        *,
        self_metrics: SelfMetrics | None = None,
        hostname_label: HostnameLabel = "Hostname",
    ) -> None:
        self.self_metrics = self_metrics or SelfMetrics()
        families = selection.families()
        entities_of = {**ENTITIES, **dcgm.levels(selection.dcgm_version, hostname_label)}
        self._lines = [(family, entities_of[family.level], lines_of(family)) for family in families]
        # By function, because levels with the same entities have the same one.
        self._label_sets: dict[Enumerate, tuple[str, ...]] = {of: () for _, of, _ in self._lines}
        self._labels = LabelCache()
        self._headers: dict[bool, dict[str, bytes]] = {False: {}, True: {}}
        self._lock = threading.Lock()

    def page(self, snapshot: Snapshot) -> "Page":
        """Return the page of a snapshot; it is rendered when it is first used."""
        return Page(self, snapshot)

    def blocks(self, snapshot: Snapshot) -> list[Block]:
        """Render all samples in the order of the table; a family without samples is left out."""
        with self._lock:
            entities = {of: self._entities(of, snapshot) for of in tuple(self._label_sets)}
            texts = [(family, lines.samples(entities[of])) for family, of, lines in self._lines]
            self._labels.turn()
        return [block for block in texts if block[1]]

    def counts(self, snapshot: Snapshot) -> Mapping[str, int]:
        """Return the number of series of each family that has some, by its name."""
        return {family.name: samples.count(b"\n") for family, samples in self.blocks(snapshot)}

    def header(self, family: AnyFamily, openmetrics: bool) -> bytes:
        """Return HELP and TYPE of a family, which are rendered once."""
        headers = self._headers[openmetrics]
        header = headers.get(family.name)
        if header is None:
            headers[family.name] = header = openmetrics_header(family) if openmetrics else text_header(family)
        return header

    def _entities(self, entities_of: Enumerate, snapshot: Snapshot) -> Entities:
        rows: dict[str, Any] = {}
        for names, values, row in entities_of(snapshot):
            rows.setdefault(self._labels.text(names, values), row)
        labels = tuple(rows)
        if labels != self._label_sets[entities_of]:
            self._label_sets[entities_of] = labels
        return Entities(self._label_sets[entities_of], tuple(rows.values()))


class Page:
    """One snapshot as a page. The first caller renders each form of it, while others wait for that."""

    def __init__(self, exposition: Exposition, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        # Time to render the samples in seconds, None before that.
        self.render_duration: float | None = None
        self._exposition = exposition
        self._blocks: _Once[list[Block]] = _Once()
        self._bodies: dict[bool, _Once[bytes]] = {flag: _Once() for flag in (False, True)}
        self._zipped: dict[bool, _Once[bytes]] = {flag: _Once() for flag in (False, True)}

    def body(self, fmt: Format) -> bytes:
        """Return the page in a format, UTF-8."""
        return self._bodies[fmt.openmetrics].get(lambda: self._body(fmt.openmetrics))

    def gzipped(self, fmt: Format) -> bytes:
        """Return the page in a format, compressed; the first call takes some 10 ms for a large page."""
        return self._zipped[fmt.openmetrics].get(
            lambda: gzip.compress(self.body(fmt), compresslevel=GZIP_LEVEL, mtime=0)
        )

    def families(self, fmt: Format) -> bytes:
        """Return the series of the snapshot, without those about the exporter itself."""
        return b"".join(self._families(fmt.openmetrics))

    def ready(self, fmt: Format, *, zipped: bool) -> bool:
        """Return whether this form has been rendered already."""
        return (self._zipped if zipped else self._bodies)[fmt.openmetrics].made

    def _render(self) -> list[Block]:
        start = time.perf_counter()
        blocks = self._exposition.blocks(self.snapshot)
        self.render_duration = time.perf_counter() - start
        self._exposition.self_metrics.rendered(self.render_duration)
        return blocks

    def _body(self, openmetrics: bool) -> bytes:
        parts = self._families(openmetrics)
        # After the samples, because it has their render time.
        parts.append(self._exposition.self_metrics.body(openmetrics=openmetrics))
        parts.append(b"# EOF\n" if openmetrics else b"")
        return b"".join(parts)

    def _families(self, openmetrics: bool) -> list[bytes]:
        header = self._exposition.header
        blocks = self._blocks.get(self._render)
        return [part for family, samples in blocks for part in (header(family, openmetrics), samples)]


class _Once(Generic[Made]):
    """A value that the first caller makes, in its own thread, while the others wait for it.

    It has no reference to its page, so an unused page is freed at once, without garbage collection.
    """

    def __init__(self) -> None:
        self.made = False
        self._lock = threading.Lock()
        self._value: Made

    def get(self, make: Callable[[], Made]) -> Made:
        if not self.made:
            with self._lock:
                if not self.made:
                    self._value = make()
                    self.made = True
        return self._value
