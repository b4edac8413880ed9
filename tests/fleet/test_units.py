"""Sums of what sharing systems give out, each resource on its own."""

from collections.abc import Sequence

import pytest

from exporter.fleet import Node, NodeKey, Target
from exporter.fleet.amounts import (
    FAILED_AMOUNT,
    UNKNOWN_AMOUNT,
    UNKNOWN_SLICES,
    Amount,
    Units,
    named,
    shown_units,
    total_units,
    words,
)
from exporter.fleet.nodes import QUESTIONS, read_nodes
from exporter.fleet.queries import Answers
from exporter.formats.wording import UNKNOWN
from exporter.prometheus import Sample

CORE = Units("tencent.com/vcuda-core", Amount(100, 1, 2), Amount(300, 3))
OTHER = Units("example.com/vcuda-core", Amount(1, 1), Amount(4, 1))
SLICES = Units("", Amount(3, 2), Amount(8, 2))


def test_each_resource_is_added_up_on_its_own() -> None:
    """A node of which nothing is known makes each sum a least one."""
    both = total_units([(CORE,), (CORE, OTHER)])
    silent = total_units([(CORE,), None])

    assert both == (OTHER, Units(CORE.resource, Amount(200, 2, 4), Amount(600, 6)))
    assert silent == (Units(CORE.resource, Amount(100, 1, 3), Amount(300, 3, 1)),)
    assert total_units([None]) is None
    assert total_units([()]) == ()


def test_units_that_could_not_be_asked_make_no_zero_of_slices() -> None:
    """Slices that are there are told, and others are not said to be none."""
    assert shown_units(SLICES, None) == (SLICES,)
    assert words(shown_units(Units("", Amount(), Amount()), None)) == f"{UNKNOWN} of {UNKNOWN}"
    assert words(shown_units(Units("", Amount(), Amount()), ())) == "0 of 0"
    assert words(shown_units(UNKNOWN_SLICES, ())) == f"{UNKNOWN} of {UNKNOWN}"


def test_names_are_as_long_as_they_must_be() -> None:
    """Two resources whose last parts are alike are told in full; slices have a name beside others."""
    assert words([SLICES]) == "3 of 8"
    assert words([SLICES, OTHER]) == "3 of 8 slices, 1 of 4 vcuda-core"
    assert [name for name, _ in named([CORE, OTHER])] == [CORE.resource, OTHER.resource]


HERE = {"node": "n1"}
SLICE, UNIT = "nvidia.com/gpu", "example.com/core"


def _node(
    sharing: Sequence[str],
    held: dict[str, float],
    offered: dict[str, float],
    *,
    refused: str = "",
    known: int = 2,
) -> Node:
    """Give a node with two GPUs, of ``known`` of which it is known who holds them and what is offered."""
    rows = {
        "GPUs": [({"model": "T4"}, 2.0)],
        "number of GPUs": [({}, 2.0)],
        "sharing of GPUs": [({"sharing": mode}, 1.0) for mode in sharing],
        "known values of GPUs": [({"value": value}, known) for value in ("holders", "offered_slices")],
        "slices held": [({"resource": name}, value) for name, value in held.items()],
        "slices offered": [({"resource": name}, value) for name, value in offered.items()],
    }
    samples = {
        name: [Sample(HERE | labels, value) for labels, value in rows.get(name, [])]
        for name in QUESTIONS
        if name != refused
    }
    answers = Answers(samples, {refused: "too much"} if refused else {})
    named = Node(key=NodeKey("", "n1"), target=Target("", "gpus", "n1:1"), age=4.0)
    (node,) = read_nodes(answers, [named])
    return node


def test_slices_of_the_vendors_plugins_are_added_up() -> None:
    """Whatever their resources are called, they are devices."""
    node = _node(
        ["mig", "exclusive"], {SLICE: 1, "nvidia.com/mig-1g.5gb": 3}, {SLICE: 1, "nvidia.com/mig-1g.5gb": 7}
    )

    assert node.slices == Units("", Amount(4.0, 2), Amount(8.0, 2))
    assert node.units == ()


def test_gpus_of_which_nothing_is_told_make_both_sums_least_ones() -> None:
    """Nobody knows whether they offer something; without any other nothing is known."""
    node, alone = _node(["exclusive"], {SLICE: 1}, {SLICE: 1}, known=1), _node(["none"], {}, {}, known=0)

    assert node.slices == Units("", Amount(1.0, 1, 1), Amount(1.0, 1, 1))
    assert alone.slices == Units("", Amount(0.0, 0, 2), Amount(0.0, 0, 2))


def test_units_of_a_sharing_system_stand_by_resource() -> None:
    """So do all of a node with both, since it is not known which GPU a resource is of."""
    node = _node(["gpu-manager", "exclusive"], {UNIT: 30, SLICE: 1}, {SLICE: 1})

    assert node.slices == Units("", Amount(), Amount())
    assert node.units == (
        Units(UNIT, Amount(30.0, 2), UNKNOWN_AMOUNT),
        Units(SLICE, Amount(1.0, 2), Amount(1.0, 2)),
    )


@pytest.mark.parametrize("refused", ["slices held", "slices offered", "sharing of GPUs"])
def test_slices_that_are_refused_are_not_known(refused: str) -> None:
    """Their kind and their number are unknown."""
    node = _node(["exclusive"], {SLICE: 1}, {SLICE: 1}, refused=refused)

    assert (node.slices.held, node.slices.offered) == (FAILED_AMOUNT, FAILED_AMOUNT)
    assert node.units is None


def test_equal_names_in_two_clusters_are_two_nodes() -> None:
    """Each has the values of its own cluster, and the slices of its own kind."""
    rows = {
        "GPUs": [({"model": "T4"}, 1.0), ({"model": "H100"}, 8.0)],
        "number of GPUs": [({}, 1.0), ({}, 8.0)],
        "sharing of GPUs": [({"sharing": "gpu-manager"}, 1.0), ({"sharing": "exclusive"}, 8.0)],
        "slices held": [({"resource": UNIT}, 30.0), ({"resource": SLICE}, 5.0)],
    }
    samples = {
        name: [
            Sample(HERE | {"cluster": cluster} | labels, value)
            for cluster, (labels, value) in zip(("east", "west"), rows.get(name, []), strict=False)
        ]
        for name in QUESTIONS
    }
    scraped = [
        Node(key=NodeKey(cluster, "n1"), target=Target(cluster, "gpus", "n1:1"), age=4.0)
        for cluster in ("east", "west")
    ]
    east, west = read_nodes(Answers(samples, {}), scraped)

    assert (east.models, west.models) == ((("T4", 1),), (("H100", 8),))
    assert (east.gpus.value, west.gpus.value) == (1, 8)
    assert [units.resource for units in east.units or ()] == [UNIT]
    assert west.slices.held.total == 5
