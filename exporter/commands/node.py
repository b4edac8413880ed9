"""The node that a command works on: this machine, or a fake one from a scenario."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from exporter.settings import Settings, SettingsError

if TYPE_CHECKING:
    from exporter.demo.node import FakeNode
    from exporter.demo.scenario import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The settings to use, and on a fake node its driver library; ``fake`` is None on a real one."""

    settings: Settings
    nvml_library: Any = None
    fake: "FakeNode | None" = None


@asynccontextmanager
async def node(settings: Settings, scenario: str | None, seed: int = 0) -> AsyncIterator[Node]:
    """Give this machine, or start a fake node and point every path and socket at it.

    Raises SettingsError for a scenario that does not exist or cannot be read.
    """
    if scenario is None:
        yield Node(settings=settings)
        return
    from exporter.demo.node import FakeNode  # noqa: PLC0415 - no part of the daemon

    async with FakeNode(_loaded(scenario), seed=seed) as fake:
        # No cluster knows of this node.
        alone = replace(settings, nvml_library=None, kubernetes_api="off", kubeconfig=None)
        pointed = replace(alone, node_name=fake.name, **asdict(fake.paths))
        yield Node(settings=pointed, nvml_library=fake.nvml, fake=fake)


def _loaded(scenario: str) -> "Scenario":
    from exporter.demo.catalog import load  # noqa: PLC0415 - no part of the daemon
    from exporter.demo.scenario import ScenarioError  # noqa: PLC0415

    try:
        return load(scenario)
    except ScenarioError as error:
        raise SettingsError(f"--scenario: {error}") from None
