"""JSON, CSV and text have the numbers of /metrics, field by field; JSON is as described."""

import csv
import io
import re
from functools import cache

import pytest
from jsonschema import Draft202012Validator

from exporter.formats.json_csv import snapshot_csv, snapshot_json
from exporter.formats.text import snapshot_text
from exporter.metrics import LEVEL_LABELS
from exporter.model.states import STATE_WORDS
from exporter.web.node.openapi.operations import document
from tests.page.web.truth import GIB, UNKNOWN, Key, idle_after, is_duration, is_number, scenario, series_of
from tests.page.web.views_reading import SCENARIOS

_LISTS = {
    "gpus": ("gpu", "Gpu"),
    "migs": ("mig", "Mig"),
    "vgpus": ("vgpu", "Vgpu"),
    "containers": ("container", "Container"),
    "collectors": ("collector", "Collector"),
}


CLAIM = ("claim_namespace", "claim", "request", "driver", "pool", "device")


@cache
def fields(name) -> dict[str, dict]:
    """Return the fields of a kind of row that are described as series."""
    described = document()["components"]["schemas"][name]["properties"]
    return {field: schema for field, schema in described.items() if "x-series" in schema}


@cache
def described() -> Draft202012Validator:
    """Return the description, closed: no object allows a field that it does not name."""
    schemas = document()["components"]["schemas"]
    for schema in schemas.values():
        _close(schema)
    return Draft202012Validator({"$ref": "#/components/schemas/Snapshot", "components": {"schemas": schemas}})


def _close(node) -> None:
    if isinstance(node, dict):
        if isinstance(node.get("properties"), dict):
            node["additionalProperties"] = False
        for child in node.values():
            _close(child)
    elif isinstance(node, list):
        for child in node:
            _close(child)


def flat(value, *outer) -> dict[tuple[str, ...], float]:
    """Return the numbers of nested objects by their path of keys; null is unknown."""
    if isinstance(value, dict):
        return {path: each for key, child in value.items() for path, each in flat(child, *outer, key).items()}
    return {} if value is None else {outer: value}


def as_series(schema, labels, value) -> list[tuple[dict, float]]:
    """Return the samples that a field of a row stands for."""
    if isinstance(value, list):
        return [({**labels, **_known(each)}, 1) for each in value]
    if isinstance(value, dict):
        keys = re.search(r"Keys: (.*)\.$", schema["description"])[1].split(", then ")
        return [
            ({**labels, **_known(dict(zip(keys, path, strict=True)))}, each)
            for path, each in flat(value).items()
        ]
    return [] if value is None else [(labels, value)]


def _known(labels) -> dict:
    return {name: value for name, value in labels.items() if value}


def infos(kind, row) -> dict[str, dict[str, str]]:
    """Return the texts of a row by the info series that they are labels of."""
    # A node has this series also without a driver, whose versions are its labels.
    found: dict[str, dict[str, str]] = {"gpuslice_node_info": {}} if kind == "Node" else {}
    for field, schema in fields(kind).items():
        if (
            schema["x-series"].endswith("_info")
            and not isinstance(row[field], list)
            and row[field] is not None
        ):
            found.setdefault(schema["x-series"], {})[field] = row[field]
    return found


def samples_of(level, kind, rows):
    """Yield the samples that rows of a document stand for."""
    for row in rows:
        labels = {name: row[name] for name in LEVEL_LABELS[level] if row[name] is not None}
        for series, texts in infos(kind, row).items():
            yield series, {**labels, **texts}, 1
        for field, schema in fields(kind).items():
            if not schema["x-series"].endswith("_info") or isinstance(row[field], list):
                yield from ((schema["x-series"], *sample) for sample in as_series(schema, labels, row[field]))


def ordered(samples) -> list[tuple]:
    """Return samples sorted."""
    return sorted((name, sorted(labels.items()), value) for name, labels, value in samples)


