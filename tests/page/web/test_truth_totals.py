"""The totals of the node equal /metrics: sums of series, marked if a part is missing."""

import re

import pytest

from tests.page.web.truth import GIB, UNKNOWN, is_number, node, series_of
from tests.page.web.truth_bars import bar_of
from tests.page.web.views_reading import SCENARIOS

# Ways of sharing that the makers' own plug-ins bring: what they give out is called a slice.
_OWN = {
    "exclusive",
    "time-slicing",
    "mps",
    "mig",
    "mig-time-slicing",
    "vgpu",
    "amd-partition",
    "none",
    "unknown",
    "",
}
_LEAST = "≥ "


def card(name, title):
    """Return a total: its large figure, the text next to it, its bars with their words, its details."""
    for each in node(name).all("div", of="card"):
        if each.one("h2").text == title:
            figure, *_ = each.all("p", of="figure")
            beside = figure.one("span", of="of").text
            bars = []
            for sized in each.all("div", of="sized"):
                words = [span.text for span in sized.all("span")]
                bars = list(zip(map(bar_of, sized.all("svg", of="bar")), words, strict=True))
            details = [detail.text for detail in each.all("p", of="detail")]
            return figure.text.removesuffix(beside).strip(), beside, bars, "".join(details)
    return None


def read_gpus(series) -> list[str]:
    """Return the GPUs that are read, and not only held."""
    return [
        sample.labels["uuid"]
        for sample in series.all("gpu_info")
        if sample.labels["uuid"] not in series.unread
    ]


def is_sum(text, values, digits) -> bool:
    """Whether a text is the sum of some values: marked where some are missing, a dash where all are."""
    known = [value for value in values if value is not None]
    least = _LEAST if len(known) < len(values) else ""
    return is_number(text, sum(known) if known or not values else None, digits, least=least)


def is_bar(bar, look, values, whole) -> bool:
    """Whether a bar is as long as a sum is of the whole, and hatched only if a part of it is missing."""
    known = sum(value for value in values if value is not None)
    filled = [part.width for part in bar.parts if part.look == look]
    if len(filled) != (known > 0):
        return False
    share = 100 * min(known / whole, 1) if known else 0
    return all(abs(width - max(share, 0.6)) < 0.11 for width in filled) and (
        not bar.hatched or None in values
    )


@pytest.mark.parametrize("name", SCENARIOS)
def test_memory_is_the_sum_of_the_gpus(name) -> None:
    series = series_of(name)
    gpus, shown = read_gpus(series), card(name, "Memory")
    if shown is None:
        assert series.all("gpu_info") == []
        return
    figure, beside, bars, _ = shown
    if not gpus:
        assert (figure, bars) == (UNKNOWN, [])
        return
    used, held, whole = (
        [
            None if value is None else value / GIB
            for value in (series.value(f"gpu_memory_{field}_bytes", uuid=uuid) for uuid in gpus)
        ]
        for field in ("used", "entitled", "total")
    )
    (held_bar, held_words), (used_bar, used_words) = bars
    assert is_sum(figure.removesuffix(" GiB used"), used, 1)
    assert is_sum(beside.removeprefix("of "), whole, 1)
    assert is_sum(held_words.removesuffix(" held"), held, 1)
    assert is_share(used_words, used, held)
    there = sum(value for value in whole if value is not None)
    assert not there or (is_bar(held_bar, "held", held, there) and is_bar(used_bar, "used", used, there))


def is_share(words, used, held) -> bool:
    """Whether use is shown as a part of what is held if both are known in full, and only then."""
    if None in used or None in held or not sum(held):
        return words == "used"
    if sum(used) > sum(held):
        return words == "used, more than held"
    return is_number(re.fullmatch(r"used, (\d+)% of held", words)[1], 100 * sum(used) / sum(held), 0)


@pytest.mark.parametrize("name", SCENARIOS)
def test_compute_is_the_sum_of_the_containers_and_the_rest(name) -> None:
    series = series_of(name)
    gpus, shown = read_gpus(series), card(name, "Compute")
    if shown is None or not gpus:
        assert shown is None or shown[0] == UNKNOWN
        return
    figure, beside, bars, _ = shown
    keys = [key for key in series.containers if key.uuid in gpus]
    used = [series.of(key, "compute_used_ratio") for key in keys]
    used += [series.value("gpu_unattributed_utilization_ratio", uuid=uuid) for uuid in gpus]
    held = [series.of(key, "compute_entitled_ratio") for key in keys if series.of(key, "slices") != 0]
    held += [None for uuid in gpus if series.value("gpu_holders", uuid=uuid) is None]
    (held_bar, held_words), (used_bar, used_words) = bars
    (count,) = series.values("node_gpus")
    assert is_sum(figure.removesuffix(" GPUs used"), used, 2), (figure, used)
    assert beside == f"of {count:.0f}"
    assert is_sum(held_words.removesuffix(" held"), held, 2), (held_words, held)
    assert is_share(used_words, used, held)
    assert is_bar(held_bar, "held", held, count)
    assert is_bar(used_bar, "used", used, count)
    assert sum(value for value in used if value is not None) <= count


