"""``make stack SCENARIO=cluster``: hub and commands say of each pod why it waits and what would help.

The nodes are demo nodes, Prometheus is real, and the Kubernetes API is simulated.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.tools import ROOT, tool
from tests.waiting import wait_until

STACK = (sys.executable, str(ROOT / "scripts/stack"), "cluster")
# The reason of each pod, and the kinds of ways, after a minute in which the idle pod has been seen idle.
ANSWERS = {
    "ml/train-7": ("held", ["idle", "recut"]),
    "research/ablation-3": ("not_offered", ["recut"]),
    "team-a/infer-7": ("held", ["larger"]),
    "web/captions-3": ("held", ["replicas"]),
    "llm/serve-4": ("held", ["device"]),
    "studio/render-9": ("not_allowed", ["device"]),
    "data/index-4": ("rest", []),
    "data/embed-2": ("not_judged", []),
    "research/eval-2": ("scattered", []),
    "research/finetune-1": ("held", []),
    "students/lab-9": ("claim", []),
    "team-b/train-8": ("gated", []),
    "batch/mpi-0": ("scheduler", []),
    "ml/nb-dora": ("held", ["replicas"]),
}
ALERT = "GpuSlicePodsWaitForIdle"
Pods = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The observations of a stack: pods by name, soon after its start and later."""

    first: Pods
    last: Pods
    document: dict[str, Any]
    page: str
    why: subprocess.CompletedProcess[str]
    alerts: list[dict[str, Any]]  # labels of those about pods that wait for idle ones


@pytest.fixture(scope="module")
def seen() -> Seen:
    """Start the stack, watch pods come and go, and end it."""
    tool("prometheus")
    with subprocess.Popen(STACK, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            lines = [
                line.strip().rsplit("  ", 1) for line in iter(process.stdout.readline, "Ctrl-C ends it.\n")
            ]
            return _look({name.strip(): where.strip() for name, where in lines})
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


def _look(addresses: dict[str, str]) -> Seen:
    url = addresses["Pods that wait"].replace("/waiting", "/api/v1/waiting")

    def pods_if(condition: Callable[[Pods], object]) -> Callable[[], Pods | None]:
        def ask() -> Pods | None:
            found = _pods(_document(url))
            return found if found and condition(found) else None

        return ask

    first = wait_until(pods_if(lambda pods: "ending" in _kinds(pods.get("llm/serve-3"))), "a pod is ending")
    wait_until(pods_if(lambda pods: "idle" in _kinds(pods["ml/train-7"])), "a holder is idle")
    last = wait_until(pods_if(lambda pods: _kinds(pods["llm/serve-4"]) == ["device"]), "the pod has ended")
    prometheus = "/".join(addresses["Prometheus"].split("/")[:3])

    def alerts() -> list[dict[str, Any]]:
        known = _document(f"{prometheus}/api/v1/alerts")["data"]["alerts"]
        return [each["labels"] for each in known if each["labels"]["alertname"] == ALERT]

    why = subprocess.run(
        [
            *(sys.executable, "-m", "exporter", "why", "ml/train-7"),
            "--prometheus-url",
            prometheus,
        ],
        env=os.environ | {"KUBECONFIG": addresses["KUBECONFIG"]},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    with urlopen(addresses["Pods that wait"]) as answer:  # noqa: S310 - a URL of the stack
        page = str(answer.read(), "utf-8")
    known = wait_until(alerts, f"there is an alert {ALERT}")
    return Seen(first=first, last=last, document=_document(url), page=page, why=why, alerts=known)


def _document(url: str) -> dict[str, Any]:
    try:
        with urlopen(url) as answer:  # noqa: S310 - a URL of the stack
            return dict(json.load(answer))
    except URLError:
        # The hub has no answer yet.
        return {}


def _pods(document: dict[str, Any]) -> Pods:
    return {f"{pod['namespace']}/{pod['pod']}": pod for pod in document.get("pods") or ()}


def _kinds(pod: dict[str, Any] | None) -> list[str]:
    return [way["kind"] for way in pod["ways"]] if pod else []


@pytest.mark.slow
def test_each_pod_has_its_reason_and_its_ways(seen: Seen) -> None:
    """Of each kind one; none is listed that is not there."""
    answers = {name: (pod["reason"], _kinds(pod)) for name, pod in seen.last.items()}

    assert answers == ANSWERS
    assert seen.document["other_pods"] == 1
    assert seen.document["not_seen"] == []


@pytest.mark.slow
def test_a_pod_appears_and_another_is_placed(seen: Seen) -> None:
    """The page is not the same after two minutes."""
    assert "llm/serve-3" in seen.first
    assert "llm/serve-3" not in seen.last
    assert "ml/nb-dora" in seen.last


@pytest.mark.slow
def test_the_command_says_the_same_with_the_kubeconfig_that_is_printed(seen: Seen) -> None:
    """For the pod that an idle holder keeps waiting."""
    assert seen.why.returncode == 0, seen.why.stderr
    assert "scale down ml/nb-chloe on h100-1, idle for" in seen.why.stdout
    assert "nvidia-smi mig -i 1 -cgi 3g.40gb:4 -C" in seen.why.stdout


@pytest.mark.slow
def test_the_page_has_every_pod(seen: Seen) -> None:
    """As text, for a program."""
    assert all(name in seen.page for name in ANSWERS)


@pytest.mark.slow
def test_the_metrics_of_the_hub_are_scraped_so_that_its_alert_has_data(seen: Seen) -> None:
    """For the resource that the idle pod holds."""
    assert [each["resource"] for each in seen.alerts] == ["nvidia.com/mig-3g.40gb"]
