"""Nodes with a fault of memory limits, by the finding that they have."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from exporter.demo.node import FakeNode
from exporter.demo.scenario import CgroupLimit, Scenario, catalog
from exporter.demo.tree import own_path
from exporter.poll.poller import Poller
from tests.core.commands.doctor_bench import Sick

GIB = 1 << 30
SLICE = "/kubepods.slice/kubepods-burstable.slice"


def without(scenario: str, *limits: CgroupLimit) -> Scenario:
    """Return a node of the catalog with these limits other than those of containers only."""
    return replace(catalog.load(scenario), cgroup_limits=limits)


def well() -> Scenario:
    """Return a node whose limits have no fault."""
    return without("memory-limits")


def _limit(path: str, soft: int = 0, hard: int = 0) -> CgroupLimit:
    return CgroupLimit(path=path, device=well().gpus[0].uuid, soft=soft, hard=hard)


def _own(node: FakeNode) -> None:
    """Let the exporter run in the cgroup of its own pod, as its cgroup file shows it."""
    folder = node.paths.proc_root / "self"
    folder.mkdir()
    (folder / "cgroup").write_text(f"0::{own_path(node.scenario.cgroup)}\n")


def _short(node: FakeNode) -> None:
    """Write a reservation by hand, as the driver would not."""
    [path] = node.paths.cgroup_root.glob(f"{SLICE[1:]}/dmem.min")
    path.write_text("".join(f"{line.split()[0]} 1\n" for line in path.read_text().splitlines()))


def _spoiled(node: FakeNode) -> None:
    path = node.paths.cgroup_root / SLICE[1:] / "dmem.current"
    path.unlink()
    path.mkdir()


async def _again(_node: FakeNode, poller: Poller) -> None:
    """Poll again when the driver can be asked about the cgroups that were found."""
    await poller.poll()


def limit_nodes() -> dict[str, Callable[[], Sick]]:
    """Return the nodes by the code of their finding."""
    misc: dict[str, Any] = {"scenario": catalog.load("memory-limits-misc"), "also": _again}
    return {
        "cgroups-not-visible": lambda: Sick(
            name="memory limits",
            scenario=replace(well(), node=replace(well().node, memory_limits="")),
        ),
        "cgroups-unreadable": lambda: Sick(name="memory limits", scenario=well(), spoil=_spoiled),
        "exporter-limited": lambda: Sick(
            name="exporter's own limit",
            scenario=without("memory-limits", _limit(own_path("systemd"), hard=GIB)),
            spoil=_own,
        ),
        "limit-above": lambda: Sick(name="limits on containers", scenario=catalog.load("memory-limits")),
        "reservation-left": lambda: Sick(
            name="reserved for nothing", scenario=without("memory-limits", _limit(SLICE, soft=GIB))
        ),
        "reservation-short": lambda: Sick(name="reserved too little", scenario=well(), spoil=_short),
        "meters-disagree": lambda: Sick(name="meters of memory", **misc),
        "outside-mps": lambda: Sick(name="clients of MPS", **misc),
    }
