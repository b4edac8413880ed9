"""A page is made once for each snapshot and format, whoever asks and from however many threads."""

import gzip
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, Counter

from exporter.exposition import Exposition, Format, SelfMetrics
from exporter.metrics.selection import Selection
from exporter.model import ContainerRef


class CountingSelfMetrics(SelfMetrics):
    """Counts how often a page is put together."""

    def __init__(self) -> None:
        """Count nothing yet."""
        super().__init__()
        self.bodies = 0

    def body(self, *, openmetrics: bool) -> bytes:
        """Count and render."""
        self.bodies += 1
        return super().body(openmetrics=openmetrics)


def test_fifty_callers_make_a_page_once(full) -> None:
    """Concurrent callers get the very same bytes, rendered and compressed once."""
    own = CountingSelfMetrics()
    page = Exposition(self_metrics=own).page(full)

    with ThreadPoolExecutor(50) as pool:
        asked = [pool.submit(page.gzipped, Format.TEXT) for _ in range(50)]
        bodies = [pool.submit(page.body, Format.TEXT) for _ in range(50)]

    assert len({id(each.result()) for each in asked}) == 1
    assert len({id(each.result()) for each in bodies}) == 1
    assert own.bodies == 1


def test_nothing_is_rendered_before_it_is_asked_for(full) -> None:
    """A page without a scrape costs nothing."""
    own = CountingSelfMetrics()
    page = Exposition(self_metrics=own).page(full)

    assert page.render_duration is None
    assert not page.ready(Format.TEXT, zipped=False)
    assert own.bodies == 0


def test_a_page_tells_what_is_made(full) -> None:
    """A form that is made can be handed out without waiting; the other forms are not made with it."""
    page = Exposition().page(full)
    page.body(Format.TEXT)

    assert page.ready(Format.TEXT, zipped=False)
    assert not page.ready(Format.TEXT, zipped=True)
    assert not page.ready(Format.OPENMETRICS, zipped=False)
    assert page.render_duration > 0


@pytest.mark.parametrize("fmt", Format)
def test_the_compressed_page_is_the_page(full, fmt) -> None:
    """What gzip packs is the body of the same format."""
    page = Exposition().page(full)

    assert page.body(fmt) == gzip.decompress(page.gzipped(fmt))


def test_both_versions_of_openmetrics_are_one_body(full) -> None:
    """The versions differ in their content type only."""
    page = Exposition().page(full)

    assert page.body(Format.OPENMETRICS) is page.body(Format.OPENMETRICS_0_0_1)


def test_openmetrics_ends_once(full) -> None:
    """A page of OpenMetrics ends with its only # EOF; the text format has none."""
    page = Exposition().page(full)

    assert page.body(Format.OPENMETRICS).endswith(b"\n# EOF\n")
    assert page.body(Format.OPENMETRICS).count(b"# EOF") == 1
    assert b"# EOF" not in page.body(Format.TEXT)
    assert page.body(Format.TEXT).endswith(b"\n")


@pytest.mark.parametrize("fmt", Format)
def test_the_exporter_tells_of_itself_on_the_page(full, parse, fmt) -> None:
    """Process, platform, build and this page's render time are on it, with all that is registered."""
    own = SelfMetrics()
    Counter("gpuslice_polls", "Polls.", registry=own.registry).inc(3)
    page = Exposition(self_metrics=own).page(full)

    found = {name: value for (name, _), value in parse(page.body(fmt), fmt).items()}

    assert page.render_duration == found["gpuslice_render_duration_seconds"]
    assert found["gpuslice_build_info"] == 1
    assert found["gpuslice_polls_total"] == 3
    assert {"process_resident_memory_bytes", "process_cpu_seconds_total", "python_info"} <= set(found)


def test_self_metrics_keep_to_their_own_registry() -> None:
    """Two exporters in one process do not meet in a global registry."""
    first, second = SelfMetrics(), SelfMetrics()

    assert isinstance(first.registry, CollectorRegistry)
    assert first.registry is not second.registry


def test_a_failed_rendering_is_tried_again(full) -> None:
    """An error reaches the caller, and the next caller does not get a broken page."""

    class Failing(CountingSelfMetrics):
        def body(self, *, openmetrics: bool) -> bytes:
            rendered = super().body(openmetrics=openmetrics)
            if self.bodies == 1:
                raise OSError("no /proc")
            return rendered

    page = Exposition(self_metrics=Failing()).page(full)

    with pytest.raises(OSError, match="no /proc"):
        page.body(Format.TEXT)
    assert page.body(Format.TEXT).startswith(b"# HELP")


@pytest.mark.slow
def test_cached_labels_are_bounded_while_containers_come_and_go(full) -> None:
    """Label strings of containers that are gone are dropped, and those of the living are kept."""
    exposition = Exposition()
    sizes = set()
    for generation in range(20):
        rows = tuple(
            replace(full.containers[0], holder=ContainerRef("ml", f"pod-{generation}-{index}", "main"))
            for index in range(500)
        )
        exposition.page(replace(full, containers=rows)).body(Format.TEXT)
        sizes.add(exposition.cached_labels())

    assert len(sizes) == 1
    assert sizes.pop() < 800

    exposition.page(replace(full, containers=(), gpus=(), migs=())).body(Format.TEXT)
    assert exposition.cached_labels() < 25


@pytest.mark.slow
def test_pages_of_several_snapshots_can_be_made_at_once(full, parse) -> None:
    """Threads that render different snapshots do not mix their labels."""
    exposition = Exposition(Selection(metric_set="full", dcgm_names="off"))
    snapshots = [
        replace(full, containers=(replace(full.containers[0], holder=ContainerRef("ml", f"p{n}", "c")),))
        for n in range(40)
    ]

    with ThreadPoolExecutor(8) as pool:
        bodies = list(pool.map(lambda snapshot: exposition.page(snapshot).body(Format.TEXT), snapshots))

    for n, body in enumerate(bodies):
        pods = {dict(labels)["pod"] for name, labels in parse(body, Format.TEXT) if "_container_" in name}
        assert pods == {f"p{n}"}
