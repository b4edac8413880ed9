"""The nouns of rules: a record, an alert, and a group of them."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Severity: TypeAlias = Literal["critical", "warning", "info"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A recording rule. ``name`` is level:metric:operations; ``why`` is what it is for, as one sentence."""

    name: str
    expr: str
    why: str


@dataclass(frozen=True, slots=True)
class Link:
    """A dashboard to look at; ``labels`` are those of the alert that choose what it shows."""

    uid: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert.

    ``name`` is its name without the project's. ``expr`` leaves the labels that ``summary`` and
    ``description`` name, which are templates of Prometheus: what is wrong in one line, and where, who is
    concerned and what to do next. ``hold`` is how long the expression must be true ("5m"), None where its
    first result counts.
    """

    name: str
    expr: str
    severity: Severity
    summary: str
    description: str
    dashboard: Link
    hold: str | None = None

    @property
    def full_name(self) -> str:
        """The name under which it fires, and of its runbook."""
        return f"GpuSlice{self.name}"


NODE_BOARD = Link("gpuslice-node", ("cluster", "node"))
GPU_BOARD = Link("gpuslice-hardware", ("cluster", "node", "uuid"))
TENANT_BOARD = Link("gpuslice-tenant", ("cluster", "namespace"))
FLEET_BOARD = Link("gpuslice-fleet", ("cluster",))

Rule: TypeAlias = Record | Alert


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Rules that are evaluated together, one after the other, every ``interval`` ("1m")."""

    name: str
    interval: str
    rules: tuple[Rule, ...]
