"""The program under its manifest's restrictions: nothing is lost by them, and each permission has its use."""

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

from tests.deploy.confined import NODE_NAME, UID, Place, Spec, inside, placed, pods_of, told
from tests.deploy.tools import ROOT

pytestmark = pytest.mark.slow

# A node with MIG, time-slicing, MPS, whole GPUs, and systems that share by annotations and by files.
SCENARIO = "showcase"
COMPONENTS = ("pods-api", "hami")
SHARED = {"time-slicing", "mps", "hami", "kai", "cgpu"}
BY_ANNOTATION = {"hami", "kai", "cgpu"}
# What tells of a clock, or of the process itself.
OF_THE_RUN = re.compile(r"process_|\w*(timestamp|duration|call|cpu)_seconds")
ENTITLED = ("slices", "memory_entitled_bytes", "compute_entitled_ratio")
USED = ("memory_used_bytes", "compute_used_ratio")
SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"


@dataclass(frozen=True, slots=True)
class Heard:
    """What the program told. ``rows`` are by namespace, pod and device, ``ill`` the doctor's complaints."""

    snapshot: Mapping[str, Any]
    metrics: str
    bounds: Mapping[str, Any]
    doctor: Mapping[str, Any]

    @property
    def samples(self) -> dict[str, str]:
        """The samples that another run tells again."""
        lines = (line for line in self.metrics.splitlines() if not line.startswith("#"))
        return dict(line.rsplit(" ", 1) for line in lines if not OF_THE_RUN.search(line.partition("{")[0]))

    @property
    def rows(self) -> dict[tuple[str, str, str], Mapping[str, Any]]:
        """The rows of containers."""
        rows = self.snapshot["containers"]
        return {(row["namespace"], row["pod"], row["mig_uuid"] or row["uuid"]): row for row in rows}

    @property
    def gpus(self) -> list[dict[str, Any]]:
        """What GPUs say of themselves, whoever has them: their models, memory, power and so on."""
        own = (
            key
            for key in self.snapshot["gpus"][0]
            if not re.search(r"sharing|slices|holders|entitled|unattr|time", key)
        )
        names = list(own)
        return [{name: gpu[name] for name in names} for gpu in self.snapshot["gpus"]]

    @property
    def ill(self) -> dict[str, str]:
        """The checks that are not well."""
        checks = self.doctor["checks"]
        return {each["name"]: each["status"] for each in checks if each["status"] in ("degraded", "missing")}

    def known(self, *names: str) -> set[tuple[str, str, str]]:
        """Say of which rows all of these numbers are known."""
        return {key for key, row in self.rows.items() if all(row[name] is not None for name in names)}


def without(spec: Spec, *volumes: str) -> Spec:
    """Take mounts away."""
    less = copy.deepcopy(spec)
    for place, key in ((less, "volumes"), (less["containers"][0], "volumeMounts")):
        assert set(volumes) <= {each["name"] for each in place[key]}
        place[key] = [each for each in place[key] if each["name"] not in volumes]
    return less


def as_another_user(spec: Spec) -> Spec:
    """Run as nobody, as containers without a uid of their own often do."""
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
def heard(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Heard]:
    """Run the program once for each permission without it, once with all, and once unconfined."""
    return asyncio.run(_hear(tmp_path_factory.mktemp("node")))


async def _hear(root: Path) -> Mapping[str, Heard]:
    spec = pods_of(*COMPONENTS)
    found: dict[str, Heard] = {}
    turn = asyncio.Semaphore(2)

    async def hear(name: str, telling: Awaitable[Mapping[str, Any]]) -> None:
        async with turn:
            found[name] = Heard(**await telling)

    async with placed(SCENARIO, root) as place:
        _say_something(root)
        changed = {name: told(change(spec), place) for name, change in WITHOUT.items()}
        driverless = told(spec, replace(place, scenario=""))
        runs = changed | {"driver": driverless, "unconfined": _unconfined(place)}
        await asyncio.gather(*(hear(name, telling) for name, telling in runs.items()))
    return found


