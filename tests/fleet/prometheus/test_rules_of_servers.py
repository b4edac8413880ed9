"""``doctor --prometheus-url`` at a real Prometheus, a VictoriaMetrics and a vmalert, before and after."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.processes import started
from benchmarks.prometheus import create_blocks, free_port, prometheus
from exporter.metrics.dcgm.dialects import DEFAULTS
from tests.core.commands.program import run
from tests.product.compat.places import Stored, victoria_metrics
from tests.tools import tool

pytestmark = [pytest.mark.slow, pytest.mark.tools]

RULES = {
    "groups": [
        {
            "name": "gpus",
            "rules": [
                {"record": "gpu:util:avg", "expr": "avg by (Hostname) (DCGM_FI_DEV_GPU_UTIL)"},
                {"alert": "Busy", "expr": "gpu:util:avg > 90"},
                {"alert": "Ready", "expr": "DCGM_FI_DEV_GPU_TEMP > 1 or DCGM_FI_DEV_GPU_TEMP_CELSIUS > 1"},
            ],
        }
    ]
}
OLD = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "gpu": "0", "Hostname": "n1"}
NEW = {"__name__": "DCGM_FI_DEV_GPU_UTIL_RATIO", "gpu": "0", "hostname": "n1"}


def _silent(url: str) -> tuple[int, dict[str, str]]:
    done = run("doctor", "--json", "--prometheus-url", url)
    report: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, {each["name"]: each["state"] for each in report["silent"]}


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """Write the rules; YAML has all of JSON."""
    path = tmp_path / "rules.yaml"
    path.write_text(json.dumps(RULES))
    return path


@pytest.mark.parametrize(
    ("labels", "code", "state"), [(OLD, 1, "will be silent"), (NEW, 3, "silent")], ids=["before", DEFAULTS]
)
def test_at_a_prometheus(tmp_path: Path, rules: Path, labels: dict[str, str], code: int, state: str) -> None:
    tool("prometheus")
    names = ",".join(f'{key}="{value}"' for key, value in labels.items() if key != "__name__")
    now = time.time()
    samples = (f"{labels['__name__']}{{{names}}} 1 {now + 60 * at:.0f}" for at in range(-10, 10))
    create_blocks(samples, tmp_path)
    config = {"scrape_configs": [], "rule_files": [str(rules)]}
    with prometheus(tmp_path, config, free_port()) as server:
        found = _silent(f"http://127.0.0.1:{server.process.port}")

    assert found == (code, {"gpu:util:avg": state, "Busy": state})


def test_at_a_vmalert_and_its_database(tmp_path: Path, rules: Path) -> None:
    """Vmalert has the rules only, and the database none of them."""
    database, vmalert = tool("victoria-metrics"), tool("vmalert")
    series = [Stored(OLD, [(time.time() - 5, "1")])]
    port = free_port()
    with victoria_metrics(tmp_path / "db", database, series) as server:
        alone = run("doctor", "--json", "--prometheus-url", server.url)
        words = [vmalert, f"-rule={rules}", f"-datasource.url={server.url}", "-notifier.blackhole"]
        words += [f"-httpListenAddr=127.0.0.1:{port}", f"-remoteWrite.url={server.url}"]
        with (tmp_path / "log").open("w") as output, started(words, port=port, output=output) as process:
            process.wait_for("", "health")
            found = _silent(f"http://127.0.0.1:{port}")

    codes = {check["code"] for check in json.loads(alone.stdout)["checks"]}
    assert "no-rules" in codes
    assert json.loads(alone.stdout)["series"] == {"DCGM_FI_DEV_GPU_UTIL": 1}
    assert found == (1, {"gpu:util:avg": "will be silent", "Busy": "will be silent"})
