"""Records, alerts, and groups of them."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Severity: TypeAlias = Literal["critical", "warning", "info"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A recording rule."""

    name: str
    """level:metric:operations"""
    expr: str
    why: str
    """Its meaning, as one sentence."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link to a dashboard."""

    uid: str
    labels: tuple[str, ...] = ()
    """Labels of the alert that become variables of the dashboard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert. ``summary`` and ``description`` are templates of Prometheus."""

    name: str
    """Without the prefix ``GpuSlice``."""
    expr: str
    """Its result must have the labels that the templates name."""
    severity: Severity
    summary: str
    """The problem, in one line."""
    description: str
    """Place, affected pods, and what to do next."""
    dashboard: Link
    hold: str | None = None
    """How long the expression must be true ("5m"); None: the first result counts."""

    @property
    def full_name(self) -> str:
        """Name of the fired alert, and of its runbook."""
        return f"GpuSlice{self.name}"


NODE_BOARD = Link("gpuslice-node", ("cluster", "node"))
GPU_BOARD = Link("gpuslice-hardware", ("cluster", "node", "gpu"))
TENANT_BOARD = Link("gpuslice-tenant", ("cluster", "namespace"))
FLEET_BOARD = Link("gpuslice-fleet", ("cluster",))

Rule: TypeAlias = Record | Alert


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Rules that are evaluated together, one after the other."""

    name: str
    interval: str
    """Such as "1m"."""
    rules: tuple[Rule, ...]
