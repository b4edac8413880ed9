"""Whatever the kubelet says, it is sorted out, the same way in any order."""

import re
from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from exporter.model import Allocation, Allocations, ContainerRef, OfferedDevice
from exporter.sharing import resolve_holdings
from exporter.sharing.base.view import NodeFacts
from tests.core.attribution.build import MIG, UUID, gpu, mig, mig_gpu, process
from tests.core.sharing.build import OTHER_UUID, numbered

NODE = [
    gpu(),
    numbered(1, 3, OTHER_UUID, compute_mode="exclusive_process"),
    mig_gpu([mig(), mig(uuid="MIG-2", gi=2, ci=1, memory_shared=True)], uuid="GPU-cut"),
    gpu([process(1, kind="mps")], uuid="GPU-nothing", memory=None),
]
BASES = [
    UUID,
    OTHER_UUID,
    MIG,
    "MIG-2",
    "MIG-GPU-cut/2/1",
    "GPU-cut",
    "GPU-gone",
    "nvidia3",
    "nvidia0",
    "all",
]
TAILS = ["", "::0", "::1", "::2", "::", "/vgpu0", "/gi1", "-3", "::1::2"]
IDS = st.one_of(
    st.builds("{}{}".format, st.sampled_from(BASES), st.sampled_from(TAILS)), st.text(max_size=20)
)
RESOURCES = st.one_of(
    st.sampled_from(["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "x.io/gpu"]),
    st.text(max_size=10),
)
REFS = st.builds(ContainerRef, st.just("ml"), st.sampled_from("abc"), st.sampled_from("xy"))
ALLOCATED = st.lists(st.builds(Allocation, REFS, RESOURCES, IDS), max_size=20)
OFFERED = st.one_of(st.none(), st.lists(st.builds(OfferedDevice, RESOURCES, IDS), max_size=20))


def answer(allocated, offered):
    """Return the holdings of an answer of the kubelet as it came, in its order."""
    found = Allocations(
        allocated=tuple(allocated),
        offered=None if offered is None else tuple(offered),
        api_version="v1",
        read_at=0.0,
    )
    return resolve_holdings(NODE, found, NodeFacts(patterns=(re.compile("y.*"),)))


@given(ALLOCATED, OFFERED)
def test_nothing_is_lost_and_nothing_counted_twice(allocated, offered):
    holdings = answer(allocated, offered)
    distinct = defaultdict(set)
    for allocation in allocated:
        distinct[allocation.holder].add((allocation.resource, allocation.device_id))
    for holder, ids in distinct.items():
        of_holder = [holding for holding in holdings.holdings if holding.holder == holder]
        assert sum(holding.slices for holding in of_holder) <= len(ids)
    for holding in holdings.holdings:
        counts = {count.resource: count for count in holdings.devices[holding.device].slices}
        counted = counts[holding.resource].allocated
        assert holding.slices >= 1
        # None if an id that cannot be read may mean this device.
        assert counted is None or holding.slices <= counted
        assert holding.compute_entitled is None or 0 < holding.compute_entitled <= 1
        assert holding.memory_entitled is None or holding.memory_entitled >= 0
    assert set(holdings.unresolved) <= {allocation.resource for allocation in allocated}
    assert set(holdings.unresolved_holders) <= set(distinct)


@given(ALLOCATED, OFFERED, st.randoms())
def test_order_does_not_matter(allocated, offered, random):
    """The kubelet lists in the order of a hash map."""
    expected = answer(allocated, offered)
    random.shuffle(allocated)
    if offered is not None:
        random.shuffle(offered)
    assert answer(allocated, offered) == expected
    assert list(expected.holdings) == sorted(
        expected.holdings, key=lambda held: (held.device, held.holder, held.resource)
    )
    assert list(expected.unresolved) == sorted(expected.unresolved)
