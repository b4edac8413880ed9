"""The table of XID codes: what is explained, what is not, and what a person is told of."""

import re
from pathlib import Path
from typing import get_args

import pytest

from alerts.reference_pages import xids_markdown, xids_page
from alerts.wording import xid_meaning
from exporter.model.xids import CLASSES, XIDS, XidClass, explain

PAGE = Path(__file__).parents[3] / "docs/xids.md"
# What the catalogue calls unused for every GPU.
UNUSED = {5, 10, 15, 17, 23, 49, 50, 51, 52, 53, 55, 87, 90, 91, 138}
OF_APPLICATIONS = (13, 31, 43, 45, 68, 109)
every_code = pytest.mark.parametrize("xid", XIDS.values(), ids=lambda xid: str(xid.code))


def test_every_published_code_is_explained() -> None:
    """All codes of the catalogue but the unused ones, and 999, which means unknown."""
    assert set(XIDS) == set(range(1, 173)) - UNUSED | {999}
    assert list(XIDS) == sorted(XIDS)


@every_code
def test_meaning_and_action_are_sentences(xid) -> None:
    assert explain(xid.code) is xid
    for text in (xid.meaning, xid.action):
        assert re.fullmatch(r"[A-Z][^{}|\n]+\.", text)
    assert xid.kind in CLASSES


def test_every_class_is_explained() -> None:
    assert set(CLASSES) == set(get_args(XidClass))


@pytest.mark.parametrize("code", OF_APPLICATIONS)
def test_application_errors_do_not_alert(code) -> None:
    """The device plugin ignores these codes too."""
    assert explain(code).kind == "application"
    assert not explain(code).alert


@every_code
def test_codes_that_need_a_reset_or_reboot_alert(xid) -> None:
    """And contained memory errors."""
    assert xid.alert == (xid.kind in ("reset", "reboot") or xid.code == 94)


@pytest.mark.parametrize("code", [0, 5, 138, 173, 4_000_000_000])
def test_an_unknown_code_does_not_alert(code) -> None:
    unknown = explain(code)
    assert (unknown.code, unknown.kind, unknown.alert) == (code, "unknown", False)
    assert "does not describe" in unknown.meaning


def test_codes_of_copy_engines_and_decoders_name_the_unit() -> None:
    assert "copy engine 9 " in explain(85).meaning
    assert "copy engine 10 " in explain(126).meaning
    assert "video decoder 5 " in explain(96).meaning
    assert "JPEG decoder 1 " in explain(99).meaning


@every_code
def test_an_alert_has_the_text_of_each_code_whole(xid) -> None:
    """But for the number of a unit, in which codes of one kind differ."""
    texts = re.findall(r"if eq \$labels.xid ([`0-9 ]+) \}\}(.*?)\{\{", xid_meaning(XIDS))
    [text] = [text for codes, text in texts if f"`{xid.code}`" in codes.split()]
    whole = f"{xid.meaning} {xid.action}"
    assert text == (whole if xid.unit is None else whole.replace(f" {xid.unit} had", " had"))


def test_units_of_a_kind_share_a_text() -> None:
    texts = [text for text in xid_meaning(XIDS).split("{{") if "copy engine" in text]
    assert len(texts) == 1
    assert "The copy engine had an exception." in texts[0]


def test_the_committed_page_is_the_table() -> None:
    page = xids_page()
    assert page.startswith(xids_markdown().rstrip())
    assert len(re.findall(r"^\| (?:\*\*)?\d+", page, re.MULTILINE)) == len(XIDS)
    assert "| **79** | reboot | The GPU no longer answers on the PCIe bus |" in page
    assert page == PAGE.read_text(encoding="utf-8")
