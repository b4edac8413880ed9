"""What the doctor finds is precise: a code for each cause, with what is lost by it and how to mend it."""

import ast
import asyncio
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from exporter import doctor
from exporter.config import load_settings
from exporter.demo.scenario import catalog
from exporter.doctor import Check, Report
from exporter.doctor.checks import examine
from exporter.doctor.kubelet import kubelet_checks
from exporter.kubernetes import cluster
from exporter.model import CollectorHealth
from exporter.poll.poller import BROKEN
from exporter.poll.snapshot_builder import PollResult, SnapshotBuilder
from podresources.channel import KubeletError, Reason
from tests.commands.doctor_bench import FINDINGS, Sick, examined, first_report
from tests.commands.doctor_nodes import nodes, one_gpu, refusing
from tests.kubernetes.api import api_server

WELL = ("OK", "absent")
SETTINGS = load_settings({}, {})
BEFORE = SnapshotBuilder(SETTINGS, demo=False).empty(0)


@pytest.fixture(autouse=True)
def _no_long_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first poll not wait long for an API server that does not answer."""
    monkeypatch.setattr(cluster, "FIRST_SECONDS", 0.3)


@pytest.mark.slow
@pytest.mark.parametrize("code", sorted(nodes(Path("unused"))))
async def test_each_cause_has_its_code(code: str, tmp_path: Path) -> None:
    """On a node with one thing wrong the check of that thing names it, and says what to do."""
    sick = nodes(tmp_path)[code]()
    checks = await examined(sick)
    check = checks[sick.name]
    assert check.code == code, check
    assert check.status == FINDINGS[code].status
    assert check.found
    assert bool(check.lost) == bool(check.remedy) == (check.status not in WELL)
    assert "{" not in check.remedy


@pytest.mark.slow
@pytest.mark.parametrize(("status", "code"), [(401, "api-token-refused"), (403, "api-forbidden")])
async def test_an_api_server_that_refuses(status: int, code: str, tmp_path: Path) -> None:
    """It is told apart whether nobody is let in, or only this one not."""
    async with refusing(tmp_path, status) as sick:
        checks = await examined(sick)
    assert checks["Kubernetes API"].code == code


async def test_an_api_server_that_is_not_there(tmp_path: Path) -> None:
    """A refused connection is neither a missing right nor a missing configuration."""
    async with api_server() as api:
        config = api.kubeconfig(tmp_path / "config")
    sick = Sick(name="Kubernetes API", scenario=one_gpu(), settings={"kubeconfig": config})
    assert (await examined(sick))["Kubernetes API"].code == "api-unreachable"


async def test_a_client_that_is_not_installed(monkeypatch) -> None:
    """Asked for without the extra, the API is not blamed."""
    monkeypatch.setitem(sys.modules, "kubernetes_asyncio", None)
    sick = Sick(name="Kubernetes API", scenario=one_gpu(), settings={"kubernetes_api": "on"})
    assert (await examined(sick))["Kubernetes API"].code == "client-not-installed"


async def test_names_of_containers_are_missed_only_where_they_are_needed() -> None:
    """Without ids of containers all is well as long as no pod has two that may use the same device."""
    checks = await examined(Sick(name="pod names", scenario=one_gpu(identity="pod_logs")))
    assert checks["pod names"].status == "OK"
    assert checks["pod names"].found.endswith("containers by name only")


def of_kubelet(reason: Reason) -> Check:
    """Judge a kubelet that fails for this reason."""
    message = str(KubeletError(reason, SETTINGS.pod_resources_socket, "what it said"))
    health = CollectorHealth(name="podresources", success=False, message=message, reason=reason)
    (check,) = kubelet_checks(BEFORE, health, PollResult(), SETTINGS)
    return check


@pytest.mark.parametrize("reason", get_args(Reason))
def test_every_failure_of_the_kubelet_has_a_finding(reason: Reason) -> None:
    """None but the kubelet's own failure falls under those of which nothing better is known."""
    assert (of_kubelet(reason).code == "kubelet-fails") == (reason == "internal")


def test_a_socket_that_may_not_be_opened_is_not_called_missing() -> None:
    """Root may open every socket here, so that the client's own words stand for it."""
    check = of_kubelet("permission")
    assert check.code == "kubelet-socket-denied"
    assert "runAsUser: 0" in check.remedy


