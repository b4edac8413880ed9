"""A node under DCGM's names, against pages in files that were written by hand."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from exporter.exposition import Exposition, Format
from exporter.metrics import AnyFamily
from exporter.metrics.dcgm import DCGM, LEGACY, DcgmVersion
from exporter.metrics.selection import Selection
from exporter.model.xids import explain
from tests.core.exposition.dcgm_node import NODE, WHOLE

HERE = Path(__file__).parent
UNITS = re.compile(r"\((MHz|Hz|C|%|ratio|W|mJ|J|KB/s|MB/s|bytes/s|ns|us|MiB|bytes)\)")
SAMPLE = re.compile(r"((?:DCGM|dcgm)_\w+)\{(.*)\} (\S+)")
MESSAGE = re.compile(r',err_msg="[^"]*"')


class Line(NamedTuple):
    """One line of a page written by hand; ``unit`` is "-" for a number without one."""

    labels: str
    name: str
    type: str
    value: float
    unit: str


def _written(name: str) -> Iterator[Line]:
    entity = ""
    for line in (HERE / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            entity = line[1:-1]
        elif line and not line.startswith("#"):
            series, kind, value, unit = line.rsplit(maxsplit=3)
            family, _, extra = series.partition(",")
            yield Line(f"{entity},{extra}" if extra else entity, family, kind, float(value), unit)


def _named(names, snapshot, fmt, version="4.8") -> str:
    selection = Selection(metric_set="full", dcgm_names=names, dcgm_version=version)
    return Exposition(selection).page(snapshot).body(fmt).decode()


def _text(names: str, version: DcgmVersion = "4.8") -> str:
    return _named(names, NODE, Format.TEXT, version)


def _printed(text: str, *names: str) -> list[tuple[str, str, float]]:
    matches = [SAMPLE.fullmatch(line) for line in text.splitlines()]
    return [
        (match[1], MESSAGE.sub("", match[2]), float(match[3]))
        for match in matches
        if match and match[1] in names
    ]


class Names(NamedTuple):
    """A part of a page with a file of its own."""

    option: str
    version: DcgmVersion
    families: tuple[AnyFamily, ...]
    file: str

    def printed(self, text: str) -> list[tuple[str, str, float]]:
        return _printed(text, *(family.name for family in self.families))


RENAMED = tuple(family for family in DCGM["4.9"] if family.level == "dcgm_new")
PAGES = pytest.mark.parametrize(
    "names",
    [
        Names("all", "4.8", DCGM["4.8"], "dcgm_page.txt"),
        Names("all", "4.9", RENAMED, "dcgm_page_new.txt"),
        Names("all", "both", RENAMED, "dcgm_page_new.txt"),
        Names("legacy", "4.8", LEGACY, "dcgm_legacy.txt"),
        Names("legacy", "4.9", LEGACY, "dcgm_legacy.txt"),
    ],
    ids=["names up to 4.8", "names from 4.9 on", "these among both", "version 1", "version 1 with 4.9"],
)


@PAGES
def test_the_page_is_the_one_in_its_file(names: Names) -> None:
    expected = [(line.name, line.labels, line.value) for line in _written(names.file)]

    assert sorted(names.printed(_text(names.option, names.version))) == sorted(expected)


@PAGES
def test_types_and_units_are_those_in_its_file(names: Names) -> None:
    """For every family of the table: its type on the page, and the unit in its help text."""
    text = _text(names.option, names.version)
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    helps = {family.name: family.help for family in names.families}
    lines = list(_written(names.file))

    assert {line.name for line in lines} == helps.keys()
    for line in lines:
        unit = UNITS.search(helps[line.name])
        assert (types[line.name], unit[1] if unit else "-") == (line.type, line.unit), line.name


@PAGES
def test_both_formats_have_the_same_samples(names: Names) -> None:
    page = _named(names.option, NODE, Format.OPENMETRICS, names.version)

    assert names.printed(page) == names.printed(_text(names.option, names.version))
    assert list(text_string_to_metric_families(page))


def test_fields_and_types_are_those_of_dcgm_exporter() -> None:
    """Each field of dcgm-exporter's counter lists is printed with its type, except those with a reason."""
    types = {family.name: family.type for family in DCGM["4.8"]}
    fields = [line.split(maxsplit=3) for line in (HERE / "dcgm_fields.txt").read_text().splitlines()]
    listed = [[*field, ""][:4] for field in fields if field and field[0] != "#"]

    assert len(listed) > 60
    for name, theirs, ours, reason in listed:
        assert types.get(name, "absent") == ours, name
        assert bool(reason) == (ours != theirs), name


def test_the_meaning_of_an_xid_is_a_label() -> None:
    """err_msg has the words of dcgm-exporter for no error."""
    messages = dict(re.findall(r'err_code="(\d+)",err_msg="([^"]*)"', _text("only")))

    assert messages == {
        "0": "No Error",
        "31": explain(31).meaning,
        "79": explain(79).meaning,
        "94": explain(94).meaning,
    }


def test_recent_xids_are_not_counted_if_events_of_the_window_were_dropped() -> None:
    newest = replace(NODE, events=NODE.events[3:])

    page = _named("all", newest, Format.TEXT)

    counted = [labels for name, labels, _ in _printed(page, "DCGM_EXP_XID_ERRORS_COUNT")]
    assert any('gpu="0"' in labels for labels in counted)
    assert not any('gpu="1"' in labels for labels in counted)
    assert not any('gpu="3"' in labels for labels in counted)


def test_without_a_subscription_to_events_there_is_no_zero_of_xids() -> None:
    unwatched = replace(NODE, gpus=(replace(WHOLE, watched=False),), migs=())

    assert "DCGM_FI_DEV_XID_ERRORS" not in _named("all", unwatched, Format.TEXT)


def test_a_partitioned_gpu_prints_its_own_shares_if_its_instances_report_none() -> None:
    bare = tuple(replace(mig, reading=replace(mig.reading, profiling=None)) for mig in NODE.migs)

    page = _named("only", replace(NODE, migs=bare), Format.TEXT)

    shares = {labels: value for _, labels, value in _printed(page, "DCGM_FI_PROF_GR_ENGINE_ACTIVE")}
    assert [value for labels, value in shares.items() if 'gpu="1"' in labels] == [0.91]
    assert not any("GPU_I_ID" in labels for labels in shares)
