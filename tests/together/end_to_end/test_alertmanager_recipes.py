"""The recipes for Slack and mail in a real Alertmanager: it loads them, routes our alerts, and sends them."""

import json
import subprocess
from collections.abc import Mapping
from functools import cache
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.together.end_to_end.alerting import Mail, configured_alertmanager, mailed, posted
from tests.together.end_to_end.programs import PATIENCE, until
from tests.tools import ROOT, tool

RECIPES = {name: ROOT / f"deploy/recipes/alertmanager-{name}.yaml" for name in ("slack", "mail")}
ALERTS = ROOT / "alerts/rules/gpuslice-alerts.yaml"
OF_GPU = {"cluster": "east", "node": "n1", "gpu": "3", "uuid": "GPU-3"}
OF_TENANT = OF_GPU | {"namespace": "team-a-lab", "pod": "train-0", "container": "main"}
RECEIVERS = {"critical": "gpus-urgent", "warning": "gpus", "info": "gpus-digest"}
LOST, OVER, XID, IDLE = "GpuSliceGpuLost", "GpuSliceOverLimit", "GpuSliceXidHardware", "GpuSliceHolderIdle"


@cache
def severities() -> Mapping[str, str]:
    """Return our alerts with their severities."""
    groups = yaml.load(ALERTS.read_text(), yaml.CSafeLoader)["groups"]
    return {rule["alert"]: rule["labels"]["severity"] for group in groups for rule in group["rules"]}


def read(name: str) -> dict[str, Any]:
    """Return a recipe."""
    content: dict[str, Any] = yaml.safe_load(RECIPES[name].read_text())
    return content


