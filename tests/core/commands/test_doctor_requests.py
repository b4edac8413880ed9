"""Options that a node cannot follow: a finding with the remedy, and one line in the log."""

import logging
import re
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.config import load_settings
from exporter.demo.node import FakeNode
from exporter.doctor.requests import RequestLog, request_checks
from exporter.kubernetes import cluster
from exporter.model.poll_result import PollResult
from exporter.poll.poller import Poller
from exporter.poll.snapshot_builder import SnapshotBuilder
from exporter.poll.sources import Sources
from tests.core.commands.doctor_bench import Sick, examined
from tests.core.commands.doctor_nodes import nodes, one_gpu
from tests.core.commands.program import serving
from tests.core.kubernetes.api import api_server
from tests.core.poller.bench import budget_of, settings_of
from tests.waiting import LIMIT_SECONDS, wait_until, wait_until_async

LABELS = {"pod_labels": (re.compile("team"), re.compile("tier-.*"))}
REQUESTS = (
    "pod-labels-unreadable",
    "resources-unmatched",
    "throughput-not-here",
    "throughput-not-shown",
    "release-file-unreadable",
)


@asynccontextmanager
async def polled(sick: Sick):
    """Yield a poller of a node with a fault, before its first poll."""
    async with FakeNode(sick.scenario, clock=lambda: 0.0) as node:
        settings = replace(settings_of(node), **sick.settings)
        sources = Sources(settings, node.nvml, budget=budget_of(settings, LIMIT_SECONDS))
        poller = Poller(settings, sources)
        poller.subscribe(RequestLog(lambda: poller.evidence, settings).record)
        try:
            yield poller
        finally:
            await poller.close()


def lines(caplog) -> list[str]:
    return [record.message for record in caplog.records if record.name == "exporter.doctor.requests"]


@pytest.mark.parametrize("code", REQUESTS)
async def test_a_request_that_cannot_be_met_is_logged_once(code: str, tmp_path: Path, caplog) -> None:
    """With the remedy, at the first poll and at no further one."""
    sick = nodes(tmp_path)[code]()
    with caplog.at_level(logging.INFO):
        async with polled(sick) as poller:
            await poller.first()
            for _ in range(3):
                await poller.poll()
    (line,) = lines(caplog)
    check = (await examined(sick))[sick.name]
    assert (check.code, check.status) == (code, "degraded")
    assert line == f"{check.found}; {check.remedy}"


@pytest.mark.parametrize("identity", ["pods_api", "pod_logs"])
async def test_pod_labels_need_a_source(identity: str) -> None:
    """The finding names the patterns; without the option nothing is missing."""
    scenario = one_gpu(identity=identity)
    checks = await examined(Sick(name="pod labels", scenario=scenario, settings=LABELS))
    assert ("pod labels" in checks) == (identity == "pod_logs")
    if identity == "pod_logs":
        assert checks["pod labels"].found.startswith("--pod-labels team, tier-.*: neither ")
        assert "deploy/components/pods-api" in checks["pod labels"].remedy
    assert "pod labels" not in await examined(Sick(name="", scenario=scenario))


async def test_pod_labels_may_come_from_the_kubernetes_api(tmp_path: Path, caplog) -> None:
    """While the API server has not answered yet, nothing is said to be missing."""
    async with api_server() as api:
        api.pods.silent = api.nodes.silent = True
        settings = {**LABELS, "kubeconfig": api.kubeconfig(tmp_path / "config")}
        sick = Sick(name="pod labels", scenario=one_gpu(identity="pod_logs"), settings=settings)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cluster, "FIRST_SECONDS", 0.0)
            async with polled(sick) as poller:
                await poller.first()
                assert poller.evidence.objects_pending
                assert not lines(caplog)
                assert not list(request_checks(poller.snapshot, poller.evidence, poller.settings))


async def test_pod_labels_of_an_api_that_refuses_are_missing(tmp_path: Path, caplog) -> None:
    async with api_server() as api:
        api.pods.refuse = 403
        settings = {**LABELS, "kubeconfig": api.kubeconfig(tmp_path / "config")}
        async with polled(
            Sick(name="pod labels", scenario=one_gpu(identity="pod_logs"), settings=settings)
        ) as poller:
            await poller.first()
            await wait_until_async(lambda: poller._sources.cluster.failures)
            await poller.poll()
    assert any(line.startswith("--pod-labels") for line in lines(caplog))


@pytest.mark.parametrize("named", [True, False])
async def test_a_node_that_the_api_does_not_have_is_a_finding(named: bool, tmp_path: Path, caplog) -> None:
    async with api_server() as api:
        settings = {"kubeconfig": api.kubeconfig(tmp_path / "config"), "node_name": "here"}
        api.nodes.objects.clear()
        if named:
            api.nodes.put({"metadata": {"name": "here", "uid": "1"}})
        async with polled(Sick(name="node name", scenario=one_gpu(), settings=settings)) as poller:
            await poller.first()
            await wait_until_async(lambda: poller._sources.cluster._node.objects is not None)
            await poller.poll()
            checks = list(request_checks(poller.snapshot, poller.evidence, poller.settings))
    assert [check.code for check in checks] == ([] if named else ["node-name-unknown"])
    assert [line.partition(";")[0] for line in lines(caplog)] == (
        [] if named else ["the Kubernetes API has no node here"]
    )


async def test_a_pattern_of_other_nodes_is_no_fault(tmp_path: Path) -> None:
    """If the GPUs of this node have resources that are known; several patterns are judged one by one."""
    both = {"resource_pattern": (re.compile("example.com/big"), re.compile(r"nvidia\.com/gpu"))}
    sick = nodes(tmp_path)["resources-not-here"]()
    for settings in (sick.settings, both):
        check = (await examined(replace(sick, settings=settings)))["resources by name"]
        assert (check.status, check.lost, check.remedy) == ("absent", "", "")
        assert check.found == (
            "--resource-pattern example.com/big matches no resource of this node: nvidia.com/gpu"
        )
    fits = {"resource_pattern": (re.compile("example.com/small"),)}
    unmatched = nodes(tmp_path)["resources-unmatched"]()
    assert "resources by name" not in await examined(replace(unmatched, settings=fits))


def test_it_is_logged_again_after_it_was_met(caplog) -> None:
    settings = load_settings({"pod_labels": ["team"]}, {})
    snapshot = SnapshotBuilder(settings, demo=False).empty(0)
    evidence = PollResult()
    log = RequestLog(lambda: evidence, settings)
    for source in ("", "", "the Kubernetes API", "", ""):
        evidence = PollResult(objects_from=source)
        log.record(snapshot)
    assert len(lines(caplog)) == 2


def test_serve_logs_it() -> None:
    """One line while it serves, with many polls."""
    words = ("--scenario", "old-driver", "--pod-labels", "team", "--poll-interval", "200ms")
    with serving("demo", *words) as served:
        wait_until(lambda: any("--pod-labels team" in line for line in served.lines), "it is logged")
        before = served.get("metrics")
        wait_until(lambda: served.get("metrics") != before, "it polls again")
        assert sum("--pod-labels team" in line for line in served.lines) == 1
        assert any(" WARNING --pod-labels team: neither" in line for line in served.lines)