def _say_something(root: Path) -> None:
    """Write a log as runtimes do: its owner and group may read it."""
    log = next(root.glob("var/log/pods/*/*")) / "0.log"
    log.write_text("what a container said")
    log.chmod(0o640)


async def _unconfined(place: Place) -> Mapping[str, Any]:
    """Run the same program as this test is run."""
    paths = {f"GPUSLICE_{name.upper()}": str(path) for name, path in asdict(place.node.paths).items()}
    variables = os.environ | paths | {"NODE_NAME": NODE_NAME, "POD_UID": UID}
    process = await asyncio.create_subprocess_exec(
        *inside(place, "tell"), env=variables, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    told: Mapping[str, Any] = json.loads(out)
    return told


@pytest.fixture(scope="module")
def full(heard: Mapping[str, Heard]) -> Heard:
    """Give what is told with all that the manifest gives."""
    return heard[""]


def test_the_restrictions_are_in_force(heard: Mapping[str, Heard], full: Heard) -> None:
    """The kernel says so: no capability now or later, a filter of calls, and no file system to write to."""
    status = full.bounds["status"]

    assert (int(status["CapEff"], 16), int(status["CapBnd"], 16)) == (0, 0)
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert status["Uid"].split() == ["0"] * 4
    # A container's /dev is memory, with the usual devices in it.
    assert {path for path in full.bounds["writable"] if not path.startswith(("/dev", "/proc"))} == set()
    assert "/" in heard["unconfined"].bounds["writable"]


def test_what_a_taken_over_pod_could_do(heard: Mapping[str, Heard], full: Heard) -> None:
    """As uid 0 among the node's processes: signal root's, read logs; not look into who has capabilities."""
    bounds, alone = full.bounds, heard["hostPID"].bounds

    assert bounds["processes"] > 1
    assert (bounds["can signal pid 1"], bounds["can read the environment of pid 1"]) == (True, False)
    assert bounds["can read logs"] == [True]
    # Each remedy of the documentation takes something away.
    assert alone["processes"] == 1
    assert heard["pod-logs"].bounds["can read logs"] == []
    assert heard["uid 0"].bounds["can read logs"] == [False]
    assert heard["uid 0"].bounds["can signal pid 1"] is False


def test_the_restrictions_cost_nothing(heard: Mapping[str, Heard], full: Heard) -> None:
    """No capability, a read-only root, the runtime's system calls: each sample is that of a free run."""
    assert len(full.samples) > 3000
    assert full.samples == heard["unconfined"].samples
    assert full.ill == {}


@pytest.mark.parametrize("name", ["uid 0", "pod-resources"])
def test_without_the_kubelet_only_holding_is_lost(heard: Mapping[str, Heard], full: Heard, name: str) -> None:
    """Nobody's slices and entitlements are known; the GPUs' numbers and the use by processes stay."""
    less = heard[name]

    assert less.ill["pod-resources"] == "missing"
    assert less.known("slices") == less.known("memory_entitled_bytes") == set()
    assert {row["sharing"] for row in less.rows.values()} == {"unknown"}
    assert less.gpus == full.gpus
    # What goes with it are holders that run nothing.
    busy = {key for key, row in full.rows.items() if row["processes"]}
    assert less.rows.keys() == busy < full.rows.keys()
    assert all(less.rows[key][use] == full.rows[key][use] for key in busy for use in USED)


def test_it_is_the_socket_that_wants_uid_0(heard: Mapping[str, Heard]) -> None:
    """As another user the mounts are there, and the doctor says who may connect; names are read from logs."""
    (check,) = (each for each in heard["uid 0"].doctor["checks"] if each["name"] == "pod-resources")

    assert f"{SOCKET}: Permission denied" in check["found"]
    assert "uid 0 (it needs no capability)" in check["found"]
    assert heard["uid 0"].ill == {"pod-resources": "missing", "pod names": "degraded"}
    assert heard["pod-resources"].ill == {"pod-resources": "missing"}


def test_without_the_nodes_pids_use_of_shared_gpus_is_lost(heard: Mapping[str, Heard], full: Heard) -> None:
    """What is entitled stays; used is what the device itself or a sharing system meters of one holder."""
    less = heard["hostPID"]
    metered = {"exclusive": "device", "mig": "instance", "hami": "hami", "cgpu": "cgpu"}

    assert less.ill == {"processes": "missing"}
    assert less.gpus == full.gpus
    assert less.rows.keys() == {key for key, row in full.rows.items() if row["slices"]}
    for key, row in less.rows.items():
        assert [row[name] for name in ENTITLED] == [full.rows[key][name] for name in ENTITLED]
        source = row["memory_source"]
        assert source in ("none", metered.get(row["sharing"]))
        assert (row["memory_used_bytes"] is None) == (source == "none")
    lost = full.known("memory_used_bytes") - less.known("memory_used_bytes")
    assert {full.rows[key]["sharing"] for key in lost} == SHARED - {"cgpu"}


def test_without_the_pods_api_what_annotations_say_is_lost(heard: Mapping[str, Heard], full: Heard) -> None:
    """Of systems that share by annotations, entitlements; in pods of several containers, whose use it is."""
    less = heard["pods-api"]
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
    assert {"sharing by hami", "sharing by kai", "sharing by gpushare"} <= less.ill.keys()


def test_the_logs_are_of_no_use_beside_the_pods_api(heard: Mapping[str, Heard], full: Heard) -> None:
    """Where the kubelet tells of pods, their directories add nothing."""
    assert heard["pod-logs"].samples == full.samples
    assert heard["pod-logs"].ill == {}


def test_without_names_use_is_lost_where_several_may_be_meant(
    heard: Mapping[str, Heard], full: Heard
) -> None:
    """With neither source of names, only the one holder of a device still has its use."""
    less = heard["names"]

    assert less.ill["pod names"] == "missing"
    assert less.gpus == full.gpus
    assert {less.rows[key]["sharing"] for key in less.known("memory_used_bytes")} == {"exclusive", "mig"}
    assert all(
        less.rows[key][name] == full.rows[key][name] for key in less.known(*ENTITLED) for name in ENTITLED
    )


def test_without_hamis_files_processes_tell_the_use(heard: Mapping[str, Heard], full: Heard) -> None:
    """Its own meter is gone, and what the driver says of processes takes its place."""
    less = heard["hami"]
    changed = {
        key for key, row in full.rows.items() if row["memory_source"] != less.rows[key]["memory_source"]
    }

    assert {full.rows[key]["memory_source"] for key in changed} == {"hami"}
    assert {less.rows[key]["memory_source"] for key in changed} == {"process"}
    assert less.ill == {}


def test_without_the_driver_no_holder_can_be_placed(heard: Mapping[str, Heard], full: Heard) -> None:
    """No GPU is known; of what is held only the number of ids is, by resource."""
    less = heard["driver"]

    assert (less.snapshot["gpus"], less.rows, less.ill["driver"]) == ([], {}, "missing")
    assert less.ill.keys() == {"driver", "device ids"}
    unresolved = "gpuslice_allocations_unresolved"
    counts = {name: count for name, count in less.samples.items() if name.startswith(unresolved)}
    assert [count for name, count in counts.items() if 'resource="nvidia.com/gpu.shared"' in name] == ["11"]
    assert not any(name.startswith(unresolved) for name in full.samples)


def test_each_permission_is_explained() -> None:
    """The documentation has a row for each of them, and names components that there are."""
    text = (ROOT / "docs/security.md").read_text()
    rows = re.findall(r"^\| `?([^|`]+?)`? *\|", text, re.MULTILINE)
    spec = pods_of()
    paths = {volume["hostPath"]["path"] for volume in spec["volumes"]}

    assert {"uid 0", "hostPID: true", "NVIDIA container runtime", *paths} <= set(rows)
    named = set(re.findall(r"`components/([\w-]+)`", text))
    assert named <= {path.name for path in (ROOT / "deploy/components").iterdir()}
