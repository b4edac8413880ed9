"""Servers match their descriptions: schemathesis against a node and a hub."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.core.commands.program import environment, serving
from tests.product.alerts.committed import quick_rules
from tests.together.end_to_end.programs import demo, prometheus, until
from tests.waiting import LIMIT_SECONDS

SCENARIO = "showcase"
# Of each path and check, besides the edges of all its parameters.
EXAMPLES = 30


def fuzz(url: str, folder: Path, seconds: int) -> None:
    """Run all checks against a server for as many seconds; fail with what they find."""
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{url}/api/v1/openapi.json", "--url", url),
        *("--checks", "all", "--no-color", "--warnings", "off"),
        *("--max-examples", f"{EXAMPLES}", "--seed", "1", "--generation-database", "none"),
        *("--max-time", f"{seconds}", "--request-timeout", f"{LIMIT_SECONDS}"),
    ]
    variables = {"SCHEMATHESIS_HOOKS": "tests.page.web.fuzz_hooks", "PYTHONWARNINGS": "default"}
    done = subprocess.run(
        command, cwd=folder, env=environment(**variables), capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.fail(f"{done.stdout}\n{done.stderr}", pytrace=False)


@pytest.mark.slow
def test_a_node_matches_its_description(tmp_path: Path) -> None:
    with demo(SCENARIO) as url:
        fuzz(url, tmp_path, 40)


@pytest.mark.slow
def test_a_hub_matches_its_description(tmp_path: Path) -> None:
    rules = [quick_rules(tmp_path)]
    with (
        demo("t4-timeslicing") as node,
        prometheus(tmp_path, {"node": f"{node}/metrics"}, rules=rules) as server,
    ):
        held = 'container:gpuslice_last_week:value{value="held"}'
        until(lambda: server.query(held), "the node was scraped, and there are records for advice")
        with serving("hub", "--prometheus-url", server.url, "--refresh", "10s") as hub:
            until(lambda: hub.get("-/ready") == "ok\n", "the first look")
            fuzz(hub.url.removesuffix("/"), tmp_path, 20)
            assert hub.stop() == 0
