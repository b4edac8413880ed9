"""GPUs that a node's annotation cordons for HAMi: their slices are no free ones, and holders keep theirs."""

import pytest

from exporter.model import DeviceKey, NodeObject, OfferedDevice, SliceCount
from tests.core.attribution.build import UUID, gpu, held
from tests.core.sharing.build import OTHER_UUID, numbered, only, resolve

GPUS = [gpu(), numbered(1, 1)]
OFFERED = [
    OfferedDevice("nvidia.com/gpu", f"{uuid}-{place}") for uuid in (UUID, OTHER_UUID) for place in range(4)
]


def counts(node, objections=None, offered=OFFERED) -> dict[str, SliceCount]:
    """Return the slices of both GPUs; a container holds one of the first."""
    holdings = resolve(GPUS, held("train", f"{UUID}-2"), offered, objections, node=node)
    assert only(holdings).device == DeviceKey(UUID)
    return {key.uuid: holdings.devices[key].slices[0] for key in holdings.devices}


def annotated(text: str | None) -> NodeObject:
    """Return a node with that annotation."""
    return NodeObject(annotations={} if text is None else {"hami.io/device-cordon": text})


@pytest.mark.parametrize("text", [UUID, f"{UUID}, ", f" ,, {UUID},", f"\n{UUID}\n"])
def test_a_cordoned_gpu_keeps_its_holders_and_has_nothing_free(text: str, objections) -> None:
    """Spaces and empty entries are skipped, as in pkg/device/nvidia/device_test.go (``"dev-1, "``)."""
    found = counts(annotated(text), objections)
    assert found == {
        UUID: SliceCount("nvidia.com/gpu", 4, 1, cordoned=4),
        OTHER_UUID: SliceCount("nvidia.com/gpu", 4, 0, cordoned=0),
    }
    assert (found[UUID].free, found[UUID].withheld, found[OTHER_UUID].free) == (0, 3, 4)
    assert not objections.counts


@pytest.mark.parametrize("text", [None, "", "  ", ","])
def test_a_node_without_the_annotation_has_no_cordoned_slices(text: str | None) -> None:
    assert {count.cordoned for count in counts(annotated(text)).values()} == {0}


def test_without_the_nodes_object_cordons_are_unknown() -> None:
    assert {count.cordoned for count in counts(None).values()} == {None}


def test_a_cordoned_gpu_of_unknown_slices_has_an_unknown_number() -> None:
    holdings = resolve(GPUS, held("train", f"{UUID}-2"), None, node=annotated(f"{UUID},{OTHER_UUID}"))
    assert holdings.devices[DeviceKey(UUID)].slices == (SliceCount("nvidia.com/gpu", None, 1),)


def test_a_uuid_of_another_node_is_counted_and_named(caplog: pytest.LogCaptureFixture, objections) -> None:
    """The rest of the annotation counts; a typing error would leave a sick GPU in use."""
    found = counts(annotated(f"GPU-elsewhere,{UUID}"), objections)
    assert [found[uuid].cordoned for uuid in (UUID, OTHER_UUID)] == [4, 0]
    assert objections.counts == {"hami_node": 1}
    assert "hami.io/device-cordon: GPU-elsewhere: is not a GPU of this node" in caplog.text


def test_the_cordon_of_hami_does_not_concern_other_systems() -> None:
    replicas = [OfferedDevice("nvidia.com/gpu", f"{UUID}::{place}") for place in range(4)]
    holdings = resolve(gpu(), held("a", f"{UUID}::0"), replicas, node=annotated(UUID))
    assert [count.cordoned for count in holdings.devices[DeviceKey(UUID)].slices] == [None]
