"""nos of nebuly: slices of a GPU's memory, by the ids of its fork of the device plugin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import DeviceKey, DeviceSharing, Holding, OfferedDevice, SliceCount
from tests.core.attribution.build import GIB, MIG, UUID, gpu, held, mig, mig_gpu
from tests.core.sharing.build import OTHER_UUID, by, container, numbered, only, resolve, rows, where

KEY, OTHER = DeviceKey(UUID), DeviceKey(OTHER_UUID)
TEN, TWO = "nvidia.com/gpu-10gb", "nvidia.com/gpu-2gb"


def slices(*numbers, size=10, device=UUID) -> list[str]:
    """Return ids of slices."""
    return [f"{device}::{size}::{number}" for number in numbers]


def offers(resource, *ids) -> list[OfferedDevice]:
    """Return what the plugin offers."""
    return [OfferedDevice(resource, device_id) for device_id in ids]


def test_a_slice_is_an_amount_of_memory():
    """nebuly-ai/k8s-device-plugin internal/rm/devices.go: UUID, GB, number; nothing of compute."""
    holdings = resolve(gpu(), held("a", *slices(0), resource=TEN), offers(TEN, *slices(0, 1)))
    assert only(holdings) == Holding(
        holder=container("a"),
        device=KEY,
        resource=TEN,
        slices=1,
        memory_entitled=10 * GIB,
        compute_entitled=None,
        sharing="nos",
        isolation="soft",
    )
    assert holdings.devices == {
        KEY: DeviceSharing(sharing="nos", isolation="soft", slices=(SliceCount(TEN, 2, 1),))
    }


def test_several_slices_add_up():
    ids = [*slices(0, 1, size=2), *slices(4, size=2, device=OTHER_UUID)]
    holdings = resolve([gpu(), numbered(1, 1)], held("a", *ids, resource=TWO), offers(TWO, *ids))
    by_device = by(holdings, "device", "slices", "memory_entitled")
    assert by_device == {KEY: (2, 4 * GIB), OTHER: (1, 2 * GIB)}


def test_slices_of_several_sizes_share_a_gpu():
    allocated = [*held("a", *slices(0), resource=TEN), *held("b", *slices(0, 1, 2, 3, size=2), resource=TWO)]
    offered = [*offers(TEN, *slices(0)), *offers(TWO, *slices(0, 1, 2, 3, size=2))]
    holdings = resolve(gpu(), allocated, offered)
    assert sum(holding.memory_entitled for holding in holdings.holdings) == 18 * GIB
    assert holdings.devices[KEY].slices == (SliceCount(TEN, 1, 1), SliceCount(TWO, 4, 4))


def test_several_containers_are_distinguished():
    allocated = [
        *held("a", *slices(0), resource=TEN, container="x"),
        *held("a", *slices(1), resource=TEN, container="y"),
    ]
    holdings = resolve(gpu(), allocated, offers(TEN, *slices(0, 1)))
    assert rows(holdings, "holder.container") == ["x", "y"]


def test_a_slice_is_known_by_its_id_alone():
    """The configuration can give the resource any name."""
    resource = "example.com/small"
    holdings = resolve(gpu(), held("a", *slices(0), resource=resource), offers(resource, *slices(0)))
    assert only(holdings).sharing == "nos"


def test_a_gpu_that_is_not_here_is_unresolved():
    allocated = held("a", *slices(0), resource=TEN)
    assert resolve(numbered(0, 0), allocated).unresolved == {TEN: 1}
    assert resolve(mig_gpu([mig()]), allocated).unresolved == {TEN: 1}


def test_ids_of_other_plugins_are_theirs():
    """A replica of time-slicing has two parts, and MIG devices that nos makes are NVIDIA's."""
    sliced = resolve(gpu(), held("a", f"{UUID}::1"), offers("nvidia.com/gpu", f"{UUID}::0", f"{UUID}::1"))
    assert only(sliced).sharing == "time-slicing"
    resource = "nvidia.com/mig-3g.5gb"
    cut = resolve(mig_gpu([mig()]), held("a", MIG, resource=resource), offers(resource, MIG))
    assert only(cut).sharing == "mig"


def test_two_plugins_may_share_a_node():
    allocated = [*held("a", *slices(0), resource=TEN), *held("b", OTHER_UUID)]
    offered = [*offers(TEN, *slices(0)), *offers("nvidia.com/gpu", OTHER_UUID)]
    holdings = resolve([gpu(), numbered(1, 1)], allocated, offered)
    assert by(holdings, "holder.pod", "sharing") == {"a": "nos", "b": "exclusive"}


@pytest.mark.parametrize(
    "device_id",
    [
        *(f"{UUID}::ten::0", f"{UUID}::0::0", f"{UUID}::-1::0", f"{UUID}::10::x", f"{UUID}::::"),
        *(f"{UUID}::1_0::0", f"{UUID}::\u0661::0", f"{UUID}::{'9' * 5000}::0"),
        *(f"{UUID}::10::{'9' * 5000}", "GPU-::10::0"),
    ],
)
def test_an_id_that_cannot_be_read_costs_only_itself(device_id, objections):
    allocated = held("a", device_id, *slices(0), resource=TEN)
    holdings = resolve(gpu(), allocated, offers(TEN, *slices(0)), objections)
    assert where(holdings) == {"a": [KEY]}
    assert only(holdings).memory_entitled == 10 * GIB
    assert holdings.unresolved == {TEN: 1}
    assert objections.counts == {"nos_id": 1}


@given(st.text(alphabet="GPU-0123456789abcdef:", max_size=60), st.text(max_size=20))
def test_any_id_is_read_or_left_alone(device_id, number):
    for each in (device_id, f"{UUID}::10::{number}", f"{UUID}::{number}::1"):
        holdings = resolve(gpu(), held("a", each, resource=TEN), [])
        assert all(holding.memory_entitled > 0 for holding in holdings.holdings)
