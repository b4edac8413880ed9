"""A page is made once for each snapshot and format, from however many threads it is requested."""

import gc
import gzip
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from prometheus_client import Counter

from exporter.exposition import Exposition, Format, SelfMetrics
from exporter.metrics.selection import Selection
from exporter.model import ContainerRef


class CountingSelfMetrics(SelfMetrics):
    """Counts how often a page is put together."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies = 0

    def body(self, *, openmetrics: bool) -> bytes:
        self.bodies += 1
        return super().body(openmetrics=openmetrics)


def test_fifty_concurrent_callers_get_the_same_bytes_rendered_and_compressed_once(full) -> None:
    own = CountingSelfMetrics()
    page = Exposition(self_metrics=own).page(full)

    with ThreadPoolExecutor(50) as pool:
        zipped = [pool.submit(page.gzipped, Format.TEXT) for _ in range(50)]
        bodies = [pool.submit(page.body, Format.TEXT) for _ in range(50)]

    assert len({id(request.result()) for request in zipped}) == 1
    assert len({id(request.result()) for request in bodies}) == 1
    assert own.bodies == 1


def test_a_page_is_made_on_request_one_form_at_a_time(full) -> None:
    """A form that is made can be sent without waiting."""
    own = CountingSelfMetrics()
    page = Exposition(self_metrics=own).page(full)
    assert page.render_duration is None
    assert not page.ready(Format.TEXT, zipped=False)
    assert own.bodies == 0

    page.body(Format.TEXT)
    assert page.ready(Format.TEXT, zipped=False)
    assert not page.ready(Format.TEXT, zipped=True)
    assert not page.ready(Format.OPENMETRICS, zipped=False)
    assert page.render_duration > 0


def test_the_compressed_page_is_the_page(full) -> None:
    page = Exposition().page(full)

    for fmt in Format:
        assert page.body(fmt) == gzip.decompress(page.gzipped(fmt))


def test_both_versions_of_openmetrics_are_one_body_that_ends_once(full) -> None:
    page = Exposition().page(full)

    assert page.body(Format.OPENMETRICS) is page.body(Format.OPENMETRICS_0_0_1)
    assert page.body(Format.OPENMETRICS).endswith(b"\n# EOF\n")
    assert page.body(Format.OPENMETRICS).count(b"# EOF") == 1
    assert b"# EOF" not in page.body(Format.TEXT)
    assert page.body(Format.TEXT).endswith(b"\n")


@pytest.mark.parametrize("fmt", Format)
def test_the_page_has_series_of_the_process_the_build_and_its_own_rendering(full, parse, fmt) -> None:
    own = SelfMetrics()
    Counter("gpuslice_polls", "Polls.", registry=own.registry).inc(3)
    page = Exposition(self_metrics=own).page(full)

    values = {name: value for (name, _), value in parse(page.body(fmt), fmt).items()}

    assert page.render_duration == values["gpuslice_render_duration_seconds"]
    assert values["gpuslice_build_info"] == 1
    assert values["gpuslice_polls_total"] == 3
    assert {"process_resident_memory_bytes", "process_cpu_seconds_total", "python_info"} <= values.keys()


def test_two_exporters_in_one_process_have_registries_of_their_own() -> None:
    assert SelfMetrics().registry is not SelfMetrics().registry


def test_a_failed_rendering_is_tried_again(full) -> None:
    """The error reaches its caller, and the next caller gets the page."""

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


def cached_labels(exposition: Exposition) -> int:
    """Return the number of label strings that are kept from page to page."""
    cache = exposition._labels
    extras = (getattr(lines, "extras", {}) for _, _, lines in exposition._lines)
    return len(cache._previous | cache._current) + sum(map(len, extras))


def test_cached_label_strings_of_containers_that_are_gone_are_dropped(full) -> None:
    exposition = Exposition()
    sizes = set()
    for generation in range(5):
        rows = tuple(
            replace(full.containers[0], holder=ContainerRef("ml", f"pod-{generation}-{index}", "main"))
            for index in range(500)
        )
        exposition.page(replace(full, containers=rows)).body(Format.TEXT)
        sizes.add(cached_labels(exposition))

    assert len(sizes) == 1
    assert sizes.pop() < 800

    exposition.page(replace(full, containers=(), gpus=(), migs=())).body(Format.TEXT)
    assert cached_labels(exposition) < 25


def test_threads_that_render_different_snapshots_do_not_mix_labels(full, parse) -> None:
    exposition = Exposition(Selection(metric_set="full", dcgm_names="off"))
    snapshots = [
        replace(full, containers=(replace(full.containers[0], holder=ContainerRef("ml", f"p{n}", "c")),))
        for n in range(10)
    ]

    with ThreadPoolExecutor(8) as pool:
        bodies = list(pool.map(lambda snapshot: exposition.page(snapshot).body(Format.TEXT), snapshots))

    for n, body in enumerate(bodies):
        pods = {dict(labels)["pod"] for name, labels in parse(body, Format.TEXT) if "_container_" in name}
        assert pods == {f"p{n}"}


def test_a_page_without_a_reader_is_freed_without_the_garbage_collector(full) -> None:
    """A page is megabytes, and there is a new one every few seconds."""
    page = Exposition().page(full)
    for fmt in Format:
        page.body(fmt)
        page.gzipped(fmt)
    reference = weakref.ref(page)
    gc.disable()
    try:
        del page
        assert reference() is None
    finally:
        gc.enable()
