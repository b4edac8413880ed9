"""A snapshot as JSON and CSV: names from the table, null and empty for unknown values."""

import csv
import io
import json
from dataclasses import replace

import pytest

from exporter.formats.json_csv import snapshot_csv, snapshot_json
from exporter.metrics import CONTAINER, FAMILIES, Family, LabelledFamily, field_name
from exporter.model import ContainerRef, DeviceEvent, DeviceKey, EventRow, ProcessRow

LISTS = {
    "gpu": "gpus",
    "mig": "migs",
    "vgpu": "vgpus",
    "container": "containers",
    "pod": "pods",
    "collector": "collectors",
}


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_json_has_every_family_under_its_name(full) -> None:
    """Each family is a field of the records of its level, info series as their labels."""
    document = snapshot_json(full)

    for family in FAMILIES:
        record = document["node"] if family.level == "node" else document[LISTS[family.level]][0]
        listed = isinstance(family, Family) or family.several
        names = family.labels if family.type == "info" and not listed else [field_name(family)]
        assert set(names) <= set(record)


def test_json_has_base_units_text_identities_and_objects_by_label(full) -> None:
    document = snapshot_json(full)

    gpu, container = document["gpus"][0], document["containers"][2]
    assert (gpu["uuid"], gpu["gpu"], gpu["model"]) == ("GPU-shared", "0", "NVIDIA A100-SXM4-40GB")
    assert gpu["clock_hertz"] == {"sm": 1_410_000_000, "memory": 1_215_000_000, "video": 1_545_000_000}
    assert gpu["peer"][0] == {"peer_uuid": "GPU-peer", "link": "NV12", "pcie": "NODE"}
    assert gpu["slices"] == {"nvidia.com/gpu.shared": 10}
    assert gpu["utilization_ratio"] == 0.37
    assert (container["pod"], container["mig_uuid"], container["slices"]) == ("train-0", "MIG-a", 1)
    assert container["isolation"] == "hard"
    assert document["node"]["nvml_errors_total"][""] == {"nvmlInit": {"Timeout": 1}}
    assert document["collectors"][1]["message"].startswith("The kubelet did not answer")
    assert document["collectors"][1]["errors_total"] == {"timeout": 3}


def test_json_has_processes_with_their_containers(full) -> None:
    """A process of the host has none; an unknown value is null."""
    rows = (
        ProcessRow(
            device=DeviceKey("GPU-a", "MIG-a"),
            pid=7,
            command="vllm\x1b",
            kinds=frozenset({"compute", "graphics"}),
            holder=ContainerRef("ml", "train", ""),
            memory=1 << 30,
            compute=0.25,
            place="pod",
        ),
        ProcessRow(device=DeviceKey("GPU-a"), pid=9, place="host"),
    )
    document = snapshot_json(replace(full, processes=rows, processes_left_out=3))

    assert document["processes_left_out"] == 3
    assert document["processes"] == [
        {
            "uuid": "GPU-a",
            "mig_uuid": "MIG-a",
            "pid": 7,
            "command": "vllm\x1b",
            "kinds": ["compute", "graphics"],
            "place": "pod",
            "namespace": "ml",
            "pod": "train",
            "container": None,
            "memory_used_bytes": 1 << 30,
            "compute_used_ratio": 0.25,
        },
        dict.fromkeys(document["processes"][0]) | {"uuid": "GPU-a", "pid": 9, "kinds": [], "place": "host"},
    ]
    assert "\x1b" not in json.dumps(document)


def test_json_has_null_for_every_unknown_value(bare) -> None:
    """None of them is missing."""
    document = snapshot_json(bare)

    observed = {
        "process_attribution_available",
        "snapshot_timestamp_seconds",
        "success",
        "up",
        "nvml_unsupported",
        "driver_released",
        "events_watched",
    }
    for family in FAMILIES:
        if isinstance(family, Family) and field_name(family) not in observed and family.level != "pod":
            record = document["node"] if family.level == "node" else document[LISTS[family.level]][0]
            assert record[field_name(family)] is None
    assert document["gpus"][0]["serial"] is None
    assert document["gpus"][0]["compute_mode"] is None
    assert document["gpus"][0]["mig_compute_slices"] == {"used": None, "free": None}


