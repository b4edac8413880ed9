"""The reference page of series is the table."""

from pathlib import Path

from exporter.commands.metrics import metrics_markdown
from exporter.metrics import FAMILIES, GROUPS
from exporter.metrics.dcgm import DCGM, LEGACY

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def test_the_committed_page_is_generated_from_the_tables() -> None:
    """Update it with ``gpuslice-exporter metrics > docs/metrics.md``."""
    assert metrics_markdown() == PAGE.read_text(encoding="utf-8")


def test_every_family_is_on_the_page_once() -> None:
    """With its help text, and the GPUs and modes that have it."""
    lines = metrics_markdown().splitlines()

    for family in (*FAMILIES, *DCGM["4.8"], *LEGACY):
        (line,) = [line for line in lines if line.startswith(f"| `{family.name}` |")]
        where = f" {GROUPS[family.group].where} |" if family.group else ""
        assert f"| {family.help} |{where}" in line
