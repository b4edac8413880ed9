"""The unit tests of all alerts and records in other rule engines."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.product.alerts.committed import Unit, committed_rules, committed_units, write_units
from tests.product.compat.units import doubled, for_vmalert, nearly
from tests.tools import tool

pytestmark = [pytest.mark.slow, pytest.mark.tools, pytest.mark.timeout(1800)]

RULES, UNITS = committed_rules(), committed_units()
NEARLY = {name: nearly(unit) for name, unit in UNITS.items()}


def passed(folder: Path, *command: str) -> None:
    """Assert that all units pass; the failure shows only those that do not."""
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, re.sub(r"Unit Testing:.*\n+ *SUCCESS\s*", "", ran.stdout) + ran.stderr


@pytest.mark.parametrize(("name", "units"), [("promtool", UNITS), ("promtool-3", NEARLY)])
def test_what_replicas_report_counts_once(name: str, units: dict[str, Unit], tmp_path: Path) -> None:
    """With every series of two replicas of Prometheus, alerts and records are the same, in value and text."""
    passed(tmp_path, tool(name), "test", "rules", *write_units(tmp_path, RULES, units, doubled))


def test_prometheus_3_has_the_same_alerts_and_records(tmp_path: Path) -> None:
    """The unit tests are those that Prometheus 2 passes, but for increases over less than their range."""
    passed(tmp_path, tool("promtool-3"), "test", "rules", *write_units(tmp_path, RULES, NEARLY))


def test_vmalert_has_the_same_alerts_and_records(tmp_path: Path) -> None:
    """Evaluated by vmalert on VictoriaMetrics, but for increases over less than their range."""
    files = [f"--files={file}" for file in write_units(tmp_path, RULES, NEARLY, for_vmalert)]
    passed(tmp_path, tool("vmalert-tool"), "unittest", "--disableAlertgroupLabel", *files)
