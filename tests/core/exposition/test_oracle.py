"""The renderer prints the same as prometheus_client, for any labels and any numbers."""

import math
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
    UnknownMetricFamily,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from exporter.exposition import EVERYTHING, Exposition, Format
from exporter.metrics import ENTITIES, FAMILIES, Family, dcgm
from exporter.metrics.dcgm import DCGM, DcgmVersion
from exporter.model import ContainerRef

FORMATS = [Format.TEXT, Format.OPENMETRICS]
VERSIONS = pytest.mark.parametrize("version", get_args(DcgmVersion))
EXAMPLES = settings(max_examples=60)


class TableCollector:
    """The families of the tables as prometheus_client collects them."""

    def __init__(self, snapshot, openmetrics: bool, version: DcgmVersion) -> None:
        self._snapshot = snapshot
        self._openmetrics = openmetrics
        self._entities = {**ENTITIES, **dcgm.levels(version, "Hostname")}
        self._families = (*FAMILIES, *DCGM[version])

    def collect(self):
        """Yield every family that has a sample."""
        for family in self._families:
            metric = self._metric(family)
            for labels, value in self._samples(family):
                metric.add_sample(family.name, labels, value)
            if metric.samples:
                yield metric

    def _metric(self, family) -> Metric:
        if family.type == "counter" and not family.name.endswith("_total"):
            kind = UnknownMetricFamily if self._openmetrics else GaugeMetricFamily
        else:
            kind = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "info": InfoMetricFamily}[
                family.type
            ]
        return kind(family.name.removesuffix("_info"), family.help)

    def _samples(self, family):
        for names, values, row in self._entities[family.level](self._snapshot):
            own = {name: text for name, text in zip(names, values, strict=True) if text}
            plain = isinstance(family, Family)
            samples = [((), family.value(row))] if plain else family.samples(row)
            for more, value in samples:
                extra = {name: text for name, text in zip(family.labels, more, strict=True) if text}
                if value is not None:
                    yield own | extra, value


def _by_client(snapshot, fmt: Format, version: DcgmVersion) -> bytes:
    registry = CollectorRegistry()
    registry.register(TableCollector(snapshot, fmt.openmetrics, version))
    return generate_openmetrics(registry) if fmt.openmetrics else generate_latest(registry)


def _page(snapshot, fmt: Format, version: DcgmVersion) -> bytes:
    return Exposition(replace(EVERYTHING, dcgm_version=version)).page(snapshot).body(fmt)


def _ours(page: dict) -> dict:
    return {key: value for key, value in page.items() if not key[0].startswith(("process_", "python_"))}


@VERSIONS
@pytest.mark.parametrize("fmt", FORMATS)
def test_same_samples_as_the_client_library(full, parse, fmt, version) -> None:
    """No series is twice on the page: ``parse`` refuses that."""
    expected = parse(_by_client(full, fmt, version), fmt)

    page = _ours(parse(_page(full, fmt, version), fmt))

    own = {key for key in page if key[0] in {"gpuslice_build_info", "gpuslice_render_duration_seconds"}}
    assert expected == {key: value for key, value in page.items() if key not in own}
    assert len(own) == 2


@VERSIONS
@pytest.mark.parametrize("fmt", FORMATS)
def test_types_and_help_texts_are_those_of_the_client_library(full, fmt, version) -> None:
    """HELP and TYPE lines agree with prometheus_client's, but for counters under DCGM's names."""
    expected = _headers(_by_client(full, fmt, version))

    ours = _headers(_page(full, fmt, version))

    differing = {line for line in expected if line not in ours}
    assert all(line.startswith("# TYPE DCGM_") and not fmt.openmetrics for line in differing)
    # One HELP and one TYPE line of each family.
    assert len({tuple(line.split()[1:3]) for line in ours}) == len(ours)


def _headers(page: bytes) -> list[str]:
    return [line for line in page.decode().split("\n") if line.startswith("# ")]


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@EXAMPLES
@given(fmt=st.sampled_from(FORMATS), names=st.lists(st.tuples(TEXT, TEXT, TEXT), unique=True, max_size=4))
def test_any_label_value_comes_back_from_the_parser(full, bare, parse, fmt, names) -> None:
    rows = tuple(replace(full.containers[0], holder=ContainerRef(*name)) for name in names)

    page = parse(Exposition().page(replace(bare, containers=rows)).body(fmt), fmt)

    rows = [dict(labels) for name, labels in page if name == "gpuslice_container_slices"]
    # An empty label is absent.
    read = [tuple(row.get(label, "") for label in ("namespace", "pod", "container")) for row in rows]
    assert sorted(names) == sorted(read)


@EXAMPLES
@given(
    fmt=st.sampled_from(FORMATS),
    name=st.text(st.characters(categories=["Cs", "Lu", "Po"]), min_size=1, max_size=8),
)
def test_undecodable_names_become_replacement_characters(full, bare, parse, fmt, name) -> None:
    """A lone surrogate never breaks a page: it reads as U+FFFD."""
    row = replace(full.containers[0], holder=ContainerRef("ml", name, "main"))

    page = parse(Exposition().page(replace(bare, containers=(row,))).body(fmt), fmt)

    expected = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in name)
    assert [expected] == [dict(labels)["pod"] for key, labels in page if key == "gpuslice_container_slices"]


@EXAMPLES
@given(fmt=st.sampled_from(FORMATS), value=st.floats() | st.integers())
def test_any_number_comes_back_from_the_parser(full, bare, parse, fmt, value) -> None:
    """NaN and the infinities too."""
    row = replace(full.containers[0], compute_used=value)

    page = parse(Exposition().page(replace(bare, containers=(row,))).body(fmt), fmt)

    (read,) = [
        number for (name, _), number in page.items() if name == "gpuslice_container_compute_used_ratio"
    ]
    assert float(read) == float(value) or (math.isnan(read) and math.isnan(value))
