"""The page on migration agrees with the tables, and with a node that has every reading."""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import yaml

from alerts.reference_pages import settings_page
from exporter.commands.metrics import metrics_markdown
from exporter.exposition import Exposition, Format
from exporter.metrics.dcgm import DCGM
from tests.core.exposition.dcgm_node import NODE
from tests.tools import ROOT

PAGE = (ROOT / "docs/migration.md").read_text(encoding="utf-8")
LISTED = ROOT / "tests/core/exposition/dcgm_fields.txt"
ROW = re.compile(r"^\| `(DCGM_\w+)` \| (yes)? ?\| `([^`]+)`(?:, `([^`]+)`)? \| (.*) \|$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')
SELECTOR = re.compile(r"(\w+)(?:\{(.*)\})?")
# The conversion of our number into dcgm-exporter's, if one number is enough.
CONVERSIONS = {
    "the same": lambda value: value,
    "÷ 10^6": lambda value: value / 10**6,
    "÷ 1024": lambda value: value / 1024,
    "÷ 2^20, rounded down": lambda value: math.floor(value / 2**20),
    "× 100": lambda value: value * 100,  # noqa: RUF001 - as the page has it
    "× 1000": lambda value: value * 1000,  # noqa: RUF001 - as the page has it
    "× 10^9": lambda value: value * 10**9,  # noqa: RUF001 - as the page has it
}
Labels = dict[str, str]


class Row(NamedTuple):
    """The old name, "yes" if it is exported by default, our series of a GPU and of MIG, the conversion."""

    name: str
    default: str
    gpu: str
    mig: str
    how: str


class Sample(NamedTuple):
    """One line of /metrics."""

    labels: Labels
    value: float


ROWS = [Row(*found) for found in ROW.findall(PAGE)]


@pytest.fixture(scope="module")
def samples() -> dict[str, list[Sample]]:
    """Return the samples of a node with every reading, under both kinds of names, by name."""
    page = Exposition().page(NODE).body(Format.TEXT).decode()
    found: dict[str, list[Sample]] = {}
    for name, labels, value in re.findall(r"^(\w+)\{(.*)\} (\S+)$", page, re.MULTILINE):
        found.setdefault(name, []).append(Sample(dict(LABEL.findall(labels)), float(value)))
    return found


def _ours(samples: dict[str, list[Sample]], selector: str, **labels: str) -> list[float]:
    name, written = SELECTOR.fullmatch(selector).groups()
    wanted = labels | dict(LABEL.findall(written or ""))
    return [each.value for each in samples.get(name, ()) if wanted.items() <= each.labels.items()]


def _pairs(samples: dict[str, list[Sample]], row: Row) -> Iterator[tuple[float, float]]:
    """Yield dcgm-exporter's number and ours for each device that has the first."""
    migs = {
        (mig.labels["uuid"], mig.labels["gi"]): mig.labels["mig_uuid"] for mig in samples["gpuslice_mig_info"]
    }
    for theirs in samples[row.name]:
        uuid, instance = theirs.labels["UUID"], theirs.labels.get("GPU_I_ID")
        more = {"xid": theirs.labels["xid"]} if "xid" in theirs.labels else {}
        if instance is None:
            values = _ours(samples, row.gpu, uuid=uuid, **more)
        else:
            values = _ours(samples, row.mig or row.gpu, uuid=uuid, mig_uuid=migs[uuid, instance], **more)
        for value in values:
            yield theirs.value, value


def test_every_name_has_its_row() -> None:
    """Once, in the order of the table in the code."""
    assert [row.name for row in ROWS] == [family.name for family in DCGM["4.8"]]


def test_names_by_default_are_those_of_its_list() -> None:
    listed = {line.split()[0] for line in LISTED.read_text().splitlines() if line and line[0] != "#"}

    assert sum(row.default == "yes" for row in ROWS) == 25
    assert {row.name for row in ROWS if row.default} <= listed


def test_every_field_of_its_lists_is_on_the_page() -> None:
    """Also those that are not exported."""
    fields = [line.split()[0] for line in LISTED.read_text().splitlines() if line and line[0] != "#"]

    assert [field for field in fields if f"`{field}`" not in PAGE] == []


def test_our_series_on_the_page_exist() -> None:
    """In the reference, with the labels of the page."""
    reference = metrics_markdown()
    known = dict(re.findall(r"^\| `(gpuslice_\w+)` \| \w+ \| (.*?) \|", reference, re.MULTILINE))

    named = set(re.findall(r"gpuslice_[a-z]\w+(?<!_)(?!\w|_…|…)", PAGE))
    assert len(named) > 80
    assert named - known.keys() == set()
    for row in ROWS:
        name, written = SELECTOR.fullmatch(row.gpu).groups()
        assert set(re.findall(r'(\w+)="', written or "")) <= set(re.findall(r"`(\w+)`", known[name])), (
            row.name
        )


def test_our_converted_number_is_the_one_under_the_old_name(samples) -> None:
    """On every device of the node, for every row with a conversion."""
    for row in (row for row in ROWS if row.how in CONVERSIONS):
        pairs = list(_pairs(samples, row))
        assert pairs, row.name
        for theirs, ours in pairs:
            assert CONVERSIONS[row.how](ours) == pytest.approx(theirs, rel=1e-9), row.name


def test_a_series_of_mig_has_the_number_of_its_instance(samples) -> None:
    (row,) = [row for row in ROWS if row.name == "DCGM_FI_DEV_FB_USED"]
    instances = [each for each in samples[row.name] if "GPU_I_ID" in each.labels]
    whole = samples | {row.name: instances}

    assert instances
    assert list(_pairs(whole, row))
    assert not list(_pairs(whole, row._replace(mig="")))


def test_few_conversions_are_described_in_words() -> None:
    """Those that are not of a single number."""
    words = [row.name for row in ROWS if row.how not in CONVERSIONS]

    assert len(words) < 20
    assert all(len(row.how) > 15 for row in ROWS if row.how not in CONVERSIONS)


def test_our_settings_on_the_page_exist() -> None:
    """Each flag in the right column is an option, and each value one of the chart."""
    flags, values = _settings_tables()
    options = set(re.findall(r"`(--[\w-]+)`", settings_page()))
    chart = yaml.safe_load((ROOT / "deploy/charts/gpuslice-exporter/values.yaml").read_text())

    assert set(re.findall(r"`(--[\w-]+)", flags)) - options == set()
    for path in re.findall(r"`([\w.-]+)`", values):
        place, option = path.split("."), path.removeprefix("config.")
        found = chart[place[0]]
        assert place[0] != "config" or len(place) == 1 or f"--{option}" in options, path
        for key in place[1:] if place[0] != "config" else ():
            found = found[key]


def _settings_tables() -> tuple[str, str]:
    """Return the right columns of the two tables of settings, as text."""
    (section,) = re.findall(r"^### Settings\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    tables = [block for block in section.strip().split("\n\n") if block.startswith("|")]
    first, second = ("\n".join(line.split(" | ")[-1] for line in block.splitlines()[2:]) for block in tables)
    return first, second