@pytest.mark.parametrize("name", SCENARIOS)
def test_slices_are_counted_and_the_free_ones_are_the_others(name) -> None:
    series, shown = series_of(name), card(name, "Slices")
    if shown is None:
        assert series.all("gpu_info") == []
        return
    figure, beside, bars, details = shown
    counted = re.fullmatch(r"(?:≥ )?(\d+) held", figure)
    silent = [uuid for uuid in read_gpus(series) if series.value("gpu_holders", uuid=uuid) is None]
    assert not figure.startswith(_LEAST) or silent
    if counted is None:
        assert figure == UNKNOWN
        assert series.values("gpu_holders") == []
        return
    held = int(counted[1])
    assert f"by {holding(series)} container" in details
    assert held in counts(series, beside, details, "slices_allocated"), details
    of = re.fullmatch(r"of (\d+)( GPUs?)?", beside)
    if of is None:
        assert (beside, bars) == ("", [])
        return
    offered = int(of[1])
    assert offered in counts(series, beside, details, "slices")
    ((bar, words),) = bars
    # What is at least held is at most free.
    least = figure.startswith(_LEAST)
    assert words == f"{'at most ' if least else ''}{offered - held} free"
    assert is_bar(bar, "held", [held, *[None] * least], offered)


def holding(series) -> int:
    """Count the containers that hold something."""
    return len({key.holder for key in series.containers if series.of(key, "slices") != 0})


def counts(series, beside, details, family) -> list[float]:
    """Add up what is held or offered in the unit that a total has."""
    if "GPU" in beside:
        held = [value > 0 for value in series.values("gpu_holders")]
        return [sum(held) if family == "slices_allocated" else len(series.all("gpu_info"))]
    resource = re.match(r"of (\S+) · by", details)
    if resource:
        return [sum(series.values(f"gpu_{family}", resource=resource[1]))]
    own = {
        sample.labels["uuid"] for sample in series.all("gpu_info") if sample.labels.get("sharing", "") in _OWN
    }
    among = [sample for sample in series.all(f"gpu_{family}") if sample.labels["uuid"] in own]
    fixed = [
        sample.value
        for sample in among
        if series.value("gpu_slices", **{name: sample.labels[name] for name in ("uuid", "resource")})
        is not None
    ]
    return [sum(fixed if fixed or not among else (sample.value for sample in among))]


@pytest.mark.parametrize("name", SCENARIOS)
def test_findings_are_counted_from_the_series(name) -> None:
    series = series_of(name)
    # A holder counts in each of its states.
    states = [series.states(key) for key in series.containers]
    words = {
        "over its share": "over its share",
        "without a slice": "uses without holding",
        "idle": "idle",
        "over a notional share": "over its notional share",
    }
    findings = [
        line.all("a")[0].text for each in node(name).all("ul", of="findings") for line in each.all("li")
    ]
    for word, state in words.items():
        counts = [int(text.split()[0]) for text in findings if re.fullmatch(rf"\d+ {word}", text)]
        number = sum(bool(re.search(rf"{state}(?!, holding)", of_row)) for of_row in states)
        assert counts == [number] * bool(number), (findings, state)
    idle = [key for key in series.containers if "idle, holding memory" in series.states(key)]
    holding = [re.fullmatch(r"(\d+) idle, holding (\S+) GiB", text) for text in findings]
    holding = [found for found in holding if found]
    assert len(holding) == bool(idle)
    for found in holding:
        assert int(found[1]) == len(idle)
        assert is_sum(found[2], [series.of(key, "memory_used_bytes") / GIB for key in idle], 1)
    lost = [re.fullmatch(r"(\d+) GPUs? not answering", text) for text in findings]
    silent = [uuid for uuid in read_gpus(series) if series.value("gpu_up", uuid=uuid) != 1]
    assert [int(found[1]) for found in lost if found] == [len(silent)] * bool(silent)


@pytest.mark.parametrize("name", SCENARIOS)
def test_waste_is_the_sum_over_holders(name) -> None:
    """Holders whose use and entitlement are known count; excess of one does not offset waste of another."""
    series = series_of(name)
    gpus = read_gpus(series)
    keys = [key for key in series.containers if key.uuid in gpus and series.of(key, "slices")]
    for title, field, unit, digits in (
        ("Memory", "memory_{}_bytes", GIB, 1),
        ("Compute", "compute_{}_ratio", 1, 2),
    ):
        pairs = [
            (series.of(key, field.format("entitled")), series.of(key, field.format("used"))) for key in keys
        ]
        left = [None if None in pair else max(pair[0] - pair[1], 0) / unit for pair in pairs]
        said = [
            line.text
            for each in node(name).all("div", of="card")
            for line in each.all("p", of="waste")
            if each.one("h2").text == title
        ]
        assert len(said) == any(value is not None for value in left)
        for text in said:
            amount = text.removesuffix(" held but not used").rpartition(" ")[0]
            assert is_sum(amount, left, digits), (text, left)
