"""The restrictions of the manifest cost no reading, and each permission is needed for one."""

import asyncio
import copy
import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.product.deploy.confined import NODE_NAME, UID, Place, Spec, inside, placed, report
from tests.product.deploy.rendering import composed, pod_spec
from tests.tools import ROOT

pytestmark = pytest.mark.tools

# A node with MIG, time-slicing, MPS, whole GPUs, and systems that share by annotations and by files.
SCENARIO = "showcase"
COMPONENTS = ("pods-api", "hami")
SHARED = {"time-slicing", "mps", "hami", "kai", "cgpu"}
BY_ANNOTATION = {"hami", "kai", "cgpu"}
# Series of clocks, or of the process itself.
OF_THE_RUN = re.compile(r"process_|\w*(timestamp|duration|call|cpu)_seconds")
ENTITLED = ("slices", "memory_entitled_bytes", "compute_entitled_ratio")
USED = ("memory_used_bytes", "compute_used_ratio")
SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"


@dataclass(frozen=True, slots=True)
class Run:
    """The output of one run of the program."""

    snapshot: Mapping[str, Any]
    metrics: str
    bounds: Mapping[str, Any]
    doctor: Mapping[str, Any]

    @property
    def samples(self) -> dict[str, str]:
        """The samples that are equal in another run."""
        lines = (line for line in self.metrics.splitlines() if not line.startswith("#"))
        return dict(line.rsplit(" ", 1) for line in lines if not OF_THE_RUN.search(line.partition("{")[0]))

    @property
    def rows(self) -> dict[tuple[str, str, str], Mapping[str, Any]]:
        """The rows of containers by namespace, pod and device."""
        rows = self.snapshot["containers"]
        return {(row["namespace"], row["pod"], row["mig_uuid"] or row["uuid"]): row for row in rows}

    @property
    def gpus(self) -> list[dict[str, Any]]:
        """The readings that do not depend on holders: models, memory, power and so on."""
        of_holders = re.compile(r"sharing|slices|holders|entitled|unattr|time")
        return [
            {name: value for name, value in gpu.items() if not of_holders.search(name)}
            for gpu in self.snapshot["gpus"]
        ]

    @property
    def problems(self) -> dict[str, str]:
        """The doctor's checks with a problem, and their status."""
        checks = self.doctor["checks"]
        return {each["name"]: each["status"] for each in checks if each["status"] in ("degraded", "missing")}

    def known(self, *names: str) -> set[tuple[str, str, str]]:
        """Return the rows in which all of these numbers are known."""
        return {key for key, row in self.rows.items() if all(row[name] is not None for name in names)}


def without(spec: Spec, *volumes: str) -> Spec:
    """Return a spec without mounts."""
    changed = copy.deepcopy(spec)
    for place, key in ((changed, "volumes"), (changed["containers"][0], "volumeMounts")):
        assert set(volumes) <= {each["name"] for each in place[key]}
        place[key] = [each for each in place[key] if each["name"] not in volumes]
    return changed


def as_another_user(spec: Spec) -> Spec:
    """Return a spec with the uid that unprivileged containers often have."""
    return spec | {"securityContext": spec["securityContext"] | {"runAsUser": 65534, "runAsGroup": 65534}}


