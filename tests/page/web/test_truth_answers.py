"""The page of a holder equals /metrics: every number in sentences, bars and lists."""

import re

import pytest

from tests.page.web.truth import holder_of, holders, is_number, linked_holder, series_of
from tests.page.web.truth_bars import bar_of, misdrawn
from tests.page.web.truth_sentences import (
    Holder,
    false_sentences,
    is_gib,
    is_gpu,
    is_together,
    unknown_sentences,
)
from tests.page.web.views_reading import GIB, SCENARIOS


def answers(shown):
    """Yield device ("" for all) and text of the two answers that have numbers of use."""
    use, memory, *_ = shown.one(id="answers").all("div")
    for answer in (use, memory):
        for said in answer.all("p"):
            where = "".join(strong.text for strong in said.all("strong"))
            yield where, said.text.removeprefix(where).strip()


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_number_in_a_sentence_is_of_a_series(name) -> None:
    series = series_of(name)
    for holder in holders(name):
        keys = [key for key in series.containers if key.holder == holder]
        shown = holder_of(name, holder)
        named = {
            section.one("h3").text.replace(" · ", ": "): section for section in shown.all("section", of="on")
        }
        for where, text in answers(shown):
            device = named[where.removesuffix(".")].one("p", of="uuid").text if where else ""
            of = [Holder(series, key) for key in keys if device in ("", key.device)]
            if len(of) > 1:
                assert is_together(of, text), text
            else:
                assert len(of) == 1, (where, text)
                assert list(false_sentences(text, of)) == []
                assert unknown_sentences(text) == ""


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_device_of_a_holder_has_its_numbers_bars_and_neighbours(name) -> None:
    series = series_of(name)
    for holder in holders(name):
        sections = holder_of(name, holder).all("section", of="on")
        by_device = {section.one("p", of="uuid").text: section for section in sections}
        keys = [key for key in series.containers if key.holder == holder]
        assert by_device.keys() == {key.device for key in keys}
        assert len(sections) == len(keys)
        for key in keys:
            assert list(wrong_parts(by_device[key.device], Holder(series, key))) == []


def wrong_parts(section, of: Holder):
    """Yield each part of a device on a holder's page that differs from its series."""
    memory, compute = section.all("div", of="use")
    for use, unit, is_value, used, share, whole in (
        (memory, "GiB", is_gib, of.memory, of.limit, of.device("memory_total_bytes")),
        (compute, "GPU", is_gpu, of.compute, of.share, 1),
    ):
        texts = re.fullmatch(rf"(\S+) / (\S+) {unit}", use.one("span", of="value").text).groups()
        bar = bar_of(use.one("svg", of="bar"))
        track, limits = whole if share is None else share, of.series.limits(of.key) if use is memory else {}
        fault = misdrawn(bar, [used or 0], track, known=used is not None, limits=limits)
        if (
            not (is_value(texts[0], used) and is_value(texts[1], share))
            or fault
            or bar.dashed != (share is None)
        ):
            yield unit, texts, fault
    if section.one("p", of="state").text != of.series.states(of.key):
        yield "state", section.one("p", of="state").text
    facts = {fact.one("dt").text: fact.one("dd").text for fact in section.one("dl").all("div")}
    yield from (item for item in facts.items() if not is_fact(of, *item))
    others = section.one("div", of="other-holders").all("li")
    beside = sorted((linked_holder(line), line.one("span", of="used").text) for line in others)
    expected = sorted(of.others, key=lambda other: other.key.holder)
    if len(beside) != len(expected) or not all(
        is_neighbour(*pair) for pair in zip(beside, expected, strict=True)
    ):
        yield beside
    rest = of.device("unattributed_memory_bytes")
    said = re.findall(r"(\S+) GiB are used by no known container", section.text)
    if [True] * bool(rest) != [is_gib(text, rest) for text in said]:
        yield said, rest


def is_neighbour(line, other) -> bool:
    """Whether a line has the numbers of another container on the device."""
    holder, text = line
    numbers = re.fullmatch(r"(\S+) / (\S+) GiB · (\S+) / (\S+) GPU", text).groups()
    values = (other.memory, other.limit, other.compute, other.share)
    checks = (is_gib, is_gib, is_gpu, is_gpu)
    return holder == other.key.holder and all(
        check(text, value) for check, text, value in zip(checks, numbers, values, strict=True)
    )


_WORTH = {
    "GiB": (GIB, 1),
    "GPU minutes": (60, 1),
    "GPU hours": (3600, 1),
    "kJ": (1000, 1),
    "kWh": (3.6e6, 2),
    "%": (0.01, 0),
    "": (1, 0),
}


def is_fact(of, name, text) -> bool:
    """Whether a line is the counter of a holder with that name."""
    field = {
        "GPU time held": "entitled_gpu_seconds_total",
        "GPU time used": "used_gpu_seconds_total",
        "memory peak": "memory_peak_bytes",
        "energy": "energy_joules_total",
        "processes": "processes",
    }.get(name)
    value = of.series.of(of.key, field) if field else of.series.efficiency(of.key)
    number, _, unit = text.partition(" ")
    worth, digits = _WORTH[unit]
    return is_number(number, None if value is None else value / worth, digits)
