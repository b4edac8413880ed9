"""The alert that the guide adds fires, and the tests of alerts pass with it."""

import re
from pathlib import Path
from textwrap import indent

import pytest

from tests.product.project.guide import append, blocks, changed, copied, edit, run, section
from tests.tools import ROOT

TITLE = "An alert, worked out"
# Everything that compares alerts with what is written or generated for them.
GUARDS = (
    "tests/product/alerts",
    "tests/core/exposition/test_selection.py",
    "tests/product/project/test_files.py",
    "tests/product/deploy/test_chart.py",
)


def _insert(path: Path, pattern: str, text: str) -> None:
    """Insert a text after the only match of a pattern."""
    (before,) = re.findall(pattern, path.read_text(), re.DOTALL | re.MULTILINE)
    edit(path, before, f"{before}{text}")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the tree with the alert, before anything is generated."""
    tree = copied(tmp_path_factory.mktemp("alert"))
    keys, fields, alert, call, runbook, unit, edges = blocks(TITLE)
    _insert(tree / "alerts/thresholds.toml", r"^\[hardware\]\n.*?(?=\n\[)", keys)
    _insert(
        tree / "alerts/thresholds.py",
        r"^class HardwareThresholds:.*?\n(?=\n\n|\Z)",
        indent(fields, " " * 4),
    )
    module = tree / "alerts/groups/hardware.py"
    imports, function = alert.split("\n\n\n")
    _insert(module, r'\A""".*?"""\n\n', f"{imports}\n")
    _insert(module, r"^def state_alerts\(.*?(?=^    \)$)", indent(f"{call.rstrip()},\n", " " * 8))
    append(module, function)
    places = re.findall(r"^The (?:runbook|unit file), `(\S+)`", section(TITLE), re.MULTILINE)
    for place, text in zip(places, (runbook, unit), strict=True):
        (tree / place).write_text(text)
    rows = "".join(f"    {edge},\n" for edge in edges.splitlines())
    _insert(tree / "tests/product/alerts/edges.py", r"^EDGES = \(.*?(?=^\)$)", rows)
    return tree


@pytest.fixture(scope="module")
def by_hand(tree: Path) -> set[str]:
    """Return the files that were changed by hand."""
    return changed(tree)


@pytest.fixture(scope="module")
def generated(tree: Path, by_hand: set[str]) -> set[str]:
    """Run the commands that the guide names, and return the files that they changed."""
    (targets,) = re.findall(r"^`make ([a-z ]+)` then", section(TITLE), re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text()
    for target in targets.split():
        (words,) = re.findall(rf"^{target}:.*\n\t\$\(BIN\)/python (.+)$", makefile, re.MULTILINE)
        run(tree, *words.split())
    return changed(tree) - by_hand


@pytest.mark.slow
def test_all_that_changes_is_in_the_guide_or_generated(by_hand: set[str], generated: set[str]) -> None:
    assert {Path(path).name for path in by_hand} == {
        *("thresholds.toml", "thresholds.py", "hardware.py", "edges.py"),
        *("GpuSliceGpuHot.md", "GpuSliceGpuHot.yaml"),
    }
    assert {Path(path).parts[0] for path in generated} == {"alerts", "docs", "deploy"}


@pytest.mark.slow
@pytest.mark.usefixtures("generated")
def test_the_tests_of_alerts_pass_with_the_alert(tree: Path) -> None:
    """Also its unit file, which promtool runs."""
    run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow and not tools", *GUARDS)

    assert "GpuSliceGpuHot" in (tree / "alerts/rules/gpuslice-alerts.yaml").read_text()
