"""The node that a command works on, real or simulated, and printing, whole or not at all."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter.config.settings import Settings, SettingsError

if TYPE_CHECKING:
    from exporter.demo.node import FakeNode
    from exporter.demo.scenario.catalog import Scenario


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

    async with FakeNode(_load(scenario), seed=seed) as fake:
        # A fake node is in no cluster.
        alone = replace(settings, nvml_library=None, kubernetes_api="off", kubeconfig=None)
        pointed = replace(alone, node_name=fake.name, **asdict(fake.paths))
        yield Node(settings=pointed, nvml_library=fake.nvml, fake=fake)


def _load(scenario: str) -> "Scenario":
    from exporter.demo.scenario.catalog import ScenarioError, load  # noqa: PLC0415 - as above

    try:
        return load(scenario)
    except ScenarioError as error:
        raise SettingsError(f"--scenario: {error}") from None


def print_text(text: str) -> None:
    """Print text at once; raises BrokenPipeError if the reader has gone, SettingsError for other errors."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # The rest of the text would fail again at the end of the program.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SettingsError(f"cannot write to standard output: {error.strerror}") from None


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically; raises OSError.

    If the path exists and is not a regular file, such as a terminal, it is written directly.
    """
    if path.exists() and not path.is_file():
        path.write_text(text)
        return
    target = path.resolve()
    part = target.with_name(f".{target.name[:200]}.{os.getpid()}")
    try:
        part.write_text(text)
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
