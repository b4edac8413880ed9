"""Claims about every row of the tables."""

import re
from dataclasses import replace

import pytest

from exporter.exposition import EVERYTHING, Exposition, Format, SelfMetrics
from exporter.metrics import FAMILIES, LEVEL_LABELS, Family, LabelledFamily, field_name
from exporter.metrics.dcgm import DCGM

ALL = (*FAMILIES, *DCGM["both"])
BOTH = replace(EVERYTHING, dcgm_version="both")
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
OF_A_LOST_GPU = {*OBSERVED, "gpuslice_gpu_board_info", "gpuslice_gpu_condition", "gpuslice_gpu_job_info"}
CLOCK_EVENTS = ("gpuslice_gpu_clock_events", "DCGM_EXP_CLOCK_EVENTS")

BASE_UNITS = ("_bytes", "_ratio", "_watts", "_joules", "_celsius", "_hertz", "_seconds", "_per_second")
COUNTS = re.compile(
    r"_(up|slices|unhealthy|cordoned|allocated|holders|processes|multiprocessors|success|available|unreadable|unresolved|released)$|_v?gpus$"
    r"|_(generation|width)(_max)?$|_(nvlinks|c2c_links)(_active)?$"
    r"|_(labels|pods|rows|banks|pages|instances|pending|failure|engines|sessions|unsupported|cycles)$"
    r"|_(enabled|active|state|mode|action|condition|watched|licensed|blind|problem|ready)$"
)


def _text(snapshot) -> str:
    return Exposition(BOTH).page(snapshot).body(Format.TEXT).decode()


def _with_samples(text: str) -> set[str]:
    """Return the names of the samples of a page."""
    return set(re.findall(r"^(\w+)[ {]", text, re.MULTILINE))


@pytest.fixture(scope="module")
def known(full) -> str:
    """Return the page of the node with every value known."""
    return _text(full)


def test_every_family_has_a_sample_if_everything_is_known(known) -> None:
    assert {family.name for family in ALL} <= _with_samples(known)


def test_a_family_without_a_known_value_has_no_sample_and_no_header(bare) -> None:
    page, names = _text(bare), {family.name for family in ALL}

    assert _with_samples(page) & names == OBSERVED
    assert set(re.findall(r"^# (?:HELP|TYPE) (\w+) ", page, re.MULTILINE)) & names == OBSERVED


def test_before_the_first_poll_it_is_unknown_whether_processes_are_visible(bare) -> None:
    assert "gpuslice_process_attribution_available" not in _text(replace(bare, sequence=0))


def test_a_lost_gpu_has_only_its_identity_its_state_and_its_allocated_slices(full) -> None:
    read = {
        family.name
        for family in ALL
        if family.group != "events" and not family.name.startswith(CLOCK_EVENTS)
        if family.level.startswith("dcgm")
        or (family.level == "gpu" and family.name not in OF_A_LOST_GPU and family.group != "sharing")
    }
    down = tuple(replace(gpu, reading=replace(gpu.reading, up=False)) for gpu in full.gpus)
    gone = tuple(replace(gpu, reading=None) for gpu in full.gpus)
    for gpus in (down, gone):
        page = _text(replace(full, gpus=gpus, migs=()))
        assert _with_samples(page) & read == set()
        assert re.search(r'gpuslice_gpu_up\{.*uuid="GPU-shared"\} 0\n', page)


def test_no_family_has_a_label_of_the_target() -> None:
    """Prometheus would replace the target's if labels are honoured."""
    labels = {label for family in ALL if isinstance(family, LabelledFamily) for label in family.labels}

    assert labels
    assert not labels & {"job", "instance", "cluster", "__name__", "le", "quantile"}


def test_names_are_unique_also_among_those_of_the_process() -> None:
    own = {metric.name for metric in SelfMetrics().registry.collect()}
    names = [family.name for family in ALL]

    assert len(names) == len(set(names))
    assert not own & {name.removesuffix("_info").removesuffix("_total") for name in names}


def test_names_follow_the_conventions_of_prometheus() -> None:
    """Snake case under one prefix, _total on counters only, _info on identity only, and base units."""
    for family in FAMILIES:
        assert re.fullmatch(r"gpuslice_[a-z0-9]+(_[a-z0-9]+)*", family.name)
        assert (family.type == "counter") == family.name.endswith("_total"), family.name
        assert (family.type == "info") == family.name.endswith("_info"), family.name
        assert not re.search(r"percent|mebi|mega|milli|_mb|_mhz|_count$|_sum$|_bucket$", family.name)
        without_unit = family.type == "gauge" and not family.name.endswith(BASE_UNITS)
        assert not without_unit or COUNTS.search(family.name), family.name


def test_help_is_a_sentence_without_characters_to_escape() -> None:
    assert [family.name for family in ALL if not re.fullmatch(r'[^\n\\"]+\.', family.help)] == []


def test_labels_of_a_family_differ_from_those_of_its_level() -> None:
    for family in FAMILIES:
        labels = (*LEVEL_LABELS[family.level], *family.labels)
        assert len(labels) == len(set(labels)), family.name


@pytest.mark.parametrize("level", LEVEL_LABELS)
def test_field_names_are_unique_within_a_level(level) -> None:
    """Labels, info labels and values of one level never share a name in JSON or CSV."""
    fields = list(LEVEL_LABELS[level])
    for family in FAMILIES:
        if family.level == level:
            fields += family.labels if family.type == "info" else [field_name(family)]

    assert len(fields) == len(set(fields))


def test_info_series_have_the_value_1_and_flags_1_or_0(known) -> None:
    infos = [line for line in known.splitlines() if re.match(r"gpuslice_(?!build)\w+_info\{", line)]

    assert infos
    assert [line for line in infos if not line.endswith("} 1")] == []
    assert "True" not in known
    assert "False" not in known
    assert all(isinstance(family, Family) or family.labels for family in ALL)
