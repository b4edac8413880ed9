"""The devices that new pods may get, whoever offers them, and those that were withdrawn."""

from dataclasses import replace

import pytest

from exporter.model import DeviceKey, OfferedDevice, SystemFiles
from exporter.sharing import resolve_holdings
from exporter.sharing.base.view import NodeFacts
from exporter.sharing.dra.checkpoint import Checkpoint
from tests.core.attribution.build import UUID, gpu, held, replicas, whole
from tests.core.sharing.build import OTHER_UUID, allocations, numbered, resolve
from tests.core.sharing.test_dra import claimed

FIRST, SECOND = DeviceKey(UUID), DeviceKey(OTHER_UUID)
GPUS = [gpu(), numbered(1, 1)]
ELSEWHERE = "GPU-00000000-0000-0000-0000-00000000dead"


def offered(ids=(), allocated=(), claims=(), files=None, **more) -> set[DeviceKey] | None:
    """Return the devices on offer; ``more`` are fields of the kubelet's answer."""
    answer = replace(allocations(list(allocated), list(ids)), claims=tuple(claims), **more)
    found = resolve_holdings(GPUS, answer, NodeFacts(files=files or {})).offered
    return None if found is None else set(found)


def test_a_plugin_offers_the_devices_of_its_ids():
    assert offered() == set()
    assert offered(whole()) == {FIRST}
    assert offered(replicas(2, OTHER_UUID)) == {SECOND}
    assert offered(whole(ELSEWHERE)) == set()


def test_an_old_kubelet_does_not_report_what_is_offered():
    assert resolve(GPUS, (), None).offered is None


def test_a_resource_that_the_kubelet_only_listed_before_offers_nothing():
    assert offered(whole(), kept=frozenset({"nvidia.com/gpu"})) == set()


def test_ids_of_amounts_may_mean_any_gpu():
    assert offered([OfferedDevice("tencent.com/vcuda-memory", "tencent.com/vcuda-memory-0-0")]) == {
        FIRST,
        SECOND,
    }


def test_ids_without_a_known_device_may_offer_those_that_they_may_mean():
    """They offer none for certain."""
    odd = OfferedDevice("nvidia.com/gpu", "gpu-of-a-new-form")
    for ids, certain, possible in (
        ([odd], set(), {FIRST, SECOND}),
        ([odd, *whole()], {FIRST}, {FIRST, SECOND}),
        (whole(ELSEWHERE), set(), set()),
    ):
        found = resolve(GPUS, (), ids)
        assert (found.offered, found.may_be_offered) == (certain, possible)


def test_ids_that_no_system_knows_offer_no_gpu():
    assert offered([OfferedDevice("rdma/hca", "mlx5_0")]) == set()


@pytest.mark.parametrize("files", [Checkpoint(), SystemFiles(), Checkpoint(missing=True)])
def test_a_dra_driver_offers_all_gpus_of_its_maker_if_it_runs_here(files):
    runs = isinstance(files, Checkpoint) and not files.missing
    assert offered(files={"dra": files}) == ({FIRST, SECOND} if runs else set())
    assert offered(claims=[claimed("a", "gpu-9")]) == {FIRST, SECOND}
    assert offered(claims=[claimed("a", "gpu-0", driver="gpu.example.com")]) == set()


def test_a_gpu_with_a_plugin_and_a_dra_driver_is_held_once():
    found = resolve(GPUS, (), whole(), claims=[claimed("a", "gpu-0")])
    assert [(holding.device, holding.compute_entitled) for holding in found.holdings] == [(FIRST, 1.0)]
    assert found.offered == {FIRST, SECOND}


def test_devices_of_ids_that_left_the_offer_are_withdrawn():
    answer = replace(allocations([], whole(OTHER_UUID)), withdrawn=tuple(whole()))
    found = resolve_holdings(GPUS, answer)
    assert (found.offered, found.withdrawn) == ({SECOND}, {FIRST})
    held_too = replace(allocations(held("a", UUID), whole(OTHER_UUID)), withdrawn=tuple(whole()))
    assert resolve_holdings(GPUS, held_too).withdrawn == {FIRST}


def test_an_unhealthy_gpu_without_a_holder_keeps_its_slices_and_its_sharing():
    """The plugin makes them as before: they are unhealthy, and nothing is unknown of them."""
    for gone, slices in ((whole(), 1), (replicas(4), 4)):
        others = [each._replace(device_id=each.device_id.replace(UUID, OTHER_UUID)) for each in gone]
        before = resolve_holdings(GPUS, allocations([], [*gone, *others]), NodeFacts())
        answer = replace(allocations([], others), withdrawn=tuple(gone))
        found = resolve_holdings(GPUS, answer, NodeFacts())
        was, now = before.devices[FIRST], found.devices[FIRST]

        assert now.sharing == was.sharing
        assert [(each.offered, each.unhealthy, each.lost) for each in now.slices] == [(slices,) * 3]
