"""The node that a command works on, and what a command prints or writes."""

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
    from exporter.demo.scenario.catalog import ScenarioError, load  # noqa: PLC0415 - no part of the daemon

    try:
        return load(scenario)
    except ScenarioError as error:
        raise SettingsError(f"--scenario: {error}") from None


def say(text: str) -> None:
    """Print text as it is, at once; raises SettingsError when it cannot be, BrokenPipeError to nobody."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # What is left of it would fail again at the end of the program.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SettingsError(f"cannot write to standard output: {error.strerror}") from None


def write_whole(path: Path, text: str) -> None:
    """Write a file, which is there whole or as it was before; OSError.

    What is no regular file, such as a terminal, is written to as it is.
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
