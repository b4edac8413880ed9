"""Hiding a source of any node may turn its time into unknown or unmeasured time, never into another class.

Idle time of a GPU is ``idle_free`` unless a known holder has it, so hiding a holder moves it there. A DRA
driver without claims is known by its checkpoint alone, so hiding that may make a free device ``not_offered``.
"""

from collections.abc import Iterator, Mapping

from hypothesis import given, settings

from exporter.attribution import HoldingsIndex
from exporter.attribution.balance import allocation, use
from exporter.attribution.balance_facts import facts_of, rows_of_gpus, shares_of
from exporter.model.balances import AllocationClass
from tests.core.attribution.hiding import UUIDS, Node, hidden, joined, nodes, write

# Meters of the device stand in for its processes where it has one holder, and measure something else.
STAND_INS = {"device", "instance"}
UNHELD: tuple[AllocationClass, ...] = ("free", "not_offered")
ROUNDING = 1e-9
Parts = Mapping[tuple[str, str], float]


def balances(node: Node, root) -> Parts:
    """Return the share of each class in the time of each GPU; without the use of GPUs with stand-ins."""
    holdings, result = joined(node, root)
    held = HoldingsIndex(holdings)
    parts: dict[tuple[str, str], float] = {}
    for rows in rows_of_gpus(result):
        uuid, shares = rows.gpu.identity.uuid, shares_of(rows, held)
        facts = facts_of(rows, holdings, shares, confirmed=True, fresh=UUIDS)
        allocated = allocation(facts)
        parts |= {(uuid, name): part for name, part in allocated.items() if name not in UNHELD}
        parts[uuid, "free or not offered"] = sum(allocated[name] for name in UNHELD)
        if STAND_INS.isdisjoint(row.compute_source for row in rows.containers):
            used = use(facts.use, allocated["held"])
            idle = {"idle": used["idle_held"] + used["idle_free"]}
            parts |= {(uuid, name): used[name] for name in ("holders", "others")}
            parts |= {(uuid, name): part for name, part in idle.items()}
    return parts


def made_up(before: Parts, after: Parts) -> Iterator[tuple[str, str, float, float]]:
    """Yield the classes other than unknown that have more time than before something was hidden."""
    for (uuid, name), part in after.items():
        most = before.get((uuid, name), 1.0)
        if name != "unknown" and part > most + ROUNDING:
            yield uuid, name, most, part


@settings(max_examples=30)
@given(node=nodes())
def test_hiding_a_source_gives_no_class_more_time_but_the_unknown_ones(tmp_path_factory, node: Node):
    root = tmp_path_factory.getbasetemp() / "balances"
    write(node, root)
    before = balances(node, root)
    for what, less in hidden(node):
        assert list(made_up(before, balances(less, root))) == [], what


def test_more_time_of_another_class_is_found():
    assert list(made_up({("a", "free"): 0.5}, {("a", "free"): 0.6})) == [("a", "free", 0.5, 0.6)]
    assert list(made_up({("a", "free"): 0.5}, {("a", "free"): 0.4, ("a", "unknown"): 0.6})) == []
