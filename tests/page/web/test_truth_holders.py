"""The table of holders equals /metrics: every number, bar, state and dash."""

import re

import pytest

from tests.page.web.truth import (
    GIB,
    UNKNOWN,
    Series,
    gpu_of,
    is_duration,
    is_number,
    node,
    rows,
    series_of,
    uuids,
)
from tests.page.web.truth_bars import bar_of, misdrawn
from tests.page.web.views_reading import SCENARIOS


def pages(name):
    """Yield each page with a table of holders, and the containers that belong on it."""
    series = series_of(name)
    yield node(name), series.containers
    for uuid in uuids(name):
        yield gpu_of(name, uuid), [key for key in series.containers if key.uuid == uuid]


def lines(shown, keys):
    """Return each container with its row; fail if one is missing or there twice."""
    found = {(holder, device): cells for holder, device, cells in rows(shown)}
    assert found.keys() == {(key.holder, key.device) for key in keys}
    assert len(list(rows(shown))) == len(keys)
    return [(key, found[key.holder, key.device]) for key in keys]


def amounts(text, unit) -> tuple[str, ...]:
    """Return the two numbers of ``1.0 / 2.0 unit``."""
    return re.fullmatch(rf"(\S+) / (\S+) {unit}", text).groups()


def untrue_numbers(series: Series, key, cells):
    """Yield the columns of a row that differ from the series of its container."""
    used, entitled = amounts(cells["Memory"].text, "GiB")
    computes, share = amounts(cells["Compute"].text, "GPU")
    memory, limit = series.of(key, "memory_used_bytes"), series.of(key, "memory_entitled_bytes")
    efficiency = series.efficiency(key)
    checks = {
        "memory used": is_number(used, None if memory is None else memory / GIB, 1),
        "memory entitled": is_number(entitled, None if limit is None else limit / GIB, 1),
        "compute used": is_number(computes, series.of(key, "compute_used_ratio"), 2),
        "compute entitled": is_number(share, series.of(key, "compute_entitled_ratio"), 2),
        "efficiency": is_number(
            cells["Efficiency"].text.removesuffix(" %"), None if efficiency is None else 100 * efficiency, 0
        ),
        "processes": is_number(cells["Processes"].text, series.of(key, "processes"), 0),
        "isolation": cells["Isolation"].text == series.info(key).get("isolation", UNKNOWN),
        "resource": cells["Slice"].attributes["title"] == series.info(key).get("resource", ""),
        "state": cells["State"].text == series.states(key),
        "quiet": is_quiet(series, key, cells["Quiet for"].text),
        "slice": is_slice(series, key, cells["Slice"].text),
    }
    yield from (f"{'/'.join(key)}: {name}, {cells}" for name, true in checks.items() if not true)


def is_quiet(series: Series, key, text) -> bool:
    """Whether a cell is empty for an active container, else its time without compute."""
    return text == "" if series.is_active(key) else is_duration(text, series.quiet_for(key))


def is_slice(series: Series, key, text) -> bool:
    """Whether the text has the number of slices held and, if it has one, of those offered."""
    slices = series.of(key, "slices")
    if not slices:
        return text == (UNKNOWN if slices is None else "holds nothing")
    counted = re.match(r"(\d+) (?:of (\d+)\b|\N{MULTIPLICATION SIGN} |slices?\b|units?\b)", text)
    if counted is None:
        return slices == 1
    level, device = (
        ("mig", {"uuid": key.uuid, "mig_uuid": key.mig_uuid}) if key.mig_uuid else ("gpu", {"uuid": key.uuid})
    )
    offered = series.value(f"{level}_slices", **device, resource=series.info(key).get("resource", ""))
    of = None if counted[2] is None else int(counted[2])
    return int(counted[1]) == slices and of in (None, offered)


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_row_has_the_numbers_of_its_container(name) -> None:
    series = series_of(name)
    for shown, keys in pages(name):
        untrue = [fault for key, cells in lines(shown, keys) for fault in untrue_numbers(series, key, cells)]
        assert untrue == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_bars_are_as_long_as_the_use_is_of_the_entitlement(name) -> None:
    """Use is drawn on the entitlement, or dashed on the device; a tick marks excess, hatching the unknown."""
    series = series_of(name)
    for shown, keys in pages(name):
        for key, cells in lines(shown, keys):
            whole = series.device(key.uuid, key.mig_uuid, "memory_total_bytes")
            for column, field, device in (
                ("Memory", "memory_{}_bytes", whole),
                ("Compute", "compute_{}_ratio", 1),
            ):
                used = series.of(key, field.format("used"))
                entitled = series.of(key, field.format("entitled"))
                bar = bar_of(cells[column].one("svg", of="bar"))
                track = None if used is None else device if entitled is None else entitled
                limits = series.limits(key) if column == "Memory" else {}
                assert misdrawn(bar, [used], track, limits=limits) == "", (key, column)
                assert bar.dashed == (entitled is None), (key, column)
                assert {part.look for part in bar.parts} <= {_LOOKS[series.state(key)]}, (key, column)


_LOOKS = {
    "active": "active",
    "quiet": "quiet",
    "idle": "idle",
    "idle, holding memory": "idle-memory",
    "over its share": "over-share",
    "over its notional share": "over-notional",
    "uses without holding": "unheld",
    "unknown": "unknown",
}


def test_the_scenarios_have_every_state() -> None:
    states = {series_of(name).state(key) for name in SCENARIOS for key in series_of(name).containers}
    assert states == _LOOKS.keys()
