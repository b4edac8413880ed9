"""run:ai: who has which fraction of a reserved GPU, which MIG device, and what it meters."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import (
    ContainerFile,
    DeviceKey,
    DeviceUse,
    Holding,
    Meter,
    NodeObject,
    SliceCount,
    SystemFiles,
)
from exporter.sharing import resolve_holdings
from exporter.sharing.base.view import NodeFacts
from exporter.sharing.runai import AnnotatedMig, parse_mig_device, parse_mig_mapping
from tests.core.attribution.build import (
    GIB,
    MIG,
    UUID,
    attribute,
    gpu,
    held,
    mig,
    mig_gpu,
    process,
    whole,
    workloads,
)
from tests.core.attribution.build import row as row_of
from tests.core.sharing.build import (
    OTHER_UUID,
    allocations,
    container,
    numbered,
    only,
    pod,
    pods,
    resolve,
    rows,
    where,
)
from tests.core.sharing.cases import JSON_VALUES
from tests.core.sharing.reservations import KAI, OTHER_GROUP, RUNAI, fraction, reservation, reserved

MIB = 1 << 20
KEY = DeviceKey(UUID)
NAME = "runai-reservation-gpu-i-0b498db53280b86a6-fzdhl"
# run-ai/fake-gpu-operator design/samples/2.17/fractional_pod.yaml
FRACTION = {
    "gpu-fraction": "0.5",
    "received-resource-type": "Fraction",
    "runai-allocated-gpu-memory": "7680",
    "runai-allocated-gpus": "0.5",
    "runai-allocated-mig-gpus": "0",
}
# the same, design/samples/>=2.9/mig/pod/7g-5gb.yaml
NEW_MIG = (
    '{"name":"nvidia.com/mig-7g.40gb","position":0,"gpuamount":7,'
    '"deviceUUID":"MIG-6d9be9db-d376-5991-8c4c-18ab448933ff","gpuinstanceid":0,"gpuindex":"0",'
    '"gputype":"A100-40GB"}'
)
# the same, design/samples/<2.9/mig/pod/1g-5gb.yaml
OLD_MIG = (
    '{"name":"nvidia.com/mig-1g.5gb","position":6,"gpuamount":1,'
    '"instanceid":"MIG-28810d46-0180-5139-a975-020bdc7f9cb1","gpuindex":0,"gputype":"A100-40GB"}'
)
# the same, design/samples/>=2.9/mig/node/7g-40gb.yaml
NEW_MAPPING = (
    "ewogICIwIjogWwogICAgewogICAgICAicG9zaXRpb24iOiAwLAogICAgICAiZGV2aWNlX3V1aWQiOiAiTUlHLTZkOWJlOWRiLWQzNzYt"
    "NTk5MS04YzRjLTE4YWI0NDg5MzNmZiIsCiAgICAgICJncHVfaW5zdGFuY2VfaWQiOiAwCiAgICB9CiAgXQp9"
)
# the same, design/samples/<2.9/mig/node/4_instances.yaml
OLD_MAPPING = (
    "ewogICIwIjogewogICAgIjAiOiAiTUlHLTJhNTMyNTNmLTgyYWQtNTY2ZS05MzJmLTE2NDViZWM3MmNjYiIsCiAgICAiNCI6ICJNSUct"
    "MTBhMDUwYTEtNGIyNC01YzZlLWEwNmEtNWQ5YmViM2IzOTg4IiwKICAgICI1IjogIk1JRy1iMTI1OGU3ZS02OTM1LTU2ZTQtYjlkZi05"
    "OTBlYzA2YmE5MDYiLAogICAgIjYiOiAiTUlHLTI4ODEwZDQ2LTAxODAtNTEzOS1hOTc1LTAyMGJkYzdmOWNiMSIKICB9Cn0="
)


def shared(*found, where=RUNAI, **facts):
    """Return the holdings of a node with a GPU of 16 GiB that run:ai reserves, and these pods."""
    everything = pods(reservation(name=NAME, where=where), *found)
    return resolve(gpu(), reserved(name=NAME, where=where), whole(), pods=everything, **facts)


def metered(*uses, uid="uid-a") -> dict[str, SystemFiles]:
    """Return what run:ai wrote of a pod."""
    return {"runai": SystemFiles(containers=(ContainerFile(pod_uid=uid, devices=uses),))}


def on_mig(name, text, **more):
    """Return a pod that says which MIG device it has."""
    return pod(name, {"received-resource-type": "MigInstance", "runai-mig-device": text}, **more)


def mig_text(device, **more) -> str:
    """Return what a pod on a MIG device says."""
    return json.dumps({"name": "nvidia.com/mig-3g.5gb", "deviceUUID": device} | more)


def mapping(value) -> NodeObject:
    """Return a node with a mapping of MIG devices."""
    encoded = base64.b64encode(json.dumps(value).encode()).decode()
    return NodeObject(annotations={"run.ai/mig-mapping": encoded})


def test_a_fraction_has_what_it_was_given():
    holdings = shared(fraction("a", FRACTION))
    assert only(holdings) == Holding(
        holder=container("a"),
        device=KEY,
        resource="nvidia.com/gpu",
        slices=1,
        memory_entitled=7680 * MIB,
        compute_entitled=0.5,
        sharing="runai",
        isolation="",
    )
    assert holdings.devices[KEY].slices == (SliceCount("nvidia.com/gpu", None, 1),)


def test_the_request_counts_without_an_allocation():
    holding = only(shared(fraction("a", {"gpu-fraction": "0.25"})))
    assert (holding.memory_entitled, holding.compute_entitled, holding.sharing) == (4 * GIB, 0.25, "runai")


def test_the_request_of_a_container_counts_without_an_allocation():
    asked = {"nvidia.com/container.main.gpu-memory.request": "4Gi"}
    holding = only(shared(fraction("a", asked | {"nvidia.com/container.main.gpus.devices": UUID})))
    assert (holding.memory_entitled, holding.sharing, holding.isolation) == (4 * GIB, "runai", "hard")
    holding = only(shared(fraction("a", FRACTION | asked)))
    assert (holding.memory_entitled, holding.isolation) == (7680 * MIB, "")


def test_limits_of_the_driver_isolate_if_every_fraction_of_the_gpu_has_one():
    """By the annotation of the binder, from run:ai 3.0 on."""
    limited = {
        "nvidia.com/container.main.gpu-memory.limit": "4Gi",
        "nvidia.com/container.main.gpus.devices": UUID,
    }
    holdings = shared(fraction("a", limited), fraction("b", limited))
    assert rows(holdings, "isolation") == ["hard", "hard"]
    holdings = shared(fraction("a", limited), fraction("b", FRACTION))
    assert rows(holdings, "isolation") == ["", ""]


@pytest.mark.parametrize("text", ["x", "", "0", "-1", "9" * 5000, "7680MiB"])
def test_an_allocation_that_cannot_be_read_does_not_count(text):
    holding = only(shared(fraction("a", FRACTION | {"runai-allocated-gpu-memory": text})))
    assert holding.memory_entitled == 8 * GIB


def test_the_allocation_of_several_gpus_is_not_divided():
    labels = {"runai-gpu-group/x": "df7c0dd3-9795-443c-85b9-acbf49c8fb6b", "runai-gpu-group/y": OTHER_GROUP}
    both = pod("a", FRACTION | {"runai-allocated-gpus": "1"}, labels=labels)
    second = reservation(OTHER_GROUP, OTHER_UUID, "other", RUNAI)
    allocated = [*reserved(name=NAME, where=RUNAI), *reserved(OTHER_UUID, "other", RUNAI)]
    everything = pods(reservation(name=NAME, where=RUNAI), second, both)
    holdings = resolve([gpu(), numbered(1, 1)], allocated, whole(), pods=everything)
    assert rows(holdings, "memory_entitled", "compute_entitled") == [(8 * GIB, 0.5)] * 2


def test_newer_releases_name_the_container_like_kai():
    holding = only(shared(fraction("a"), where=(RUNAI[0], KAI[1])))
    assert holding.sharing == "runai"


def test_without_a_reservation_the_annotations_name_the_system(objections):
    annotated = pods(fraction("a", FRACTION), fraction("b", {"gpu-fraction": "x"}))
    holdings = resolve(gpu(), [], whole(), objections, pods=annotated)
    assert holdings.unresolved == {"nvidia.com/gpu": 2}
    assert objections.counts == {"kai_annotation": 1}


def test_without_the_pods_objects_the_holders_are_unknown():
    holdings = resolve(gpu(), reserved(name=NAME, where=RUNAI), whole())
    assert (holdings.holdings, holdings.unresolved) == ((), {"nvidia.com/gpu": 1})
    assert list(holdings.blind) == ["runai"]


def test_its_files_meter_the_pod():
    uses = DeviceUse(device="0", memory_used=GIB, compute_used=0.3), DeviceUse(device="1", memory_used=7)
    holding = only(shared(fraction("a", FRACTION), files=metered(*uses)))
    assert holding.meter == Meter(source="runai", memory=GIB, compute=0.3)


@pytest.mark.parametrize(
    "files",
    [
        {},
        metered(DeviceUse(device="0", memory_used=GIB), uid="uid-other"),
        metered(DeviceUse(device="1", memory_used=GIB)),
        metered(DeviceUse(device="0", memory_used=1), DeviceUse(device="0", memory_used=2)),
    ],
    ids=["none", "of another pod", "of another GPU", "two of one GPU"],
)
def test_files_of_other_pods_or_gpus_are_not_the_meter(files):
    assert only(shared(fraction("a", FRACTION), files=files)).meter is None


def test_a_metered_gpu_counts_once():
    card = gpu([process(1, 2 * GIB)], {1: 20}, used=3 * GIB)
    files = metered(DeviceUse(device="0", memory_used=GIB, compute_used=0.25))
    annotated = pods(reservation(name=NAME, where=RUNAI), fraction("a", FRACTION))
    facts = NodeFacts(pods=annotated, files=files)
    holdings = resolve_holdings([card], allocations(reserved(name=NAME, where=RUNAI), whole()), facts)
    joined = attribute([card], holdings, workloads({1: "a"}))
    row = row_of(joined, "a")
    assert (row.memory_used, row.compute_used, row.memory_source) == (GIB, 0.25, "runai")
    assert joined.gpus[0].unattributed_memory == 2 * GIB
    assert [file.holder.pod for file in joined.containers] == ["a"]


def test_a_pod_has_the_mig_device_that_it_names():
    holdings = resolve(mig_gpu([mig()]), [], [], pods=pods(on_mig("a", mig_text(MIG))))
    assert only(holdings) == Holding(
        holder=container("a"),
        device=DeviceKey(UUID, MIG),
        resource="nvidia.com/mig-3g.5gb",
        slices=1,
        memory_entitled=5 * GIB,
        compute_entitled=3 / 7,
        sharing="mig",
        isolation="hard",
    )
    assert holdings.devices[DeviceKey(UUID, MIG)].exclusive


def test_memory_that_compute_instances_share_is_unknown():
    shared_memory = mig(memory_shared=True)
    holding = only(resolve(mig_gpu([shared_memory]), [], [], pods=pods(on_mig("a", mig_text(MIG)))))
    assert holding.memory_entitled is None


def test_a_mig_device_with_an_id_counts_once():
    resource = "nvidia.com/mig-3g.5gb"
    allocated = held("a", MIG, resource=resource)
    holding = only(resolve(mig_gpu([mig()]), allocated, [], pods=pods(on_mig("a", mig_text(MIG)))))
    assert (holding.slices, holding.sharing) == (1, "mig")


@pytest.mark.parametrize(
    "places",
    [{"0": {"4": MIG}}, {"0": [{"position": 4, "device_uuid": MIG, "gpu_instance_id": 1}]}],
    ids=["before 2.9", "since 2.9"],
)
def test_the_node_maps_places_to_devices(places):
    text = json.dumps({"name": "nvidia.com/mig-3g.5gb", "gpuindex": "0", "position": 4})
    annotated = pods(on_mig("a", text))
    holdings = resolve(mig_gpu([mig()]), [], [], pods=annotated, node=mapping(places))
    assert where(holdings) == {"a": [DeviceKey(UUID, MIG)]}
    assert resolve(mig_gpu([mig()]), [], [], pods=annotated).unresolved == {"nvidia.com/mig-3g.5gb": 1}


def test_a_mig_device_that_is_not_here_is_unresolved():
    elsewhere = on_mig("a", mig_text("MIG-00000000-0000-0000-0000-0000000000ee"))
    holdings = resolve(mig_gpu([mig()]), [], [], pods=pods(elsewhere))
    assert (holdings.holdings, holdings.unresolved) == ((), {"nvidia.com/mig-3g.5gb": 1})


def test_mig_devices_are_read_in_both_forms():
    """design/samples of both releases."""
    assert parse_mig_device(NEW_MIG) == AnnotatedMig(
        "nvidia.com/mig-7g.40gb", "MIG-6d9be9db-d376-5991-8c4c-18ab448933ff", (0, 0)
    )
    assert parse_mig_device(OLD_MIG) == AnnotatedMig(
        "nvidia.com/mig-1g.5gb", "MIG-28810d46-0180-5139-a975-020bdc7f9cb1", (0, 6)
    )


def test_mappings_are_read_in_both_forms():
    """design/samples of both releases."""
    assert parse_mig_mapping(NEW_MAPPING) == {(0, 0): "MIG-6d9be9db-d376-5991-8c4c-18ab448933ff"}
    assert parse_mig_mapping(OLD_MAPPING) == {
        (0, 0): "MIG-2a53253f-82ad-566e-932f-1645bec72ccb",
        (0, 4): "MIG-10a050a1-4b24-5c6e-a06a-5d9beb3b3988",
        (0, 5): "MIG-b1258e7e-6935-56e4-b9df-990ec06ba906",
        (0, 6): "MIG-28810d46-0180-5139-a975-020bdc7f9cb1",
    }


BAD_DEVICES = [
    "x",
    "[]",
    "null",
    "{}",
    NEW_MIG[:-1],
    "[" * 10000,
    '{"name":' * 5000,
    '{"name":"nvidia.com/gpu","deviceUUID":"MIG-a"}',
    '{"name":"nvidia.com/mig-1g.5gb"}',
    '{"name":"nvidia.com/mig-1g.5gb","deviceUUID":7}',
    '{"name":"nvidia.com/mig-1g.5gb","deviceUUID":"GPU-a"}',
    '{"name":"nvidia.com/mig-1g.5gb","deviceUUID":"MIG-a\\nb"}',
    '{"name":"nvidia.com/mig-1g.5gb","gpuindex":-1,"position":0}',
    '{"name":"nvidia.com/mig-1g.5gb","gpuindex":true,"position":0}',
    '{"name":"nvidia.com/mig-1g.5gb","gpuindex":"' + "9" * 5000 + '","position":0}',
    '{"name":"nvidia.com/mig-1g.5gb","gpuindex":' + "9" * 5000 + ',"position":0}',
    '{"name":"nvidia.com/mig-1g.5gb"' + " " * 70000 + "}",
]


@pytest.mark.parametrize("text", BAD_DEVICES, ids=range(len(BAD_DEVICES)))
def test_a_mig_device_that_cannot_be_read_costs_only_its_pod(text, objections):
    annotated = pods(on_mig("a", text), on_mig("b", mig_text(MIG)))
    holdings = resolve(mig_gpu([mig()]), [], [], objections, pods=annotated)
    assert where(holdings) == {"b": [DeviceKey(UUID, MIG)]}
    assert objections.counts == {"runai_annotation": 1}


BAD_MAPPINGS = [
    "x",
    "é",
    "bm8=",
    OLD_MAPPING[:-5],
    "A" * 70000,
    *(
        base64.b64encode(text.encode()).decode()
        for text in ("[]", '{"0":7}', '{"x":{}, "0":{"y":"MIG-a"}}', '{"0":[7]}', '{"0":[{"position":0}]}')
    ),
    base64.b64encode(b"\xff\xfe").decode(),
    base64.b64encode(b"[" * 20000).decode(),
]


@pytest.mark.parametrize("text", BAD_MAPPINGS, ids=range(len(BAD_MAPPINGS)))
def test_a_mapping_that_cannot_be_read_is_objected_to(text, objections):
    placed = json.dumps({"name": "nvidia.com/mig-3g.5gb", "gpuindex": 0, "position": 0})
    annotated = pods(on_mig("a", placed), on_mig("b", mig_text(MIG)))
    node = NodeObject(annotations={"run.ai/mig-mapping": text})
    holdings = resolve(mig_gpu([mig()]), [], [], objections, pods=annotated, node=node)
    assert where(holdings) == {"b": [DeviceKey(UUID, MIG)]}
    assert objections.counts == {"runai_node": 1}


fields = st.sampled_from(["name", "deviceUUID", "instanceid", "position", "gpuindex", "0", "device_uuid"])


@given(st.text(max_size=60) | (JSON_VALUES | st.dictionaries(fields, JSON_VALUES)).map(json.dumps))
def test_any_text_is_read_or_refused(text):
    """Nothing else than ValueError comes of a hostile annotation."""
    for read, given_text in (
        (parse_mig_device, text),
        (parse_mig_mapping, base64.b64encode(text.encode()).decode()),
    ):
        try:
            files = read(given_text)
        except ValueError:
            continue
        assert isinstance(files, AnnotatedMig | dict)


def test_a_reservation_of_kai_is_not_run_ais():
    holdings = shared(fraction("a"), where=KAI)
    assert only(holdings).sharing == "kai"