@pytest.mark.parametrize("name", SCENARIOS)
def test_json_has_what_metrics_has_and_no_more(name) -> None:
    """Every sample of the node, its devices, containers and sources is a field; null is no sample."""
    series, shown = series_of(name), snapshot_json(scenario(name))
    claimed = [*samples_of("node", "Node", [shown["node"]])]
    for rows, (level, kind) in _LISTS.items():
        claimed += samples_of(level, kind, shown[rows])
    known = {
        schema["x-series"]
        for kind in ("Node", *(kind for _, kind in _LISTS.values()))
        for schema in fields(kind).values()
    }
    there = [(family, *sample) for family in known for sample in series.samples.get(family, ())]
    assert ordered(claimed) == ordered(there)
    of_node = {family for family in series.samples if family.startswith("gpuslice_")} - known
    assert not any(re.match("gpuslice_(gpu|mig|vgpu|container|collector)_", family) for family in of_node)
    assert shown["timestamp"] == pytest.approx(series.timestamp)


@pytest.mark.parametrize("name", SCENARIOS)
def test_json_matches_its_description(name) -> None:
    faults = described().iter_errors(snapshot_json(scenario(name)))
    assert [f"{fault.json_path}: {fault.message}" for fault in faults] == []


def is_state(series, key, state, seconds) -> bool:
    """Whether a state and the seconds without compute are those of a container."""
    quiet = None if series.is_active(key) else series.quiet_for(key)
    return STATE_WORDS[state] == series.state(key) and seconds == (
        quiet if quiet is None else pytest.approx(quiet, abs=0.001)
    )


@pytest.mark.parametrize("name", SCENARIOS)
def test_json_has_the_states_of_containers(name) -> None:
    series = series_of(name)
    for row in snapshot_json(scenario(name), idle_after=idle_after(name))["containers"]:
        key = Key(*(row[label] or "" for label in Key._fields))
        assert is_state(series, key, row["state"], row["quiet_seconds"]), row


def informed(series, key, name, labels) -> list[str]:
    """Return the labels of each series of a container with that name, as CSV has them."""
    own = {label: value for label, value in key._asdict().items() if value}
    found = series.all(f"container_{name}", **own)
    return sorted(" ".join(filter(None, map(sample.labels.get, labels))) for sample in found)


@pytest.mark.parametrize("name", SCENARIOS)
def test_csv_has_the_numbers_of_metrics(name) -> None:
    """Each container has a line; each cell is its series or label, or empty."""
    series = series_of(name)
    lines = list(csv.DictReader(io.StringIO(snapshot_csv(scenario(name), idle_after=idle_after(name)))))
    keys = [Key(*(line[label] for label in Key._fields)) for line in lines]
    assert sorted(keys) == sorted(series.containers)
    for key, line in zip(keys, lines, strict=True):
        info = series.info(key)
        state, quiet = line.pop("state"), line.pop("quiet_seconds")
        assert is_state(series, key, state, float(quiet) if quiet else None), key
        others = line.pop("other_states").split("; ")
        words = ", ".join(STATE_WORDS[each] for each in (state, *filter(None, others)))
        assert words == series.states(key), key
        assert line.pop("health") == "; ".join(informed(series, key, "device_health_info", ("health",))), key
        assert sorted(line.pop("claim").split("; ")) == informed(series, key, "claim_info", CLAIM) or [""], (
            key
        )
        for column, cell in line.items():
            if f"gpuslice_container_{column}" in series.helps or not (
                column in info or cell == "" or column in Key._fields
            ):
                value = series.of(key, column)
                assert (None if cell == "" else float(cell)) == value, (key, column)
            else:
                assert cell == info.get(column, ""), (key, column)


def lines_of_holders(text):
    """Yield the cells of each holder's line in the text."""
    head = next((line for line in text.splitlines() if line.startswith("    HOLDER")), "")
    starts = [found.start() for found in re.finditer(r"(?<=  )\S+(?: \S+)*", head)]
    for line in text.splitlines():
        if line.startswith("    ") and line != head and not line.startswith("    unattributed: "):
            ends = [*starts[1:], None]
            yield [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]


