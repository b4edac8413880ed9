"""The table of holders is true: each number, bar, state and dash in it is what /metrics says, everywhere."""

import re

import pytest

from exporter.demo.scenario.catalog import names
from tests.web.truth import (
    GIB,
    SCENARIOS,
    UNKNOWN,
    Series,
    gpu_of,
    lasts,
    node,
    rows,
    says,
    told,
    uuids,
)
from tests.web.truth_bars import bar_of, misdrawn


def pages(name):
    """Give each page of a scenario that has a table of holders, with the containers that belong on it."""
    series = told(name)
    yield node(name), series.containers
    for uuid in uuids(name):
        yield gpu_of(name, uuid), [key for key in series.containers if key.uuid == uuid]


def lines(shown, keys):
    """Give the rows of a table with what they are of; none is missing, none is there twice."""
    found = {(holder, device): cells for holder, device, cells in rows(shown)}
    assert found.keys() == {(key.holder, key.device) for key in keys}
    assert len(list(rows(shown))) == len(keys)
    return [(key, found[key.holder, key.device]) for key in keys]


def amounts(text, unit) -> tuple[str, ...]:
    """Take ``1.0 / 2.0 unit`` apart."""
    return re.fullmatch(rf"(\S+) / (\S+) {unit}", text).groups()


def untrue_numbers(series: Series, key, cells):
    """Yield the columns of a row that do not say what the series of its container say."""
    used, entitled = amounts(cells["Memory"].text, "GiB")
    computes, share = amounts(cells["Compute"].text, "GPU")
    memory, limit = series.of(key, "memory_used_bytes"), series.of(key, "memory_entitled_bytes")
    efficiency = series.efficiency(key)
    checks = {
        "memory used": says(used, None if memory is None else memory / GIB, 1),
        "memory entitled": says(entitled, None if limit is None else limit / GIB, 1),
        "compute used": says(computes, series.of(key, "compute_used_ratio"), 2),
        "compute entitled": says(share, series.of(key, "compute_entitled_ratio"), 2),
        "efficiency": says(
            cells["Efficiency"].text.removesuffix(" %"), None if efficiency is None else 100 * efficiency, 0
        ),
        "processes": says(cells["Processes"].text, series.of(key, "processes"), 0),
        "isolation": cells["Isolation"].text == series.info(key).get("isolation", UNKNOWN),
        "resource": cells["Slice"].attributes["title"] == series.info(key).get("resource", ""),
        "state": cells["State"].text == series.state(key),
        "quiet": is_quiet(series, key, cells["Quiet for"].text),
        "slice": is_slice(series, key, cells["Slice"].text),
    }
    yield from (f"{'/'.join(key)}: {name}, {cells}" for name, true in checks.items() if not true)


def is_quiet(series: Series, key, text) -> bool:
    """Whether a cell tells a time of a quiet or idle container, a dash if it is not known, else nothing."""
    return text == "" if series.is_active(key) else lasts(text, series.quiet_for(key))


def is_slice(series: Series, key, text) -> bool:
    """Whether the words for what a container holds have its number of slices, of those that are offered."""
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
def test_every_row_says_what_the_series_of_its_container_say(name) -> None:
    """Each container has one row, a number where there is a series and a dash where there is none."""
    series = told(name)
    for shown, keys in pages(name):
        untrue = [fault for key, cells in lines(shown, keys) for fault in untrue_numbers(series, key, cells)]
        assert untrue == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_bars_are_as_long_as_the_use_is_of_the_entitlement(name) -> None:
    """Use is drawn on the entitlement, or dashed on the device; past it is a tick, and hatched is unknown."""
    series = told(name)
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
                assert misdrawn(bar, [used], track) == "", (key, column)
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


@pytest.mark.slow
def test_all_states_are_met() -> None:
    """The scenarios leave no state out, so that what is said of them here is not said of nothing."""
    found = {told(name).state(key) for name in names() for key in told(name).containers}
    assert found == _LOOKS.keys()
