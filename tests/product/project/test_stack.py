"""``make stack`` runs everything together, prints the addresses, and leaves nothing behind."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import yaml

from alerts.thresholds import load_thresholds
from alerts.write import ALERTS, RECORDING, rule_files
from tests.together.end_to_end.alerting import NAMES
from tests.together.end_to_end.programs import Prometheus, free_port, get
from tests.tools import ROOT, tool
from tests.waiting import wait_until

STACK = (sys.executable, str(ROOT / "scripts/stack"))
Answer = TypeVar("Answer")
SCENARIOS = ("lost-gpu", "no-gpu")
# Grafana is in no distribution: this one records how it was started, and answers with 200.
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
    """The observations of a stack from its start to its end."""

    addresses: Mapping[str, str]  # by the names that it prints
    answers: Mapping[str, str]  # of these addresses
    targets: list[dict[str, Any]]
    rules: list[dict[str, Any]]
    hub: str
    grafana: Mapping[str, str]
    source: Mapping[str, Any]
    provider: Mapping[str, Any]
    code: int


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Start the stack with two nodes, look at all its parts, and end it as Ctrl-C does."""
    tool("prometheus")
    folder = tmp_path_factory.mktemp("grafana")
    (folder / "grafana").write_text(GRAFANA)
    (folder / "grafana").chmod(0o755)
    path = {"PATH": f"{folder}:{os.environ['PATH']}"}
    with subprocess.Popen(
        [*STACK, *SCENARIOS], stdout=subprocess.PIPE, text=True, env=os.environ | path, start_new_session=True
    ) as process:
        try:
            observations = _look(process, folder)
            process.send_signal(signal.SIGINT)
            code = process.wait()
            # A program that has just ended may still be in the session for a moment.
            wait_until(lambda: not _runs(process.pid), "all programs have ended")
            return Seen(**observations, code=code)
        finally:
            if _runs(process.pid):
                os.killpg(process.pid, signal.SIGKILL)


def _look(process: subprocess.Popen[str], folder: Path) -> dict[str, Any]:
    lines = [line.strip().rsplit("  ", 1) for line in iter(process.stdout.readline, "Ctrl-C ends it.\n")]
    addresses = {name.strip(): address for name, address in lines}
    server = Prometheus(int(addresses["Prometheus"].split(":")[-1].partition("/")[0]))

    def both_are_scraped() -> bool:
        return list(server.query("count(up == 1)").values()) == [len(SCENARIOS)]

    _once_answered(both_are_scraped)
    _, grafana = json.loads((folder / "started.json").read_text())
    made = Path(grafana["GF_PATHS_PROVISIONING"])
    return {
        "addresses": addresses,
        "answers": {name: _answer(url) for name, url in addresses.items() if url.startswith("http")},
        "targets": server.api("targets")["activeTargets"],
        "rules": [rule for group in server.api("rules")["groups"] for rule in group["rules"]],
        "hub": _once_answered(lambda: _page_with_nodes(addresses["Hub"])),
        "grafana": grafana,
        "source": yaml.safe_load((made / "datasources/prometheus.yaml").read_text())["datasources"][0],
        "provider": yaml.safe_load((made / "dashboards/gpuslice.yaml").read_text())["providers"][0],
    }


def _answer(url: str) -> str:
    """Return the body of a page, or the text of the HTTP error."""
    try:
        with urlopen(url) as answer:  # noqa: S310 - a URL of the stack
            return str(answer.read(), "utf-8")
    except HTTPError as error:
        return str(error)


def _page_with_nodes(hub: str) -> str | None:
    page = get(hub)[1].decode()
    return page if "l4-node-9" in page else None


def _once_answered(question: Callable[[], Answer | None]) -> Answer:
    """Wait for a true answer of a server, which may not be up yet."""

    def ask() -> Answer | None:
        try:
            return question()
        except (OSError, HTTPException):
            return None

    return wait_until(ask, question.__name__)