def test_json_has_events_with_their_meaning_and_the_containers_of_that_moment(full) -> None:
    event = DeviceEvent(at=5.0, uuid="GPU-mig", mig_uuid="MIG-a", kind="xid", xid=31)
    other = DeviceEvent(at=6.0, uuid="GPU-mig", kind="mig_config")
    rows = (EventRow(event=event, holders=(ContainerRef("ml", "train-0", "main"),)), EventRow(event=other))

    first, second = snapshot_json(replace(full, events=rows))["events"]

    assert (first["xid"], first["class"], first["mig_uuid"]) == (31, "application", "MIG-a")
    assert first["meaning"]
    assert first["action"]
    assert first["holders"] == [{"namespace": "ml", "pod": "train-0", "container": "main"}]
    assert (second["kind"], second["xid"], second["meaning"], second["holders"]) == (
        "mig_config",
        None,
        None,
        [],
    )


def test_json_has_null_for_nan_and_infinity_and_takes_any_name(full, container) -> None:
    row = replace(
        container("x", full.containers[0].device), compute_used=float("nan"), compute_entitled=float("inf")
    )
    row = replace(row, holder=ContainerRef("ml", 'a"\n\x1b\udc80', ""))

    text = json.dumps(snapshot_json(replace(full, containers=(row,))), allow_nan=False)

    (read,) = json.loads(text)["containers"]
    assert read["compute_used_ratio"] is None
    assert read["compute_entitled_ratio"] is None
    assert read["container"] is None


def test_csv_has_a_column_for_every_family_of_containers(full) -> None:
    rows = _rows(snapshot_csv(full))

    assert [row["pod"] for row in rows] == ["nb-anna", "nb-li", "train-0"]
    for family in CONTAINER:
        listed = isinstance(family, LabelledFamily) and family.several
        plain = family.type != "info" or listed
        assert set([field_name(family)] if plain else family.labels) <= set(rows[0])
    assert rows[0]["claim"] == "ml nb-anna-gpu gpu gpu.nvidia.com gpu-node-07 gpu-0"
    assert rows[0]["memory_used_bytes"] == str(3 * 1024**3)
    assert rows[0]["mig_uuid"] == ""
    assert rows[2]["mig_uuid"] == "MIG-a"


def test_csv_without_containers_is_its_header_and_unknown_cells_are_empty(full, bare) -> None:
    header = snapshot_csv(full).splitlines()[0]

    assert [header] == snapshot_csv(replace(full, containers=())).splitlines()
    assert _rows(snapshot_csv(bare))[0]["memory_used_bytes"] == ""


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@cmd", "\tx", "\rx"])
def test_csv_has_no_formulas_for_a_spreadsheet(full, container, name) -> None:
    """Text that begins like a formula gets an apostrophe; numbers stay numbers."""
    row = replace(
        container("x", full.containers[0].device), holder=ContainerRef("ml", name, "c"), compute_used=-0.5
    )

    (read,) = _rows(snapshot_csv(replace(full, containers=(row,))))

    assert read["pod"] == f"'{name}"
    assert read["compute_used_ratio"] == "-0.5"


def test_csv_quotes_separators_and_replaces_undecodable_bytes(full, container) -> None:
    row = replace(container("x", full.containers[0].device), holder=ContainerRef('a,"b', "c\nd", "e\udc80"))

    text = snapshot_csv(replace(full, containers=(row,)))

    (read,) = _rows(text)
    assert (read["namespace"], read["pod"], read["container"]) == ('a,"b', "c\nd", "e\ufffd")
    assert text.encode()
