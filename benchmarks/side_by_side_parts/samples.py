"""The samples of a page, by the names that its program gives them."""

import math
import re
from dataclasses import dataclass

from benchmarks.side_by_side_parts.driver import Layout
from benchmarks.side_by_side_parts.programs import GLANCES, Program

_SAMPLE = re.compile(r"^(\w+)\{(.*)\} (\S+)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
# The stub's power in watts is this, and a tenth for each second of the clock, from 0 again after a thousand.
_BASE_WATTS, _ROUND_SECONDS = 100.0, 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page read: its labelled samples, as (name, labels, value)."""

    program: Program
    layout: Layout
    samples: tuple[tuple[str, dict[str, str], float], ...]

    def device(self, gpu: int) -> str:
        """Return how the page names a GPU."""
        return f"nvidia{gpu}" if self.program.name == GLANCES else self.layout.uuid(gpu)

    def of(self, name: str, labels: dict[str, str] | None = None) -> list[float]:
        """Return the values under a name, with these labels."""
        wanted = (labels or {}).items()
        return [value for own, its, value in self.samples if own == name and wanted <= its.items()]

    def told(self, name: str, gpu: int) -> str:
        """Say what stands under a name for a GPU: absent, NaN or the value."""
        return spelled(self.of(name, {self.program.names.device: self.device(gpu)}) if name else [])

    def of_holders(self) -> list[tuple[str, dict[str, str], float]]:
        """Return the samples of processes or containers."""
        return [sample for sample in self.samples if self.program.names.holder in sample[1]]

    def age(self, gpu: int, now: float) -> float | None:
        """Return how many seconds ago a GPU's power was read; None where it is not told."""
        watts = self.of(self.program.names.power, {self.program.names.device: self.device(gpu)})
        if not watts or math.isnan(watts[0]):
            return None
        return (now - (watts[0] - _BASE_WATTS) * 10) % _ROUND_SECONDS


def read(program: Program, layout: Layout, text: str) -> Page:
    """Read a page of the classic format."""
    found = (
        (name, dict(_LABEL.findall(labels)), float(value)) for name, labels, value in _SAMPLE.findall(text)
    )
    return Page(program=program, layout=layout, samples=tuple(found))


def spelled(values: list[float]) -> str:
    """Spell what a page says: absent, NaN or the values that differ."""
    if not values:
        return "absent"
    return ", ".join(sorted({"NaN" if math.isnan(value) else f"{value:g}" for value in values}))
