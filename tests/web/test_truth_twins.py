"""JSON, CSV and text say the same as /metrics, field by field, and JSON is as its description says."""

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
from exporter.web.openapi.operations import document
from tests.web.truth import GIB, SCENARIOS, UNKNOWN, Key, idle_after, lasts, says, scenario, told

_LISTS = {
    "gpus": ("gpu", "GpuFields"),
    "migs": ("mig", "MigFields"),
    "vgpus": ("vgpu", "VgpuFields"),
    "containers": ("container", "ContainerFields"),
    "collectors": ("collector", "CollectorFields"),
}


CLAIM = ("claim_namespace", "claim", "request", "driver", "pool", "device")


@cache
def fields(name) -> dict[str, dict]:
    """Return the fields of a kind of row that the description says are those of a series."""
    described = document()["components"]["schemas"][name]["properties"]
    return {field: schema for field, schema in described.items() if "x-series" in schema}


@cache
def described() -> Draft202012Validator:
    """Give the description with every object refusing fields that it does not name."""
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
    """Take an object of objects apart, by the keys on the way; null is not known."""
    if isinstance(value, dict):
        return {path: each for key, child in value.items() for path, each in flat(child, *outer, key).items()}
    return {} if value is None else {outer: value}


def as_series(schema, labels, value) -> list[tuple[dict, float]]:
    """Say in samples what a field of a row says."""
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
    """Gather the texts of a row under the info series that they are labels of."""
    # A node has this series also without a driver, whose versions are its labels.
    found: dict[str, dict[str, str]] = {"gpuslice_node_info": {}} if kind == "NodeFields" else {}
    for field, schema in fields(kind).items():
        if (
            schema["x-series"].endswith("_info")
            and not isinstance(row[field], list)
            and row[field] is not None
        ):
            found.setdefault(schema["x-series"], {})[field] = row[field]
    return found


def samples_of(level, kind, rows):
    """Say in samples what rows of a document say."""
    for row in rows:
        labels = {name: row[name] for name in LEVEL_LABELS[level] if row[name] is not None}
        for series, texts in infos(kind, row).items():
            yield series, {**labels, **texts}, 1
        for field, schema in fields(kind).items():
            if not schema["x-series"].endswith("_info") or isinstance(row[field], list):
                yield from ((schema["x-series"], *told) for told in as_series(schema, labels, row[field]))


def ordered(samples) -> list[tuple]:
    """Bring samples into an order of their own."""
    return sorted((name, sorted(labels.items()), value) for name, labels, value in samples)


@pytest.mark.parametrize("name", SCENARIOS)
def test_json_has_what_metrics_has_and_no_more(name) -> None:
    """Every sample about the node, its devices, containers and sources is a field, and null is no sample."""
    series, shown = told(name), snapshot_json(scenario(name))
    claimed = [*samples_of("node", "NodeFields", [shown["node"]])]
    for rows, (level, kind) in _LISTS.items():
        claimed += samples_of(level, kind, shown[rows])
    known = {
        schema["x-series"]
        for kind in ("NodeFields", *(kind for _, kind in _LISTS.values()))
        for schema in fields(kind).values()
    }
    there = [(family, *sample) for family in known for sample in series.samples.get(family, ())]
    assert ordered(claimed) == ordered(there)
    of_node = {family for family in series.samples if family.startswith("gpuslice_")} - known
    assert not any(re.match("gpuslice_(gpu|mig|vgpu|container|collector)_", family) for family in of_node)
    assert shown["timestamp"] == pytest.approx(series.timestamp)


@pytest.mark.parametrize("name", SCENARIOS)
def test_json_of_every_scenario_is_as_described(name) -> None:
    """All the fields of their types, and no others."""
    faults = described().iter_errors(snapshot_json(scenario(name)))
    assert [f"{fault.json_path}: {fault.message}" for fault in faults] == []


def says_state(series, key, state, seconds) -> bool:
    """Whether a state and the seconds without compute are what the series of a container say."""
    quiet = None if series.is_active(key) else series.quiet_for(key)
    return STATE_WORDS[state] == series.state(key) and seconds == (
        quiet if quiet is None else pytest.approx(quiet, abs=0.001)
    )


