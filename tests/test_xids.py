"""The table of XID codes: what is explained, what is not, and what a person is told of."""

import dataclasses
import re
from pathlib import Path
from typing import get_args

import pytest

from alerts.reference_pages import xids_markdown, xids_page
from exporter.model.xids import CLASSES, XIDS, XidClass, explain

PAGE = Path(__file__).parents[1] / "docs/xids.md"
# What the catalogue calls unused for every GPU.
UNUSED = {5, 10, 15, 17, 23, 49, 50, 51, 52, 53, 55, 87, 90, 91, 138}
OF_APPLICATIONS = (13, 31, 43, 45, 68, 109)
every_code = pytest.mark.parametrize("xid", XIDS.values(), ids=lambda xid: str(xid.code))


def test_every_published_code_is_explained() -> None:
    """The table has all codes of the catalogue but the unused ones, and 999, which stands for unknown."""
    assert set(XIDS) == set(range(1, 173)) - UNUSED | {999}
    assert list(XIDS) == sorted(XIDS)


@every_code
def test_a_row_is_a_sentence_and_an_action(xid) -> None:
    """Meaning and action are plain sentences in which nothing is left to be filled in."""
    assert explain(xid.code) is xid
    for text in (xid.meaning, xid.action):
        assert re.fullmatch(r"[A-Z][^{}|\n]+\.", text)
    assert xid.kind in CLASSES


def test_every_class_is_explained() -> None:
    """The phrases of the classes are those of the type."""
    assert set(CLASSES) == set(get_args(XidClass))


@pytest.mark.parametrize("code", OF_APPLICATIONS)
def test_a_fault_of_an_application_is_no_fault_of_the_node(code) -> None:
    """The codes that the device plugin ignores too are the application's, and wake nobody."""
    assert explain(code).kind == "application"
    assert not explain(code).alert


@every_code
def test_who_is_told_follows_from_the_class(xid) -> None:
    """A person is told of a GPU that needs a reset or reboot, and of contained memory errors: no others."""
    assert xid.alert == (xid.kind in ("reset", "reboot") or xid.code == 94)


@pytest.mark.parametrize("code", [0, 5, 138, 173, 4_000_000_000])
def test_a_code_that_nobody_explains_is_called_unknown(code) -> None:
    """A code that the catalogue does not describe is neither guessed nor alerted on."""
    unknown = explain(code)

    assert (unknown.code, unknown.kind, unknown.alert) == (code, "unknown", False)
    assert "does not describe" in unknown.meaning


def test_a_row_cannot_be_changed() -> None:
    """The rows are facts."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        explain(79).alert = False  # type: ignore[misc]


def test_units_of_one_sort_are_numbered() -> None:
    """Codes of copy engines and decoders name the unit, in the catalogue's order."""
    assert "copy engine 9 " in explain(85).meaning
    assert "copy engine 10 " in explain(126).meaning
    assert "video decoder 5 " in explain(96).meaning
    assert "JPEG decoder 1 " in explain(99).meaning


def test_the_page_is_the_table() -> None:
    """The committed page has a row for each code, and is what the table says."""
    page = xids_page()

    assert page.startswith(xids_markdown().rstrip())
    assert len(re.findall(r"^\| (?:\*\*)?\d+", page, re.MULTILINE)) == len(XIDS)
    assert "| **79** | reboot | The GPU no longer answers on the PCIe bus |" in page
    assert page == PAGE.read_text(encoding="utf-8")