def _runs(session: int) -> bool:
    """Return whether a program of the session runs."""
    try:
        os.killpg(session, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_it_prints_the_address_of_each_part(seen: Seen) -> None:
    """On this machine only, or that it is not installed."""
    parts = {"Hub", "Prometheus", "Alertmanager", "Grafana", *(f"Node {name}" for name in SCENARIOS)}

    assert seen.addresses.keys() == parts
    installed = any(map(shutil.which, NAMES))
    assert (seen.addresses["Alertmanager"] == "not installed") != installed
    assert all(url.startswith(("http://127.0.0.1:", "not installed")) for url in seen.addresses.values())


@pytest.mark.slow
def test_each_address_answers(seen: Seen) -> None:
    """With a page, whatever the build of Prometheus and Alertmanager."""
    assert {"Hub", "Prometheus", "Grafana"} <= seen.answers.keys()
    wrong = ("HTTP Error", "does not include a web")
    assert not {name: text[:99] for name, text in seen.answers.items() if any(each in text for each in wrong)}


@pytest.mark.slow
def test_every_node_is_scraped(seen: Seen) -> None:
    """All targets are up."""
    nodes = {url for name, url in seen.addresses.items() if name.startswith("Node")}

    assert {target["health"] for target in seen.targets} == {"up"}
    assert {target["scrapeUrl"].removesuffix("metrics") for target in seen.targets} == nodes


@pytest.mark.slow
def test_all_rules_are_loaded_without_error(seen: Seen) -> None:
    """They are those of the repository, with short times."""
    files = rule_files(load_thresholds(ROOT / "scripts/stack.toml"))
    expected = [
        rule.get("alert") or rule["record"]
        for name in (RECORDING, ALERTS)
        for group in yaml.safe_load(files[name])["groups"]
        for rule in group["rules"]
    ]

    assert sorted(rule["name"] for rule in seen.rules) == sorted(expected)
    assert "err" not in {rule["health"] for rule in seen.rules}


@pytest.mark.slow
def test_the_hub_shows_the_nodes(seen: Seen) -> None:
    """With their GPUs, from the Prometheus of the stack."""
    rows = {line.split()[0]: line.split()[1] for line in seen.hub.splitlines() if line.strip()}

    assert rows["l4-node-9"] == "4"


@pytest.mark.slow
def test_grafana_finds_the_data_source_and_the_dashboards(seen: Seen) -> None:
    """And it needs no login."""
    assert seen.addresses["Prometheus"].startswith(f"{seen.source['url']}/")
    assert seen.source["isDefault"] is True
    boards = Path(seen.provider["options"]["path"])
    assert {json.loads(path.read_text())["uid"] for path in boards.glob("*.json")} >= {"gpuslice-fleet"}
    assert seen.grafana["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    assert Path(seen.grafana["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]).exists()


@pytest.mark.slow
def test_ctrl_c_ends_all_of_it(seen: Seen) -> None:
    """Every program and its files; the exit code is 0."""
    assert seen.code == 0
    assert not Path(seen.grafana["GF_PATHS_DATA"]).parent.parent.exists()


def _refused(*options: str, **environment: str) -> str:
    """Return the message of a stack that cannot start."""
    done = subprocess.run(
        [*STACK, *options],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


def test_no_prometheus_is_a_clear_error(tmp_path: Path) -> None:
    """The package is named."""
    assert "apt-get install prometheus" in _refused(PATH=str(tmp_path))


def test_a_port_in_use_is_a_clear_error() -> None:
    """With the port and the part that needs it."""
    tool("prometheus")
    with socket.socket() as taken:
        first = free_port()
        taken.bind(("127.0.0.1", first))
        assert f"no port {first} for hub" in _refused("--port", str(first))


def test_an_unknown_scenario_is_a_clear_error() -> None:
    """The message is the node's."""
    tool("prometheus")
    assert "there is no scenario 'nowhere'" in _refused("nowhere")