WITHOUT: Mapping[str, Callable[[Spec], Spec]] = {
    "": lambda spec: spec,
    "uid 0": as_another_user,
    "hostPID": lambda spec: spec | {"hostPID": False},
    "pod-resources": lambda spec: without(spec, "pod-resources"),
    "pods-api": lambda spec: without(spec, "pods-api"),
    "pod-logs": lambda spec: without(spec, "pod-logs"),
    "names": lambda spec: without(spec, "pods-api", "pod-logs"),
    "hami": lambda spec: without(spec, "hami"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Run]:
    """Run the program without each permission, with all (""), and unconfined."""
    return asyncio.run(_run_all(tmp_path_factory.mktemp("node")))


async def _run_all(root: Path) -> Mapping[str, Run]:
    spec = pod_spec(composed(*COMPONENTS))
    two_at_a_time = asyncio.Semaphore(2)

    async def run(reporting: Awaitable[Mapping[str, Any]]) -> Run:
        async with two_at_a_time:
            return Run(**await reporting)

    async with placed(SCENARIO, root) as place:
        _write_log(root)
        reporting = {name: report(change(spec), place) for name, change in WITHOUT.items()}
        reporting["driver"] = report(spec, replace(place, scenario=""))
        reporting["unconfined"] = _unconfined(place)
        done = await asyncio.gather(*map(run, reporting.values()))
    return dict(zip(reporting, done, strict=True))


def _write_log(root: Path) -> None:
    """Write a log as runtimes do: its owner and group may read it."""
    log = next(root.glob("var/log/pods/*/*")) / "0.log"
    log.write_text("the output of a container")
    log.chmod(0o640)


async def _unconfined(place: Place) -> Mapping[str, Any]:
    """Run the same program as this test is run."""
    paths = {f"GPUSLICE_{name.upper()}": str(path) for name, path in asdict(place.node.paths).items()}
    variables = os.environ | paths | {"NODE_NAME": NODE_NAME, "POD_UID": UID}
    process = await asyncio.create_subprocess_exec(
        *inside(place, "report"), env=variables, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return dict(json.loads(out))


@pytest.fixture(scope="module")
def full(runs: Mapping[str, Run]) -> Run:
    """Return the run with all permissions of the manifest."""
    return runs[""]


def test_the_restrictions_are_in_force(runs: Mapping[str, Run], full: Run) -> None:
    """The kernel reports no capability, now or later, a filter of calls, and no writable file system."""
    status = full.bounds["status"]

    assert (int(status["CapEff"], 16), int(status["CapBnd"], 16)) == (0, 0)
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert status["Uid"].split() == ["0"] * 4
    # A container's /dev is in memory.
    assert {path for path in full.bounds["writable"] if not path.startswith(("/dev", "/proc"))} == set()
    assert "/" in runs["unconfined"].bounds["writable"]


def test_what_an_attacker_in_the_pod_could_do(runs: Mapping[str, Run], full: Run) -> None:
    """As uid 0: signal root's processes and read logs; not inspect processes with capabilities."""
    bounds, alone = full.bounds, runs["hostPID"].bounds

    assert bounds["processes"] > 1
    assert (bounds["can signal pid 1"], bounds["can read the environment of pid 1"]) == (True, False)
    assert bounds["can read logs"] == [True]
    # Each remedy of the documentation prevents something.
    assert alone["processes"] == 1
    assert runs["pod-logs"].bounds["can read logs"] == []
    assert runs["uid 0"].bounds["can read logs"] == [False]
    assert runs["uid 0"].bounds["can signal pid 1"] is False


def test_the_restrictions_cost_nothing(runs: Mapping[str, Run], full: Run) -> None:
    """Each sample is that of the unconfined run."""
    assert len(full.samples) > 3000
    assert full.samples == runs["unconfined"].samples
    assert full.problems == {}


@pytest.mark.parametrize("name", ["uid 0", "pod-resources"])
def test_without_the_kubelet_only_holders_are_unknown(runs: Mapping[str, Run], full: Run, name: str) -> None:
    """Slices and entitlements are unknown; the GPUs' numbers and the use by processes stay."""
    less = runs[name]

    assert less.problems["pod-resources"] == "missing"
    assert less.known("slices") == less.known("memory_entitled_bytes") == set()
    assert {row["sharing"] for row in less.rows.values()} == {"unknown"}
    assert less.gpus == full.gpus
    # Holders that run nothing are lost.
    busy = {key for key, row in full.rows.items() if row["processes"]}
    assert less.rows.keys() == busy < full.rows.keys()
    assert all(less.rows[key][use] == full.rows[key][use] for key in busy for use in USED)


def test_the_socket_is_the_reason_for_uid_0(runs: Mapping[str, Run]) -> None:
    """As another user the doctor names the uid that may connect; names are read from logs."""
    (check,) = (each for each in runs["uid 0"].doctor["checks"] if each["name"] == "pod-resources")

    assert f"{SOCKET}: Permission denied" in check["found"]
    assert "uid 0 (it needs no capability)" in check["found"]
    assert runs["uid 0"].problems == {"pod-resources": "missing", "pod names": "degraded"}
    assert runs["pod-resources"].problems == {"pod-resources": "missing"}


def test_without_the_nodes_pids_use_of_shared_gpus_is_unknown(runs: Mapping[str, Run], full: Run) -> None:
    """Entitlements stay; use is known if the device or a sharing system meters the one holder."""
    less = runs["hostPID"]
    metered = {"exclusive": "device", "mig": "instance", "hami": "hami", "cgpu": "cgpu"}

    assert less.problems == {"processes": "missing"}
    assert less.gpus == full.gpus
    assert less.rows.keys() == {key for key, row in full.rows.items() if row["slices"]}
    for key, row in less.rows.items():
        assert [row[name] for name in ENTITLED] == [full.rows[key][name] for name in ENTITLED]
        source = row["memory_source"]
        assert source in ("none", metered.get(row["sharing"]))
        assert (row["memory_used_bytes"] is None) == (source == "none")
    unknown = full.known("memory_used_bytes") - less.known("memory_used_bytes")
    assert {full.rows[key]["sharing"] for key in unknown} == SHARED - {"cgpu"}


def test_without_the_pods_api_entitlements_by_annotation_are_unknown(
    runs: Mapping[str, Run], full: Run
) -> None:
    """And in pods of several containers, the container of the use."""
    less = runs["pods-api"]
    changed = {
        key for key, row in full.rows.items() if any(less.rows[key][name] != row[name] for name in ENTITLED)
    }

    assert {full.rows[key]["sharing"] for key in changed} == BY_ANNOTATION
    merged = {(row["namespace"], row["pod"]) for row in less.snapshot["containers"] if not row["container"]}
    assert merged
    for key, row in full.rows.items():
        expected = [None if key[:2] in merged else row[use] for use in USED]
        assert [less.rows[key][use] for use in USED] == expected
    assert less.gpus == full.gpus
    assert {"sharing by hami", "sharing by kai", "sharing by gpushare"} <= less.problems.keys()


def test_the_logs_are_not_needed_with_the_pods_api(runs: Mapping[str, Run], full: Run) -> None:
    assert runs["pod-logs"].samples == full.samples
    assert runs["pod-logs"].problems == {}


def test_without_names_use_is_known_only_of_a_single_holder(runs: Mapping[str, Run], full: Run) -> None:
    less = runs["names"]

    assert less.problems["pod names"] == "missing"
    assert less.gpus == full.gpus
    assert {less.rows[key]["sharing"] for key in less.known("memory_used_bytes")} == {"exclusive", "mig"}
    assert all(
        less.rows[key][name] == full.rows[key][name] for key in less.known(*ENTITLED) for name in ENTITLED
    )


def test_without_hamis_files_use_is_that_of_processes(runs: Mapping[str, Run], full: Run) -> None:
    """The driver's numbers replace HAMi's."""
    less = runs["hami"]
    changed = {
        key for key, row in full.rows.items() if row["memory_source"] != less.rows[key]["memory_source"]
    }

    assert {full.rows[key]["memory_source"] for key in changed} == {"hami"}
    assert {less.rows[key]["memory_source"] for key in changed} == {"process"}
    assert less.problems == {}


def test_without_the_driver_no_holder_can_be_placed(runs: Mapping[str, Run], full: Run) -> None:
    """No GPU is known; of allocations only the number of ids by resource."""
    less = runs["driver"]

    assert (less.snapshot["gpus"], less.rows, less.problems["driver"]) == ([], {}, "missing")
    assert less.problems.keys() == {"driver", "device ids"}
    unresolved = "gpuslice_allocations_unresolved"
    counts = {name: count for name, count in less.samples.items() if name.startswith(unresolved)}
    assert [count for name, count in counts.items() if 'resource="nvidia.com/gpu.shared"' in name] == ["11"]
    assert not any(name.startswith(unresolved) for name in full.samples)
