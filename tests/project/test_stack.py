"""``make stack`` runs everything together, says where, and leaves nothing behind."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import yaml

from alerts.thresholds import load_thresholds
from alerts.write import ALERTS, RECORDING, rule_files
from tests.end_to_end.alerting import NAMES
from tests.end_to_end.programs import PATIENCE, Prometheus, free_port, get, program, until

ROOT = Path(__file__).parents[2]
STACK = (sys.executable, str(ROOT / "scripts/stack"))
SCENARIOS = ("lost-gpu", "no-gpu")
# Grafana is in no distribution: this one notes how it was started, and answers that it is well.
GRAFANA = f"""#!{sys.executable}
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
class Healthy(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
Path(__file__).with_name("started.json").write_text(json.dumps([sys.argv[1:], dict(os.environ)]))
HTTPServer(("127.0.0.1", int(os.environ["GF_SERVER_HTTP_PORT"])), Healthy).serve_forever()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was seen of a stack from its start to its end.

    ``said`` is where things are, and ``answers`` what is there, by their names.
    """

    said: Mapping[str, str]
    answers: Mapping[str, str]
    targets: list[dict[str, Any]]
    rules: list[dict[str, Any]]
    hub: str
    grafana: Mapping[str, str]
    source: Mapping[str, Any]
    provider: Mapping[str, Any]
    code: int
    left: bool


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Start the stack with two nodes, look at all its parts, and end it as Ctrl-C does."""
    program("prometheus")
    folder = tmp_path_factory.mktemp("grafana")
    (folder / "grafana").write_text(GRAFANA)
    (folder / "grafana").chmod(0o755)
    path = {"PATH": f"{folder}:{os.environ['PATH']}"}
    with subprocess.Popen(
        [*STACK, *SCENARIOS], stdout=subprocess.PIPE, text=True, env=os.environ | path, start_new_session=True
    ) as process:
        try:
            found = _look(process, folder)
            process.send_signal(signal.SIGINT)
            code = process.wait(PATIENCE)
            return Seen(**found, code=code, left=_left(process.pid))
        finally:
            if _left(process.pid):
                os.killpg(process.pid, signal.SIGKILL)


def _look(process: subprocess.Popen[str], folder: Path) -> dict[str, Any]:
    said = dict(line.strip().rsplit("  ", 1) for line in iter(process.stdout.readline, "Ctrl-C ends it.\n"))
    said = {name.strip(): where for name, where in said.items()}
    server = Prometheus(int(said["Prometheus"].split(":")[-1].partition("/")[0]))
    up = "count(up == 1)"
    until(lambda: list(server.query(up).values()) == [len(SCENARIOS)], "both nodes are scraped")
    _, grafana = json.loads((folder / "started.json").read_text())
    made = Path(grafana["GF_PATHS_PROVISIONING"])
    return {
        "said": said,
        "answers": {name: _answer(where) for name, where in said.items() if where.startswith("http")},
        "targets": server.api("targets")["activeTargets"],
        "rules": [rule for group in server.api("rules")["groups"] for rule in group["rules"]],
        "hub": until(lambda: _page_of(said["Hub"]), "the hub knows the nodes"),
        "grafana": grafana,
        "source": yaml.safe_load((made / "datasources/prometheus.yaml").read_text())["datasources"][0],
        "provider": yaml.safe_load((made / "dashboards/gpuslice.yaml").read_text())["providers"][0],
    }


def _answer(url: str) -> str:
    """Return the body of a page, or the text of the HTTP error."""
    try:
        with urlopen(url, timeout=5) as answer:  # noqa: S310 - a URL of the stack
            return str(answer.read(), "utf-8")
    except HTTPError as error:
        return str(error)


def _page_of(hub: str) -> str | None:
    page = get(hub)[1].decode()
    return page if "l4-node-9" in page else None


def _left(session: int) -> bool:
    """Tell whether a program of that session still runs; one that has just ended may take a moment to go."""
    for _ in range(20):
        try:
            os.killpg(session, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.slow
def test_it_says_where_everything_is(seen: Seen) -> None:
    """Each part has a URL on this machine only, or is said not to be installed."""
    parts = {"Hub", "Prometheus", "Alertmanager", "Grafana", *(f"Node {name}" for name in SCENARIOS)}

    assert seen.said.keys() == parts
    installed = any(map(shutil.which, NAMES))
    assert (seen.said["Alertmanager"] == "not installed") != installed
    assert all(where.startswith(("http://127.0.0.1:", "not installed")) for where in seen.said.values())


@pytest.mark.slow
def test_what_it_announces_answers(seen: Seen) -> None:
    """Each address has something to look at, with any build of Prometheus and Alertmanager."""
    assert {"Hub", "Prometheus", "Grafana"} <= seen.answers.keys()
    wrong = ("HTTP Error", "does not include a web")
    assert not {name: text[:99] for name, text in seen.answers.items() if any(each in text for each in wrong)}


@pytest.mark.slow
def test_every_node_is_scraped(seen: Seen) -> None:
    """All targets are up, with labels honoured as is documented."""
    nodes = {where for name, where in seen.said.items() if name.startswith("Node")}

    assert {target["health"] for target in seen.targets} == {"up"}
    assert {target["scrapeUrl"].removesuffix("metrics") for target in seen.targets} == nodes


@pytest.mark.slow
def test_all_rules_are_loaded_without_error(seen: Seen) -> None:
    """They are those of the repository, with short times."""
    made = rule_files(load_thresholds(ROOT / "scripts/stack.toml"))
    expected = [
        rule.get("alert") or rule["record"]
        for name in (RECORDING, ALERTS)
        for group in yaml.safe_load(made[name])["groups"]
        for rule in group["rules"]
    ]

    assert sorted(rule["name"] for rule in seen.rules) == sorted(expected)
    assert "err" not in {rule["health"] for rule in seen.rules}


@pytest.mark.slow
def test_the_hub_shows_the_nodes(seen: Seen) -> None:
    """It asks the Prometheus of the stack, and says so of the GPUs of each."""
    rows = {line.split()[0]: line.split()[1] for line in seen.hub.splitlines() if line.strip()}

    assert rows["l4-node-9"] == "4"


@pytest.mark.slow
def test_grafana_finds_the_data_source_and_the_dashboards(seen: Seen) -> None:
    """Where Grafana is installed it is provisioned with both, and asks nobody on this machine for a name."""
    assert seen.said["Prometheus"].startswith(f"{seen.source['url']}/")
    assert seen.source["isDefault"] is True
    boards = Path(seen.provider["options"]["path"])
    assert {json.loads(path.read_text())["uid"] for path in boards.glob("*.json")} >= {"gpuslice-fleet"}
    assert seen.grafana["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    assert Path(seen.grafana["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]).exists()


@pytest.mark.slow
def test_ctrl_c_ends_all_of_it(seen: Seen) -> None:
    """The exit code is 0, no program still runs, and what they wrote is gone."""
    assert (seen.code, seen.left) == (0, False)
    assert not Path(seen.grafana["GF_PATHS_DATA"]).parent.parent.exists()


def _refused(*options: str, **environment: str) -> str:
    """Start the stack where it cannot start; give what it says."""
    done = subprocess.run(
        [*STACK, *options],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


@pytest.mark.slow
def test_no_prometheus_is_a_clear_error(tmp_path: Path) -> None:
    """The package is named."""
    assert "apt-get install prometheus" in _refused(PATH=str(tmp_path))


@pytest.mark.slow
def test_a_port_that_is_taken_is_a_clear_error() -> None:
    """The port is named, and the part that wants it; nothing was started."""
    program("prometheus")
    with socket.socket() as taken:
        first = free_port()
        taken.bind(("127.0.0.1", first))
        assert f"no port {first} for hub" in _refused("--port", str(first))


@pytest.mark.slow
def test_a_scenario_that_there_is_not_is_a_clear_error() -> None:
    """What the node says before it ends is told."""
    program("prometheus")
    assert "there is no scenario 'nowhere'" in _refused("nowhere")
