"""The largest memory use of a container."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from exporter.model import ContainerRow
from tests.core.poller.test_accounting import Node, row

MEMORY = st.one_of(st.none(), st.integers(0, 2**40))


def uses(memory, **changes) -> ContainerRow:
    """Return a container that uses ``memory`` bytes of a GPU, None if unknown."""
    return replace(row(**changes), memory_used=memory)


def test_the_peak_is_the_largest_use_of_all_polls():
    """It rises with the use and does not fall with it; a poll that does not know the use leaves it alone."""
    node = Node().after(0, uses(None))
    assert node.totals().memory_peak is None
    peaks = []
    for memory in (0, 300, 200, None, 400, 0):
        node.after(5, uses(memory))
        peaks.append(node.totals().memory_peak)
    assert peaks == [0, 300, 300, 300, 400, 400]


def test_the_peak_is_one_of_the_container_on_the_device():
    """Another pod of the same name, another device and another container have their own."""
    node = Node().after(0, uses(300, uid="one"), uses(100, pod="b"))
    node.after(5, uses(200, uid="two"), uses(100, pod="b"))
    assert (node.totals("a").memory_peak, node.totals("b").memory_peak) == (200, 100)
    other = Node().after(0, uses(300)).after(5, uses(300), uses(50, uuid="GPU-b"))
    assert {each.device.uuid: each.totals.memory_peak for each in other.poll.containers} == {
        "GPU-a": 300,
        "GPU-b": 50,
    }


@given(st.lists(st.tuples(MEMORY, st.booleans()), min_size=1, max_size=12))
def test_no_use_that_is_shown_is_above_the_peak(polls):
    """Whatever GPU was read or not: who compares the two series finds the use below, or both absent."""
    node, largest = Node(), None
    for memory, fresh in polls:
        node.after(5, uses(memory), fresh=("GPU-a",) if fresh else ())
        largest = max((known for known in (largest, memory) if known is not None), default=None)
        assert node.totals().memory_peak == largest
