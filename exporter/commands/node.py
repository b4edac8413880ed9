"""The node that a command works on: this machine, or a simulated one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from exporter.config import Settings, SettingsError

if TYPE_CHECKING:
    from exporter.demo.node import FakeNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node to poll."""

    settings: Settings
    nvml_library: Any = None
    """Object in place of the driver's library, on a fake node."""
    fake: "FakeNode | None" = None
    """None on a real node."""


@asynccontextmanager
async def node(settings: Settings, scenario: str | None, seed: int = 0) -> AsyncIterator[Node]:
    """Yield this machine, or a fake node with settings whose paths and sockets are its own.

    Raises SettingsError for a scenario that does not exist or cannot be read.
    """
    if scenario is None:
        yield Node(settings=settings)
        return
    from exporter.demo.node import FakeNode  # noqa: PLC0415 - not needed by the daemon
    from exporter.demo.scenario.catalog import load  # noqa: PLC0415 - as above
    from exporter.documents import DocumentError  # noqa: PLC0415 - as above

    try:
        loaded = load(scenario)
    except DocumentError as error:
        raise SettingsError(f"--scenario: {error}") from None
    async with FakeNode(loaded, seed=seed) as fake:
        # A fake node is in no cluster.
        alone = replace(settings, nvml_library=None, kubernetes_api="off", kubeconfig=None)
        pointed = replace(alone, node_name=fake.name, **asdict(fake.paths))
        yield Node(settings=pointed, nvml_library=fake.nvml, fake=fake)
