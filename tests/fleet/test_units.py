"""Sums of slices, and of the units of sharing systems by resource."""

from collections.abc import Sequence

import pytest

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
from exporter.fleet.model import Node
from exporter.fleet.nodes import QUESTIONS, read_nodes
from exporter.fleet.prometheus import Sample
from exporter.fleet.queries import Answers
from exporter.wording import UNKNOWN
from tests.fleet.shown import node

CORE = Units("tencent.com/vcuda-core", Amount(100, 1, 2), Amount(300, 3))
OTHER = Units("example.com/vcuda-core", Amount(1, 1), Amount(4, 1))
SLICES = Units("", Amount(3, 2), Amount(8, 2))


def test_each_resource_is_summed_separately() -> None:
    """A node whose units are unknown makes each sum a least figure."""
    both = total_units([(CORE,), (CORE, OTHER)])
    silent = total_units([(CORE,), None])

    assert both == (OTHER, Units(CORE.resource, Amount(200, 2, 4), Amount(600, 6)))
    assert silent == (Units(CORE.resource, Amount(100, 1, 3), Amount(300, 3, 1)),)
    assert total_units([None]) is None
    assert total_units([()]) == ()


def test_without_slices_unknown_units_are_not_zero() -> None:
    assert shown_units(SLICES, None) == (SLICES,)
    assert words(shown_units(Units("", Amount(), Amount()), None)) == f"{UNKNOWN} of {UNKNOWN}"
    assert words(shown_units(Units("", Amount(), Amount()), ())) == "0 of 0"
    assert words(shown_units(UNKNOWN_SLICES, ())) == f"{UNKNOWN} of {UNKNOWN}"


def test_resource_names_are_short_unless_two_have_the_same_last_part() -> None:
    """Slices are named only if there are units too."""
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
    total: float = 2.0,
) -> Node:
    """Return a node with two GPUs; holders and offered slices are known of ``known`` of them."""
    rows = {
        "GPUs": [({"model": "T4"}, 2.0)],
        "number of GPUs": [({}, total)],
        "sharing of GPUs": [({"sharing": mode}, 2.0 / len(sharing)) for mode in sharing],
        "known values of GPUs": [
            *(({"value": value}, float(known)) for value in ("holders", "offers")),
            *(({"value": "held_slices", "resource": name}, 1.0) for name in held),
            *(({"value": "offered_slices", "resource": name}, 1.0) for name in offered),
            *(({"value": "slices", "resource": name}, 1.0) for name in held | offered),
        ],
        "slices held": [({"resource": name}, value) for name, value in held.items()],
        "slices offered": [({"resource": name}, value) for name, value in offered.items()],
    }
    samples = {
        name: [Sample(HERE | labels, value) for labels, value in rows.get(name, [])]
        for name in QUESTIONS
        if name != refused
    }
    answers = Answers(samples, {refused: "too much"} if refused else {})
    (read,) = read_nodes(answers, [node()])
    return read


def test_slices_of_the_device_plugins_of_vendors_are_summed() -> None:
    read = _node(
        ["mig", "exclusive"], {SLICE: 1, "nvidia.com/mig-1g.5gb": 3}, {SLICE: 1, "nvidia.com/mig-1g.5gb": 7}
    )

    assert read.slices == Units("", Amount(4.0, 2), Amount(8.0, 2))
    assert read.units == ()


def test_gpus_without_known_values_make_both_sums_least_figures() -> None:
    one_known = _node(["exclusive"], {SLICE: 1}, {SLICE: 1}, known=1)
    none_known = _node(["none"], {}, {}, known=0)

    assert one_known.slices == Units("", Amount(1.0, 1, 1), Amount(1.0, 1, 1))
    assert none_known.slices == Units("", Amount(0.0, 0, 2), Amount(0.0, 0, 2))


def test_a_resource_without_a_record_makes_its_sum_a_least_figure() -> None:
    """Its GPUs are counted; without any record the sum is unknown, and not 0."""
    other = "nvidia.com/mig-1g.5gb"
    lacking = _node(["exclusive"], {SLICE: 1}, {SLICE: 1, other: 1})
    none = _node(["exclusive"], {}, {SLICE: 1})

    assert (lacking.slices.held.total, lacking.slices.held.missing) == (1.0, 1)
    assert none.slices.held.value is None


def test_a_node_with_a_sharing_system_has_units_by_resource() -> None:
    """Its slices too, since the GPU of a resource is not known: their sum is unknown, and not 0."""
    read = _node(["gpu-manager", "exclusive"], {UNIT: 30, SLICE: 1}, {SLICE: 1})

    assert read.slices.held.as_dict() == read.slices.offered.as_dict() == {"value": None, "complete": False}
    assert read.units == (
        Units(UNIT, Amount(30.0, 2), UNKNOWN_AMOUNT),
        Units(SLICE, Amount(1.0, 2), Amount(1.0, 2)),
    )


def test_slices_are_unknown_while_the_mode_of_a_gpu_is() -> None:
    """It may be of a sharing system, whose units are no slices."""
    read = _node(["exclusive"], {SLICE: 1}, {SLICE: 1}, total=3.0)

    assert (read.slices.held.value, read.units, read.sharing) == (None, None, None)


def test_what_is_held_is_never_more_than_a_size_printed_next_to_it() -> None:
    """A size of which a part is unknown is none if it is below what is held."""
    (units,) = total_units(
        [(Units(SLICE, Amount(4, 1), UNKNOWN_AMOUNT),), (Units(SLICE, Amount(0, 1), Amount(2, 1)),)]
    )

    assert words([units]) == "4 gpu"
    assert units.as_dict()["offered"] == {"value": None, "complete": False}
    assert words([units._replace(held=Amount(1, 1))]) == "1 of ≥ 2 gpu"
    assert words([units._replace(offered=Amount(2, 1))]) == "4 of 2 gpu"


@pytest.mark.parametrize("refused", ["slices held", "slices offered", "sharing of GPUs"])
def test_refused_slices_are_unknown(refused: str) -> None:
    read = _node(["exclusive"], {SLICE: 1}, {SLICE: 1}, refused=refused)

    assert (read.slices.held, read.slices.offered) == (FAILED_AMOUNT, FAILED_AMOUNT)
    assert read.units is None


def test_nodes_of_the_same_name_have_the_values_of_their_own_cluster() -> None:
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
    east, west = read_nodes(Answers(samples, {}), [node(cluster="east"), node(cluster="west")])

    assert (east.models, west.models) == ((("T4", 1),), (("H100", 8),))
    assert (east.gpus.value, west.gpus.value) == (1, 8)
    assert [units.resource for units in east.units or ()] == [UNIT]
    assert west.slices.held.total == 5
