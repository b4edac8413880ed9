"""A node with a fault, polled and examined by the doctor."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pynvml

from exporter.commands import silent as commands_silent
from exporter.demo.node import FakeNode
from exporter.demo.scenario import Scenario
from exporter.doctor import (
    Check,
    Finding,
    Report,
    checks,
    driver,
    gpus,
    kubelet,
    memory_limits,
    own_series,
    requests,
    silent,
    workloads,
)
from exporter.doctor.checks import examine
from exporter.model import CollectorHealth
from exporter.model.poll_result import NVIDIA_MODULE
from exporter.poll.poller import Poller
from exporter.poll.sources import Sources
from tests.core.poller.bench import budget_of, settings_of
from tests.waiting import LIMIT_SECONDS

FINDINGS = {
    finding.code: finding
    for module in (driver, gpus, kubelet, memory_limits, workloads, checks, requests)
    for finding in vars(module).values()
    if isinstance(finding, Finding)
}
"""Every finding on a node by its code."""
FINDINGS_OF_RULES = {
    finding.code: finding
    for module in (commands_silent, own_series, silent)
    for finding in vars(module).values()
    if isinstance(finding, Finding)
}
"""Every finding on rules and files."""


@dataclass(kw_only=True)
class Sick:
    """A node with a fault."""

    name: str  # of the check that finds the fault
    scenario: Scenario
    settings: dict[str, Any] = field(default_factory=dict)  # that differ from the defaults
    spoil: Callable[[FakeNode], None] = lambda _node: None  # changes its files
    module: bool = True  # whether the kernel module is loaded
    within: float = LIMIT_SECONDS  # the deadline of each source; short if one hangs for good
    also: Callable[[FakeNode, Poller], Awaitable[None]] | None = None  # after the first poll


async def examined(sick: Sick, *failing_too: CollectorHealth) -> dict[str, Check]:
    """Poll a node and return the doctor's checks by name; ``failing_too`` are added to the collectors."""
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
    """Poll a node once, and examine it."""
    async with FakeNode(scenario, clock=lambda: 0.0) as node:
        settings = settings_of(node)
        poller = Poller(settings, Sources(settings, node.nvml, budget=budget_of(settings, LIMIT_SECONDS)))
        try:
            await poller.first()
            return examine(poller.snapshot, poller.evidence, settings)
        finally:
            node.nvml.release()
            await poller.close()