def is_row(series, key, cells) -> bool:
    """Whether the cells of a line are those of a container."""
    holder, slices, isolation, memory, compute, state = cells
    used, entitled = re.fullmatch(r"(\S+) / (\S+) GiB", memory).groups()
    computes, share = re.fullmatch(r"(\S+) / (\S+) GPU", compute).groups()
    held, resource = series.of(key, "slices"), series.info(key).get("resource", "")
    duration = re.search(r" \(([^)]*)\)", state)
    words, quiet = re.sub(r" \([^)]*\)", "", state), duration[1] if duration is not None else ""
    values = [series.of(key, f"memory_{each}_bytes") for each in ("used", "entitled")]
    sizes = [None if value is None else value / GIB for value in values]
    return (
        holder == "/".join((key.namespace, key.pod, key.container or "?"))
        and slices
        == (
            UNKNOWN
            if held is None
            else f"{held:.0f} \N{MULTIPLICATION SIGN} {resource or 'slice'}"
            if held
            else "none"
        )
        and isolation == series.info(key).get("isolation", "")
        and is_number(used, sizes[0], 1)
        and is_number(entitled, sizes[1], 1)
        and is_number(computes, series.of(key, "compute_used_ratio"), 2)
        and is_number(share, series.of(key, "compute_entitled_ratio"), 2)
        and words == series.states(key)
        and bool(quiet) == bool(re.search("quiet|idle", words))
        and (not quiet or is_duration(quiet, series.quiet_for(key)))
    )


@pytest.mark.parametrize("name", SCENARIOS)
def test_text_has_the_numbers_of_metrics(name) -> None:
    series, shown = series_of(name), scenario(name)
    lines = list(lines_of_holders(snapshot_text(shown, now=shown.timestamp, idle_after=idle_after(name))))
    rest = series.containers
    assert len(lines) == len(rest)
    for cells in lines:
        same = [key for key in rest if is_row(series, key, cells)]
        assert same, cells
        rest.remove(same[0])


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_total_of_the_text_is_the_sum_of_the_series(name) -> None:
    series, shown = series_of(name), scenario(name)
    text = snapshot_text(shown, now=shown.timestamp)
    read = [
        sample.labels["uuid"]
        for sample in series.all("gpu_info")
        if sample.labels["uuid"] not in series.unread
    ]
    line = next((line for line in text.splitlines() if line.startswith("Total: ")), None)
    assert (line is None) == (not read)
    if line is None:
        return
    found = re.search(
        r"memory ((?:≥ )?\S+) GiB held · ((?:≥ )?\S+) GiB used of ((?:≥ )?\S+) GiB · "
        r"compute ((?:≥ )?\S+) GPUs held · ((?:≥ )?\S+) GPUs used of (\S+)$",
        line,
    )
    sums = node_sums(series, read)
    for text, (values, unit, digits) in zip(found.groups(), sums, strict=True):
        known = [value / unit for value in values if value is not None]
        least = "≥ " if len(known) < len(values) else ""
        assert is_number(text, sum(known) if known or not values else None, digits, least=least), (
            line,
            text,
            values,
        )


def node_sums(series, read) -> list[tuple[list, float, int]]:
    """Return values, unit and digits of each total of the GPUs that are read."""
    keys = [key for key in series.containers if key.uuid in read]
    held = [series.of(key, "compute_entitled_ratio") for key in keys if series.of(key, "slices") != 0]
    held += [None for uuid in read if series.value("gpu_holders", uuid=uuid) is None]
    used = [series.of(key, "compute_used_ratio") for key in keys]
    used += [series.value("gpu_unattributed_utilization_ratio", uuid=uuid) for uuid in read]
    return [
        *(
            ([series.value(f"gpu_memory_{field}_bytes", uuid=uuid) for uuid in read], GIB, 1)
            for field in ("entitled", "used", "total")
        ),
        (held, 1, 2),
        (used, 1, 2),
        ([series.value("node_gpus")], 1, 0),
    ]