def run(*words: str) -> str:
    """Run amtool; its objections fail the test."""
    done = subprocess.run([tool("amtool"), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.tools
@pytest.mark.parametrize("path", RECIPES.values(), ids=RECIPES)
def test_amtool_accepts_a_recipe(path: Path) -> None:
    assert "SUCCESS" in run("check-config", str(path))


@pytest.mark.slow
@pytest.mark.tools
@pytest.mark.parametrize("path", RECIPES.values(), ids=RECIPES)
@pytest.mark.parametrize(
    ("labels", "receivers"),
    [
        (OF_GPU, RECEIVERS),
        ({"cluster": "east"}, RECEIVERS),
        (OF_TENANT | {"namespace": "team-b"}, RECEIVERS),
        (OF_TENANT, dict.fromkeys(RECEIVERS, "gpus-team-a")),
    ],
    ids=["GPU", "cluster", "other tenant", "tenant"],
)
def test_each_alert_has_its_receiver(
    path: Path, labels: Mapping[str, str], receivers: Mapping[str, str]
) -> None:
    """By tenant, else by severity."""
    for name, severity in severities().items():
        words = [
            f"{key}={value}" for key, value in {**labels, "alertname": name, "severity": severity}.items()
        ]
        assert run("config", "routes", "test", f"--config.file={path}", *words).split() == [
            receivers[severity]
        ]


@pytest.mark.tools
@pytest.mark.parametrize("path", RECIPES.values(), ids=RECIPES)
def test_alerts_of_others_are_left_to_the_reader(path: Path) -> None:
    labels = ("alertname=Watchdog", "severity=critical")

    assert run("config", "routes", "test", f"--config.file={path}", *labels).split() == ["others"]


def test_both_recipes_route_and_inhibit_alike() -> None:
    """As the page of alerts says."""
    slack, mail = read("slack"), read("mail")
    page = (ROOT / "docs/alerts.md").read_text().partition("```yaml\ninhibit_rules:")[2].partition("```")[0]

    assert slack["route"] == mail["route"]
    assert slack["inhibit_rules"] == mail["inhibit_rules"]
    assert slack["inhibit_rules"] == yaml.safe_load(f"inhibit_rules:{page}")["inhibit_rules"]


def _at_once(configuration: dict[str, Any]) -> dict[str, Any]:
    """Return a recipe that waits for no further alerts of a group."""
    (ours,) = configuration["route"]["routes"]
    for route in (ours, *ours["routes"]):
        route |= {"group_wait": "0s", "group_interval": "1s"}
    return configuration


def _alert(name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return an alert as Prometheus sends it."""
    return {
        "labels": {**labels, "alertname": name, "severity": severities()[name]},
        "annotations": {
            "summary": f"summary of {name}",
            "description": f"description of {name}",
            "runbook_url": f"https://runbooks.example/{name}.md",
            "dashboard": "https://grafana.example/d/a?var-node=n1",
        },
    }


def _send(url: str, *alerts: Mapping[str, Any]) -> None:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE)
    connection.request("POST", "/api/v2/alerts", json.dumps(alerts), {"Content-Type": "application/json"})
    assert connection.getresponse().status == 200
    connection.close()


@pytest.mark.slow
@pytest.mark.tools
def test_slack_gets_causes_and_not_their_symptoms(tmp_path: Path) -> None:
    """A message for each GPU and receiver, with what happened, its place, runbook and dashboard."""
    messages: list[dict[str, Any]] = []
    with posted(messages.append) as slack:
        address = tmp_path / "slack-url"
        address.write_text(slack)
        recipe = _at_once(read("slack"))
        recipe["global"]["slack_api_url_file"] = str(address)
        with configured_alertmanager(tmp_path, recipe) as url:
            _send(url, _alert(LOST, OF_GPU))
            until(lambda: len(messages) >= 1, "the cause arrived")
            # The symptom is in the group of the XID, so the message of the group would have both.
            _send(url, _alert(OVER, {**OF_GPU, "namespace": "b", "pod": "p"}), _alert(XID, OF_GPU))
            until(lambda: len(messages) >= 2, "the other alert of the GPU arrived")
            _send(url, _alert(IDLE, OF_TENANT | {"uuid": "GPU-4", "gpu": "4"}))
            until(lambda: len(messages) >= 3, "the alert of the tenant arrived")

    lost, other, idle = messages
    assert [each["channel"] for each in messages] == ["#on-call", "#gpus", "#team-a"]
    (attachment,) = lost["attachments"]
    assert attachment["title"].split() == ["1", "firing:", "east", "n1", "GPU", "3"]
    assert attachment["color"] == "danger"
    assert attachment["title_link"] == f"https://runbooks.example/{LOST}.md"
    for part in (
        f"*critical* summary of {LOST}",
        f"description of {LOST}",
        "|Runbook>",
        "var-node=n1|Dashboard>",
    ):
        assert part in attachment["text"]
    assert (XID in json.dumps(other), OVER in json.dumps(messages)) == (True, False)
    assert "namespace team-a-lab" in idle["attachments"][0]["title"]


@pytest.mark.slow
@pytest.mark.tools
def test_mail_has_the_text_and_the_links(tmp_path: Path) -> None:
    """One plain text for each GPU, to the address of the receiver."""
    mails: list[Mail] = []
    with mailed(mails.append) as port:
        recipe = _at_once(read("mail"))
        recipe["global"] = {
            "smtp_from": recipe["global"]["smtp_from"],
            "smtp_smarthost": f"127.0.0.1:{port}",
            "smtp_require_tls": False,
        }
        with configured_alertmanager(tmp_path, recipe) as url:
            _send(url, _alert(LOST, OF_GPU))
            until(lambda: mails, "the mail arrived")

    (mail,) = mails
    assert (mail["To"], mail["From"]) == ("on-call@example.com", "alertmanager@example.com")
    assert mail["Subject"].split() == ["[1", "firing]", "east", "n1", "GPU", "3"]
    parts = [part for part in mail.walk() if not part.is_multipart()]
    assert [part.get_content_type() for part in parts] == ["text/plain"]
    lines = parts[0].get_content().splitlines()
    assert lines[:4] == [
        f"critical: summary of {LOST}",
        f"description of {LOST}",
        f"Runbook: https://runbooks.example/{LOST}.md",
        "Dashboard: https://grafana.example/d/a?var-node=n1",
    ]