@pytest.mark.parametrize("name", SCENARIOS)
def test_json_has_the_states_of_containers(name) -> None:
    """Each container has its state, and for how long it has not computed where it is quiet or idle."""
    series = told(name)
    for row in snapshot_json(scenario(name), idle_after=idle_after(name))["containers"]:
        key = Key(*(row[label] or "" for label in Key._fields))
        assert says_state(series, key, row["state"], row["quiet_seconds"]), row


def informed(series, key, name, labels) -> list[str]:
    """Give the labels of each series of a container with that name, as CSV writes them."""
    own = {label: value for label, value in key._asdict().items() if value}
    found = series.all(f"container_{name}", **own)
    return sorted(" ".join(filter(None, map(sample.labels.get, labels))) for sample in found)


@pytest.mark.parametrize("name", SCENARIOS)
def test_csv_has_the_numbers_of_metrics(name) -> None:
    """Each container has a line, each cell is its series or label, and empty where there is none."""
    series = told(name)
    lines = list(csv.DictReader(io.StringIO(snapshot_csv(scenario(name), idle_after=idle_after(name)))))
    keys = [Key(*(line[label] for label in Key._fields)) for line in lines]
    assert sorted(keys) == sorted(series.containers)
    for key, line in zip(keys, lines, strict=True):
        info = series.info(key)
        state, quiet = line.pop("state"), line.pop("quiet_seconds")
        assert says_state(series, key, state, float(quiet) if quiet else None), key
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
    """Give the lines of the text twin with the device of each and their cells."""
    head = next((line for line in text.splitlines() if line.startswith("    HOLDER")), "")
    starts = [found.start() for found in re.finditer(r"(?<=  )\S+(?: \S+)*", head)]
    for line in text.splitlines():
        if line.startswith("    ") and line != head and not line.startswith("    unattributed: "):
            ends = [*starts[1:], None]
            yield [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]


def says_row(series, key, cells) -> bool:
    """Whether the cells of a line are what the series of a container say."""
    holder, slices, isolation, memory, compute, state = cells
    used, entitled = re.fullmatch(r"(\S+) / (\S+) GiB", memory).groups()
    computes, share = re.fullmatch(r"(\S+) / (\S+) GPU", compute).groups()
    held, resource = series.of(key, "slices"), series.info(key).get("resource", "")
    state, _, reported = state.partition(", reported as ")
    word, _, quiet = state.partition(" (")
    unhealthy = set(informed(series, key, "device_health_info", ("health",))) - {"Healthy", "Unknown"}
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
        and says(used, sizes[0], 1)
        and says(entitled, sizes[1], 1)
        and says(computes, series.of(key, "compute_used_ratio"), 2)
        and says(share, series.of(key, "compute_entitled_ratio"), 2)
        and word == series.state(key)
        and {reported} - {""} == unhealthy
        and bool(quiet) == word.startswith(("quiet", "idle"))
        and (not quiet or lasts(quiet.removesuffix(")"), series.quiet_for(key)))
    )


@pytest.mark.parametrize("name", SCENARIOS)
def test_text_has_the_numbers_of_metrics(name) -> None:
    """Each container has a line of its own with its use, entitlement and state, and a dash for no series."""
    series, shown = told(name), scenario(name)
    lines = list(lines_of_holders(snapshot_text(shown, now=shown.timestamp, idle_after=idle_after(name))))
    rest = series.containers
    assert len(lines) == len(rest)
    for cells in lines:
        same = [key for key in rest if says_row(series, key, cells)]
        assert same, cells
        rest.remove(same[0])


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_total_of_the_text_is_the_sum_of_the_series(name) -> None:
    """Memory and compute, held and used, with a mark where a part of the sum is missing."""
    series, shown = told(name), scenario(name)
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
        assert says(text, sum(known) if known or not values else None, digits, least=least), (
            line,
            text,
            values,
        )


def node_sums(series, read) -> list[tuple[list, float, int]]:
    """List what is added up of the GPUs that are read: values, unit and digits of each total."""
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
