"""A node with something wrong, polled and judged by the doctor."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pynvml

from exporter.demo.node import FakeNode
from exporter.demo.scenario import Scenario
from exporter.doctor import Check, Finding, Report, checks, driver, gpus, kubelet, workloads
from exporter.doctor.checks import examine
from exporter.model import CollectorHealth
from exporter.model.poll_result import NVIDIA_MODULE
from exporter.poll.poller import Poller
from exporter.poll.sources import Sources
from tests.poller.bench import budget_of, settings_of

FINDINGS = {
    finding.code: finding
    for module in (driver, gpus, kubelet, workloads, checks)
    for finding in vars(module).values()
    if isinstance(finding, Finding)
}
"""Every finding by its code."""


LONG_SECONDS = 60.0


@dataclass(kw_only=True)
class Sick:
    """A node: its scenario, the settings that differ, what is done to its files, and what it is that says so.

    ``name`` is that of the check. ``module`` loads the kernel's module, ``within`` is each source's deadline.
    """

    name: str
    scenario: Scenario
    settings: dict[str, Any] = field(default_factory=dict)
    spoil: Callable[[FakeNode], None] = lambda _node: None
    module: bool = True
    within: float = 5.0
    also: Callable[[FakeNode, Poller], Awaitable[None]] | None = None


async def examined(sick: Sick, *failing_too: CollectorHealth) -> dict[str, Check]:
    """Poll a node and return the doctor's checks by name; collectors may be said to fail that do not."""
    async with FakeNode(sick.scenario, clock=lambda: 0.0) as node:
        module = node.paths.sys_root / NVIDIA_MODULE
        module.parent.mkdir(parents=True, exist_ok=True)
        module.touch()
        if not sick.module:
            module.unlink()
        settings = replace(settings_of(node), **sick.settings)
        sick.spoil(node)
        library = None if "nvml_library" in sick.settings else node.nvml
        poller = Poller(settings, Sources(settings, library, budget=budget_of(settings, sick.within)))
        try:
            await poller.first()
            if sick.also is not None:
                await sick.also(node, poller)
            collectors = (*poller.snapshot.collectors, *failing_too)
            snapshot = replace(poller.snapshot, collectors=collectors)
            report = examine(snapshot, poller.evidence, settings)
        finally:
            node.nvml.release()
            await poller.close()
            pynvml.nvmlLib = None
            pynvml._nvmlGetFunctionPointer_cache.clear()
    return {check.name: check for check in report.checks}


async def first_report(scenario: Scenario) -> Report:
    """Poll a node that is taken as it is, once, and judge it."""
    async with FakeNode(scenario, clock=lambda: 0.0) as node:
        settings = settings_of(node)
        # On a busy machine the join of a node with thirty thousand device ids takes longer than an interval.
        poller = Poller(settings, Sources(settings, node.nvml, budget=budget_of(settings, LONG_SECONDS)))
        try:
            await poller.first()
            return examine(poller.snapshot, poller.evidence, settings)
        finally:
            node.nvml.release()
            await poller.close()
