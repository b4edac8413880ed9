"""Output for any values of the rows can be parsed."""

import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.exposition import EVERYTHING, Exposition, Format
from exporter.formats.json_csv import snapshot_csv, snapshot_json
from exporter.formats.text import snapshot_text
from exporter.model import (
    CollectorHealth,
    ContainerRef,
    ContainerRow,
    DeviceKey,
    GpuIdentity,
    GpuReading,
    GpuRow,
    Memory,
    MigReading,
    MigRow,
    NodeRow,
    PodRow,
    SliceCount,
    Snapshot,
    Totals,
)

BOTH = replace(EVERYTHING, dcgm_version="both")
TEXT = st.text(st.characters(exclude_categories=[]), max_size=4)
COUNT = st.none() | st.integers(0, 10**15)
SHARE = st.none() | st.floats(0, allow_nan=False)
BYTES = st.integers(0, 10**12)
TRIPLES = st.dictionaries(st.tuples(TEXT, TEXT, TEXT), st.integers(0, 9), max_size=2)
DEVICE = st.builds(DeviceKey, st.sampled_from(["G0", "G1", "G9"]), st.sampled_from(["", "M0", "M9"]))
MEMORY = st.none() | st.builds(Memory, total=BYTES, used=BYTES, free=BYTES, reserved=COUNT)
SLICES = st.lists(st.builds(SliceCount, TEXT, COUNT, BYTES, cordoned=COUNT), max_size=3).map(tuple)
IDENTITY = st.builds(GpuIdentity, uuid=st.sampled_from(["G0", "G1"]), index=BYTES, minor=COUNT, model=TEXT)
READING = st.builds(
    GpuReading,
    identity=IDENTITY,
    up=st.booleans(),
    memory=MEMORY,
    power_milliwatts=COUNT,
    mig_enabled=st.none() | st.booleans(),
)
MIG_READING = st.builds(
    MigReading, uuid=TEXT, gi=st.integers(0, 2), ci=st.integers(0, 2), profile=TEXT, memory=MEMORY
)
ROW = st.builds(
    ContainerRow,
    holder=st.builds(ContainerRef, TEXT, TEXT, TEXT),
    device=DEVICE,
    resource=TEXT,
    slices=COUNT,
    memory_used=COUNT,
    compute_used=SHARE,
    compute_entitled=SHARE,
    totals=st.none() | st.builds(Totals, first_seen=st.floats(0, 1e10), last_active=SHARE),
)
JOBS = st.lists(TEXT, max_size=2).map(tuple)
POD = st.builds(
    PodRow,
    namespace=TEXT,
    name=TEXT,
    uid=TEXT,
    labels=st.dictionaries(TEXT, TEXT, max_size=3).map(lambda labels: tuple(sorted(labels.items()))),
)
SNAPSHOT = st.builds(
    Snapshot,
    timestamp=st.floats(0, 1e10),
    sequence=BYTES,
    node=st.builds(NodeRow, name=TEXT, gpu_count=COUNT, nvml_errors=TRIPLES, inconsistent=TRIPLES),
    gpus=st.lists(
        st.builds(GpuRow, identity=IDENTITY, reading=st.none() | READING, slices=SLICES, jobs=JOBS),
        max_size=2,
    ).map(tuple),
    migs=st.lists(
        st.builds(MigRow, device=DEVICE, reading=MIG_READING, slices=SLICES, jobs=JOBS), max_size=3
    ).map(tuple),
    pods=st.lists(POD, max_size=2).map(tuple),
    containers=st.lists(ROW, max_size=3).map(tuple),
    collectors=st.lists(
        st.builds(CollectorHealth, name=TEXT, success=st.booleans(), message=TEXT), max_size=2
    ).map(tuple),
)


@settings(max_examples=60)
@given(snapshot=SNAPSHOT)
def test_every_page_parses_without_duplicates_and_json_csv_and_text_can_be_sent(parse, snapshot) -> None:
    """The parser of these tests refuses a duplicate series, and JSON is strict."""
    page = Exposition(BOTH).page(snapshot)
    for fmt in (Format.TEXT, Format.OPENMETRICS):
        assert parse(page.body(fmt), fmt)
    assert json.dumps(snapshot_json(snapshot), allow_nan=False)
    assert snapshot_csv(snapshot).encode()
    assert snapshot_text(snapshot).encode()