def test_a_poll_that_fails_blames_nothing_else() -> None:
    """Every source is empty then, and none of them is to be mended."""
    health = CollectorHealth(name="nvml", success=True)
    empty = SnapshotBuilder(SETTINGS, demo=False).empty(
        0, [health, replace(health, name="podresources")], BROKEN
    )
    (check,) = examine(empty, PollResult(), SETTINGS).checks
    assert (check.code, check.found) == ("poll-fails", BROKEN)


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    """Examine every node of the catalog at its beginning, by its first poll."""

    async def all_reports() -> dict[str, Report]:
        return {name: await first_report(catalog.load(name)) for name in catalog.names()}

    return asyncio.run(all_reports())


@pytest.mark.slow
def test_what_is_not_ok_has_a_code_and_what_is_ok_has_none(reports: dict[str, Report]) -> None:
    """On every node of the catalog, and each code is in the table with that status."""
    for name, report in reports.items():
        for check in report.checks:
            assert bool(check.code) == (check.status != "OK"), (name, check)
            assert check.status == "OK" or FINDINGS[check.code].status == check.status
            assert check.url.endswith(f"/docs/troubleshooting.md#{check.code}" if check.code else "")


# What is not well on the nodes of the catalog.
UNWELL = {
    "dra-only": {"device-unhealthy"},
    "elastic-gpu": {"ids-unplaced"},
    "gb200-nvl72": {"gpu-unhealthy"},
    "gke": {"host-pid-missing", "pod-names-missing"},
    "gpu-manager": {"ids-unplaced"},
    "l40s": {"gpu-unhealthy"},
    "no-gpu": {"driver-not-loaded"},
    "old-driver": {"offers-unknown"},
    "sick-gpus": {"gpu-unhealthy"},
    "volcano-gpushare": {"ids-unplaced"},
}


@pytest.mark.slow
def test_good_nodes_are_all_green(reports: dict[str, Report]) -> None:
    """Only those nodes have something to mend that lack something, and just that."""
    found = {
        name: {check.code for check in report.checks if check.status not in WELL}
        for name, report in reports.items()
    }
    assert {name: codes for name, codes in found.items() if codes} == UNWELL
    assert {name for name, report in reports.items() if report.exit_code} == UNWELL.keys()


def test_a_check_that_is_not_ok_is_made_of_a_finding() -> None:
    """Nowhere in the doctor is a status written by hand but OK, so that no check can be without a code."""
    folder = Path(doctor.__file__).parent
    made = [
        call.args[1]
        for path in folder.rglob("*.py")
        if path.name != "__init__.py"
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Check"
    ]
    assert made
    assert {status.value for status in made} == {"OK"}


def test_findings_say_what_is_lost_and_how_to_mend_it() -> None:
    """Where something is wrong there is a remedy; codes are words with hyphens, as a heading's anchor is."""
    for code, finding in FINDINGS.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)+", code)
        assert bool(finding.remedy) == (finding.status not in WELL)


WAITING = "no answer for 5 s; the poll goes on without it"
HANGING = {
    "amd": "amd-fails",
    "host_devices": "host-devices-fail",
    "processes": "processes-fail",
    "sharing": "files-fail",
}


@pytest.mark.parametrize(("source", "code"), HANGING.items())
async def test_a_source_that_hangs_is_named(source: str, code: str) -> None:
    """A source that no other check stands for has a finding of its own."""
    checks = await examined(
        Sick(name="driver", scenario=one_gpu()), CollectorHealth(name=source, success=False, message=WAITING)
    )
    assert [check.name for check in checks.values() if check.code == code]


@pytest.mark.slow
def test_every_finding_is_found(reports: dict[str, Report]) -> None:
    """No code is in the table that nothing above leads to."""
    of_catalog = {check.code for report in reports.values() for check in report.checks}
    of_kubelet_ = {of_kubelet(reason).code for reason in get_args(Reason)}
    of_api = {"api-token-refused", "api-forbidden", "api-unreachable", "client-not-installed"}
    others = {"poll-fails", *HANGING.values(), *of_api}
    assert FINDINGS.keys() - nodes(Path("unused")).keys() - of_catalog - of_kubelet_ - others == set()
