"""Under DCGM's names, too, an unknown value is absent, and never a 0 or a sentinel."""

import re
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.exposition import Exposition, Format
from exporter.metrics import Family
from exporter.metrics.dcgm import DCGM, LEGACY, levels
from exporter.metrics.selection import Selection
from exporter.model import (
    Bar1,
    DeviceKey,
    Ecc,
    GpuIdentity,
    GpuReading,
    GpuRow,
    Memory,
    MigReading,
    MigRow,
    NodeRow,
    Nvlink,
    PcieLink,
    Profile,
    Repairs,
    Snapshot,
)
from tests.core.exposition.dcgm_node import EVERYTHING, NODE, WHOLE

SAMPLE = re.compile(r"^((?:DCGM|dcgm)_[^ ]*\{.*\}) (\S+)$", re.MULTILINE)
IDENTITY = GpuIdentity(uuid="GPU-x", index=0)
HOLLOW = {
    "nothing": {},
    "parts without content": {
        "pcie_link": PcieLink(),
        "nvlink": Nvlink(),
        "ecc": Ecc(),
        "repairs": Repairs(),
        "profiling": Profile(source="gpm"),
        "mig_enabled": None,
    },
    "not answering": {**EVERYTHING, "up": False},
}


EVERY_NAME = Selection(
    metric_set="full", dcgm_names="legacy", dcgm_version="both", allow=(re.compile("DCGM_.*"),)
)


def _samples(snapshot: Snapshot) -> dict[str, str]:
    page = Exposition(EVERY_NAME).page(snapshot).body(Format.TEXT).decode()
    return dict(SAMPLE.findall(page))


def _one(reading: GpuReading | None, **facts: Any) -> Snapshot:
    row = GpuRow(identity=IDENTITY, reading=reading, **facts)
    return Snapshot(timestamp=1.0, sequence=1, node=NodeRow(name="node"), gpus=(row,))


@pytest.mark.parametrize("facts", HOLLOW.values(), ids=HOLLOW)
def test_a_gpu_without_known_values_has_no_series_but_its_model(facts) -> None:
    assert _samples(_one(GpuReading(identity=IDENTITY, **facts))) == {
        'dcgm_gpu_info{gpu="0",uuid="GPU-x"}': "1"
    }


def test_a_mig_device_without_known_values_has_no_series() -> None:
    mig = MigRow(device=DeviceKey("GPU-x", "MIG-x"), reading=MigReading(uuid="MIG-x", gi=1, ci=0))

    samples = _samples(replace(_one(GpuReading(identity=IDENTITY)), migs=(mig,)))

    assert not [labels for labels in samples if "GPU_I_ID" in labels]


def test_no_family_has_a_value_for_a_gpu_without_a_reading() -> None:
    entities = levels("both", "Hostname")
    for family in (*DCGM["both"], *LEGACY):
        [entity] = entities[family.level](_one(None))
        value = family.value(entity.row) if isinstance(family, Family) else list(family.samples(entity.row))
        assert value in (None, []) or family.name == "dcgm_gpu_info", family.name


def _knock_out(value: Any, draw: Any) -> Any:
    """Return a part of a reading with less in it: fields become None, mappings lose keys."""
    if isinstance(value, dict):
        return {key: item for key, item in value.items() if draw(st.booleans())}
    if is_dataclass(value) and not isinstance(value, (Memory, Bar1)):
        optional = {field.name for field in fields(value)} - {"source", "product", "licensed"}
        return replace(
            value,
            **{
                name: _knock_out(getattr(value, name), draw)
                for name in sorted(optional)
                if isinstance(getattr(value, name), dict) or draw(st.booleans())
            },
        )
    return None


@settings(max_examples=40)
@given(data=st.data())
def test_a_missing_part_of_a_reading_removes_its_series_and_changes_no_other(data) -> None:
    complete = _samples(replace(NODE, gpus=(WHOLE,), migs=()))
    kept = {
        name: EVERYTHING[name]
        if data.draw(st.booleans(), label=name)
        else _knock_out(EVERYTHING[name], data.draw)
        for name in EVERYTHING
    }
    reading = GpuReading(identity=WHOLE.identity, **kept)

    after = _samples(replace(NODE, gpus=(replace(WHOLE, reading=reading),), migs=()))

    assert after.items() <= complete.items()
