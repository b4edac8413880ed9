"""The doctor's findings: a code for each cause, with what is lost and how to fix it."""

import ast
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from exporter import doctor
from exporter.config import load_settings
from exporter.doctor import Check
from exporter.doctor.checks import examine
from exporter.doctor.kubelet import kubelet_checks
from exporter.kubernetes import cluster
from exporter.model import CollectorHealth
from exporter.poll.poller import BROKEN
from exporter.poll.snapshot_builder import PollResult, SnapshotBuilder
from podresources.channel import KubeletError, Reason
from tests.core.commands.doctor_bench import FINDINGS, Sick, examined
from tests.core.commands.doctor_nodes import api_fails, nodes, one_gpu, refusing
from tests.core.commands.test_doctor import FEW, WELL, report_of
from tests.core.kubernetes.api import api_server

SETTINGS = load_settings({}, {})
BEFORE = SnapshotBuilder(SETTINGS, demo=False).empty(0)
# Texts of some findings: the field, and a part of it.
TEXTS = {
    "amd-suspended": ("found", "suspended"),
    "amd-unread": ("found", "2 partitions listed, there may be more"),
    "devices-contested": ("found", "held at once: GPU 0 by ml/eval/main and ml/train/main"),
    "gpu-unread": ("lost", "memory"),
    "ids-hidden": ("found", "1 of nvidia.com/gpu match no visible device"),
    "claims-unknown": ("remedy", "--dra-ignore-driver dra.example.com"),
    "kubelet-down": ("lost", "holders, slices"),
    "no-gpu-visible": ("remedy", "NVIDIA_VISIBLE_DEVICES"),
    "readings-denied": ("lost", "some or all of it on GPU 1: NoPermission"),
}


@pytest.fixture(autouse=True)
def _an_api_server_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "FIRST_SECONDS", 0.0)


@pytest.mark.parametrize("code", sorted(nodes(Path("unused"))))
async def test_each_cause_has_its_code(code: str, tmp_path: Path) -> None:
    sick = nodes(tmp_path)[code]()
    check = (await examined(sick))[sick.name]
    assert check.code == code, check
    assert check.status == FINDINGS[code].status
    assert check.found
    assert bool(check.lost) == bool(check.remedy) == (check.status not in WELL)
    assert "{" not in check.remedy
    field, text = TEXTS.get(code, ("found", ""))
    assert text in getattr(check, field)


@pytest.mark.parametrize(("status", "code"), [(401, "api-token-refused"), (403, "api-forbidden")])
async def test_a_refused_token_is_not_a_missing_right(status: int, code: str, tmp_path: Path) -> None:
    async with refusing(tmp_path, status) as sick:
        assert (await examined(sick))["Kubernetes API"].code == code


async def test_an_api_server_that_is_down_is_unreachable(tmp_path: Path) -> None:
    async with api_server() as api:
        config = api.kubeconfig(tmp_path / "config")
    sick = Sick(name="Kubernetes API", scenario=one_gpu(), settings={"kubeconfig": config}, also=api_fails)
    assert (await examined(sick))["Kubernetes API"].code == "api-unreachable"


async def test_a_client_that_is_not_installed_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes_asyncio", None)
    sick = Sick(name="Kubernetes API", scenario=one_gpu(), settings={"kubernetes_api": "on"}, also=api_fails)
    assert (await examined(sick))["Kubernetes API"].code == "client-not-installed"


async def test_container_ids_are_not_missed_if_no_two_containers_can_be_confused() -> None:
    checks = await examined(Sick(name="pod names", scenario=one_gpu(identity="pod_logs")))
    assert checks["pod names"].status == "OK"
    assert checks["pod names"].found.endswith("containers by name only")


async def test_a_gpu_that_cannot_be_read_is_the_only_one_with_a_finding(tmp_path: Path) -> None:
    checks = await examined(nodes(tmp_path)["readings-denied"]())
    assert {checks[name].status for name in ("GPU 0", "GPU 1", "memory")} == {"OK"}


async def test_without_a_kubelet_nothing_is_said_of_device_ids(tmp_path: Path) -> None:
    checks = await examined(nodes(tmp_path)["kubelet-down"]())
    assert "device ids" not in checks
    assert "sharing unknown" in checks["GPU 0"].found


def of_kubelet(reason: Reason) -> Check:
    """Return the check of a kubelet that fails for this reason."""
    message = str(KubeletError(reason, SETTINGS.pod_resources_socket, "what it said"))
    health = CollectorHealth(name="podresources", success=False, message=message, reason=reason)
    (check,) = kubelet_checks(BEFORE, health, PollResult(), SETTINGS)
    return check


@pytest.mark.parametrize("reason", get_args(Reason))
def test_every_failure_of_the_kubelet_has_a_finding(reason: Reason) -> None:
    """Only an internal failure has the general one."""
    assert (of_kubelet(reason).code == "kubelet-fails") == (reason == "internal")


def test_a_socket_that_may_not_be_opened_is_not_called_missing() -> None:
    """Root may open every socket here: the client's own words are used."""
    check = of_kubelet("permission")
    assert check.code == "kubelet-socket-denied"
    assert "runAsUser: 0" in check.remedy


def test_a_poll_that_fails_is_the_only_finding() -> None:
    """All sources are empty then, and none of them has a fault."""
    health = CollectorHealth(name="nvml", success=True)
    empty = SnapshotBuilder(SETTINGS, demo=False).empty(
        0, [health, replace(health, name="podresources")], BROKEN
    )
    (check,) = examine(empty, PollResult(), SETTINGS).checks
    assert (check.code, check.found) == ("poll-fails", BROKEN)


def test_every_check_that_is_not_ok_is_made_of_a_finding() -> None:
    """In the doctor, Check is called with the status OK only: a check cannot be without a code."""
    statuses = [
        call.args[1]
        for path in Path(doctor.__file__).parent.rglob("*.py")
        if path.name != "__init__.py"
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Check"
    ]
    assert {status.value for status in statuses} == {"OK"}


def test_a_finding_has_a_remedy_unless_all_is_well() -> None:
    """Codes are words with hyphens, as anchors of headings are."""
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
async def test_a_source_that_hangs_has_a_finding(source: str, code: str) -> None:
    checks = await examined(
        Sick(name="driver", scenario=one_gpu()), CollectorHealth(name=source, success=False, message=WAITING)
    )
    assert [check.name for check in checks.values() if check.code == code]


def test_every_finding_is_found_by_a_test() -> None:
    of_catalog = {check.code for name in FEW for check in report_of(name).checks}
    of_failures = {of_kubelet(reason).code for reason in get_args(Reason)}
    of_api = {"api-token-refused", "api-forbidden", "api-unreachable", "client-not-installed"}
    # The last one: test_doctor_requests.py.
    others = {"poll-fails", *HANGING.values(), *of_api, "node-name-unknown"}
    assert FINDINGS.keys() - nodes(Path("unused")).keys() - of_catalog - of_failures - others == set()
