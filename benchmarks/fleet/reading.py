"""What reading a whole cluster costs the hub: ``python -m benchmarks.fleet.reading [NODES PODS WAITING]``.

PODS run on each of the nodes, and WAITING others have none. A simulated API server sends pods and nodes of
usual length. The first list, a list after an expired version, and changes are measured apart, each as CPU
time of the hub's process; memory is resident memory of it.
"""

import sys
import time
from typing import NamedTuple

from benchmarks.fleet.api_server import Cluster
from benchmarks.markdown import MIB, table
from benchmarks.processes import Process, module, started

SIZE = (5000, 30, 500)
"""Nodes, pods on each of them, and pods that wait."""
_CHANGES = 5000


class Cost(NamedTuple):
    """CPU seconds and duration of a step, and memory in bytes: after it, and its maximum."""

    step: str
    cpu: float
    wall: float
    resident: int
    peak: int


def measured(nodes: int, pods_per_node: int, waiting: int, changes: int = _CHANGES) -> list[Cost]:
    """Measure all steps; raises RuntimeError if the reader has not all objects."""
    running = nodes * pods_per_node
    changes = min(changes, running)
    sizes = map(str, (nodes, pods_per_node, waiting))
    with started(module("fleet.api_server", *sizes)) as server:
        url = f"http://127.0.0.1:{server.answer()}"
        with started(module("fleet.reader", url)) as reader:
            reader.answer()
            costs = [Cost("before", 0.0, 0.0, *reader.memory()[:2])]
            costs.append(_cost("first list", reader, "start"))
            _check(reader.ask("wait", pods=running), nodes, running, waiting)
            server.ask("expire")
            costs.append(_relisted(server, reader, running))
            server.ask("change", pods=changes)
            costs.append(_cost(f"{changes} changes", reader, "wait", pods=running - 1))
            costs.append(_cost("verdicts on all pods that wait", reader, "judge", alike=True))
            costs.append(_cost("the same, if they all differ", reader, "judge", alike=False))
            return costs


def _relisted(server: Process, reader: Process, running: int) -> Cost:
    """Measure the second list of pods, which the server counts."""
    cpu, began = reader.cpu(), time.monotonic()
    while server.ask("lists") < 2:
        time.sleep(0.1)
    reader.ask("wait", pods=running)
    memory = reader.memory()
    return Cost(
        "list after an expired version",
        reader.cpu() - cpu,
        time.monotonic() - began,
        memory.resident,
        memory.peak,
    )


def _cost(step: str, reader: Process, do: str, **details: int | bool) -> Cost:
    cpu, began = reader.cpu(), time.monotonic()
    answer = reader.ask(do, **details)
    if answer["failures"]:
        raise RuntimeError(f"{step}: {answer['failures']}")
    memory = reader.memory()
    return Cost(step, reader.cpu() - cpu, time.monotonic() - began, memory.resident, memory.peak)


def _check(answer: dict[str, int], *wanted: int) -> None:
    found = tuple(answer[name] for name in ("nodes", "placed", "waiting"))
    if found != wanted:
        raise RuntimeError(f"of nodes, pods that run and pods that wait there are {found}, not {wanted}")


def lengths() -> tuple[int, int]:
    """Return the bytes of a pod and of a node as the server sends them."""
    kinds = Cluster(1, 1, 0).kinds
    pod, node = (len(make(0)) for _, make in kinds.values())
    return pod, node


def text(costs: list[Cost]) -> str:
    """Return the table."""
    rows = [
        (step, f"{cpu:.2f} s", f"{wall:.1f} s", f"{resident / MIB:.0f} MiB", f"{peak / MIB:.0f} MiB")
        for step, cpu, wall, resident, peak in costs
    ]
    return table(("step", "CPU of the hub", "time", "memory", "memory at most"), rows)


def main() -> None:
    """Measure and print the table."""
    nodes, pods_per_node, waiting = map(int, sys.argv[1:]) if len(sys.argv) == 4 else SIZE
    pod, node = lengths()
    print(f"{nodes} nodes of {node} bytes, {pods_per_node} pods of {pod} bytes on each, {waiting} wait\n")  # noqa: T201
    print(text(measured(nodes, pods_per_node, waiting)))  # noqa: T201 - this is its output


if __name__ == "__main__":
    main()
