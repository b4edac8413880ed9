"""Claims about every row of the tables."""

import re
from dataclasses import replace

import pytest

from exporter.exposition import Exposition, Format, SelfMetrics
from exporter.metrics import FAMILIES, LEVEL_LABELS, Family, LabelledFamily, field_name
from exporter.metrics.dcgm import DCGM

ALL = (*FAMILIES, *DCGM)
OBSERVED = {
    "gpuslice_node_info",
    "gpuslice_process_attribution_available",
    "gpuslice_snapshot_timestamp_seconds",
    "gpuslice_collector_success",
    "gpuslice_gpu_info",
    "gpuslice_gpu_up",
    "gpuslice_driver_released",
    "gpuslice_nvml_unsupported",
    "gpuslice_gpu_events_watched",
    "gpuslice_mig_info",
    "gpuslice_vgpu_info",
    "gpuslice_container_info",
}
"""Families with a value for an entity as soon as it exists."""

BASE_UNITS = ("_bytes", "_ratio", "_watts", "_joules", "_celsius", "_hertz", "_seconds", "_per_second")
COUNTS = re.compile(
    r"_(up|slices|unhealthy|cordoned|allocated|holders|processes|multiprocessors|success|available|unreadable|unresolved|released)$|_v?gpus$"
    r"|_(generation|width)(_max)?$|_(nvlinks|c2c_links)(_active)?$"
    r"|_(labels|pods|rows|banks|pages|instances|pending|failure|engines|sessions)$"
    r"|_(enabled|active|state|mode|action|condition|watched|licensed|blind|problem|ready)$"
)

each_family = pytest.mark.parametrize("family", ALL, ids=lambda family: family.name)
each_native = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def _text(snapshot) -> str:
    return Exposition().page(snapshot).body(Format.TEXT).decode()


@pytest.fixture(scope="module")
def known(full) -> str:
    """Return the page of the node with every value known."""
    return _text(full)


@pytest.fixture(scope="module")
def unknown(bare) -> str:
    """Return the page of the node with every value unknown."""
    return _text(bare)


@pytest.fixture(scope="module")
def lost(full) -> set[str]:
    """Return the pages of the full node with its GPUs down, by their reading and without a reading."""
    down = tuple(replace(gpu, reading=replace(gpu.reading, up=False)) for gpu in full.gpus)
    gone = tuple(replace(gpu, reading=None) for gpu in full.gpus)
    return {_text(replace(full, gpus=gpus, migs=())) for gpus in (down, gone)}


@each_family
def test_a_known_value_is_printed(known, family) -> None:
    """Every family has a sample where everything is known."""
    assert re.search(rf"^{family.name}[ {{]", known, re.MULTILINE)


@each_family
def test_an_unknown_value_is_absent(unknown, family) -> None:
    """A family without any known value prints nothing: no sample, no HELP, no TYPE."""
    assert (family.name in OBSERVED) == (f" {family.name} " in unknown)
    assert (family.name in OBSERVED) == bool(re.search(rf"^{family.name}[ {{]", unknown, re.MULTILINE))


def test_before_the_first_poll_no_process_view_is_claimed(bare) -> None:
    """Before the first poll it is unknown whether processes are visible."""
    assert "gpuslice_process_attribution_available" not in _text(replace(bare, sequence=0))


@each_family
def test_a_lost_gpu_says_nothing_but_its_name(lost, family) -> None:
    """A GPU that does not answer has only its identity, its state and the slices that are held on it."""
    of_events = family.group == "events" or family.name.startswith(
        ("gpuslice_gpu_clock_events", "DCGM_EXP_CLOCK_EVENTS")
    )
    identity = {*OBSERVED, "gpuslice_gpu_board_info", "gpuslice_gpu_condition", "gpuslice_gpu_job_info"}
    printed = family.name in identity or family.group == "sharing"
    from_driver = not of_events and (family.level == "dcgm" or (family.level == "gpu" and not printed))
    if from_driver:
        assert not any(f"\n{family.name}{{" in text for text in lost)
    assert all(re.search(r'gpuslice_gpu_up\{.*uuid="GPU-shared"\} 0\n', text) for text in lost)


def test_no_label_is_one_that_prometheus_gives_itself() -> None:
    """No family has a label of the target, which it would replace if labels are honoured."""
    labels = {label for family in ALL if isinstance(family, LabelledFamily) for label in family.labels}

    assert labels
    assert not labels & {"job", "instance", "cluster", "__name__", "le", "quantile"}


def test_names_are_unique_and_apart_from_the_exporters_own() -> None:
    """No two families share a name, neither with each other nor with those of the process itself."""
    own = {metric.name for metric in SelfMetrics().registry.collect()}
    names = [family.name for family in ALL]

    assert len(names) == len(set(names))
    assert not own & {name.removesuffix("_info").removesuffix("_total") for name in names}


@each_native
def test_names_follow_the_conventions(family) -> None:
    """Names are snake case under one prefix, with _total on counters only and _info on identity only."""
    assert re.fullmatch(r"gpuslice_[a-z0-9]+(_[a-z0-9]+)*", family.name)
    assert (family.type == "counter") == family.name.endswith("_total")
    assert (family.type == "info") == family.name.endswith("_info")
    assert not re.search(r"percent|mebi|mega|milli|_mb|_mhz|_count$|_sum$|_bucket$", family.name)


@each_native
def test_units_are_base_units(family) -> None:
    """A name that is not a count ends in a base unit."""
    name = family.name.removesuffix("_total")

    assert (
        family.type == "info"
        or name.endswith(BASE_UNITS)
        or COUNTS.search(name)
        or family.type == "counter"
        or (family.name == "gpuslice_nvml_unsupported")
    )


@each_family
def test_help_is_one_sentence_of_plain_text(family) -> None:
    """Help texts are there, end with a full stop and need no escaping."""
    assert family.help.endswith(".")
    assert not re.search(r'[\n\\"]', family.help)


@each_native
def test_labels_of_a_family_are_not_those_of_its_level(family) -> None:
    """No label name can be on a sample twice."""
    labels = (*LEVEL_LABELS[family.level], *family.labels)

    assert len(labels) == len(set(labels))


@pytest.mark.parametrize("level", LEVEL_LABELS)
def test_field_names_are_unique_within_a_level(level) -> None:
    """Labels, info labels and values of one level never share a name in JSON or CSV."""
    fields = list(LEVEL_LABELS[level])
    for family in FAMILIES:
        if family.level == level:
            fields += family.labels if family.type == "info" else [field_name(family)]

    assert len(fields) == len(set(fields))


@each_native
def test_info_is_always_one(known, family) -> None:
    """A series that carries names has the value 1."""
    lines = [line for line in known.splitlines() if line.startswith(f"{family.name}{{")]

    assert family.type != "info" or (lines and all(line.endswith("} 1") for line in lines))


def test_no_value_function_gives_a_boolean(known) -> None:
    """Truth is printed as 1 and 0."""
    assert "True" not in known
    assert "False" not in known
    assert all(isinstance(family, Family) or family.labels for family in ALL)
