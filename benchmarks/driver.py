"""The faked driver in the process that is measured, whose time is set by hand."""

import time
from collections.abc import Callable

from exporter.demo.machine import Machine
from exporter.demo.nvml.library import FakeNvml
from exporter.demo.present import present
from exporter.demo.scenario.catalog import Scenario


class Driver:
    """The driver of a node; ``cpu`` counts the seconds of a processor that moving it takes.

    ``wall`` gives the Unix time of the node.
    """

    def __init__(self, scenario: Scenario, wall: Callable[[], float]) -> None:
        self.library = FakeNvml(scenario.node, scenario.missing_functions)
        self.cpu = 0.0
        self._scenario = scenario
        self._machine = Machine(0)
        self._wall = wall
        self.move(0.0)

    def move(self, seconds: float) -> None:
        """Show the node as it is so many seconds after its start."""
        start = time.thread_time()
        now = present(self._scenario, seconds)
        self.library.show(self._machine.step(now, self._wall()), now.nvml_faults, loaded=now.loaded)
        self.cpu += time.thread_time() - start
