"""Hiding a source of any node may turn numbers into absence, never into other numbers."""

from collections.abc import Mapping

from hypothesis import given, settings

from tests.core.attribution.hiding import Node, Place, hidden, nodes, page, write

Numbers = Mapping[Place, float | None]
# Meters of the device, which stand in for its processes where it has one holder (rules 5 and 6): they measure
# something else, and the label of the source says so.
STAND_INS = {"device", "instance"}


def wrong(before: Numbers, after: Numbers) -> dict[Place, tuple[float | None, float]]:
    """Return the numbers of a page that are not on the page before something was hidden."""
    return {
        place: (before.get(place), number)
        for place, number in after.items()
        if number is not None and before.get(place) != number and not _may_be_new(place, number, before)
    }


def _may_be_new(place: Place, number: float, before: Numbers) -> bool:
    if place.source in STAND_INS and place not in before:
        return True
    # Use of a pod whose container is unknown stands for that of its containers.
    known = (value or 0 for other, value in before.items() if other._replace(container="") == place)
    return bool(place.pod) and not place.container and number <= sum(known)


@settings(max_examples=80)
@given(node=nodes())
def test_hiding_a_source_of_a_node_makes_no_other_number(tmp_path_factory, node: Node):
    root = tmp_path_factory.getbasetemp() / "proc"
    write(node, root)
    before = page(node, root)
    for what, less in hidden(node):
        assert wrong(before, page(less, root)) == {}, what


def test_other_numbers_are_found():
    here = Place("GPU-1", "", "a", "x", "memory_used", "process")
    assert wrong({here: 1}, {here: None}) == {}
    assert wrong({here: 1}, {here: 2}) == {here: (1, 2)}
    assert wrong({here: None}, {here: 0}) == {here: (None, 0)}
    assert wrong({}, {here: 0}) == {here: (None, 0)}
    assert wrong({here: 5}, {here._replace(container=""): 6}) == {here._replace(container=""): (None, 6)}
