"""Runs the program by the runtime crun, as a kubelet would have it run by the DaemonSet's manifest.

Instead of an image the container has the Python of this test and the program; the node's files and kubelet
are those of a fake node below a folder. Three things differ from a pod: the network is the test's, there is
no cgroup of its own, and the process table of a node with ``hostPID`` is at a path of its own.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

from exporter.demo.node import FakeNode
from exporter.demo.scenario.catalog import load
from tests.deploy.rendering import Manifest, only
from tests.deploy.tools import ROOT, output, tool
from tests.scratch import DISK

SECOND = 30.0
PROC, CGPU = "/node/proc", "/node/cgpu_km"
# What CRI-O and podman mean by the profile of the runtime; containerd's own is nearly the same list.
PROFILE = Path("/usr/share/containers/seccomp.json")
# crun refuses machines whose control groups are of both versions at once, even where it uses none.
ALONE = ["unshare", "--mount", "sh", "-c", 'mount -t cgroup2 none /sys/fs/cgroup && exec "$@"', "sh"]
UID = "00000000-0000-0000-0000-000000000001"
NODE_NAME = "gpu-node-1"
Spec = dict[str, Any]


def objects_of(*components: str) -> list[Manifest]:
    """Give the objects of the base with components, as kustomize builds them."""
    with TemporaryDirectory(dir=DISK) as folder:
        chosen = {"resources": ["base"], "components": [f"components/{name}" for name in components]}
        related = {
            key: [os.path.relpath(ROOT / "deploy" / path, folder) for path in paths]
            for key, paths in chosen.items()
        }
        (Path(folder) / "kustomization.yaml").write_text(json.dumps(related))
        return list(yaml.safe_load_all(output("kustomize", "build", folder)))


def pods_of(*components: str) -> Spec:
    """Give the specification of the DaemonSet's pods."""
    spec: Spec = only(objects_of(*components), "DaemonSet")["spec"]["template"]["spec"]
    return spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A fake node whose files lie below ``root``, and the name of its scenario."""

    root: Path
    scenario: str
    node: FakeNode


@asynccontextmanager
async def placed(scenario: str, root: Path) -> AsyncIterator[Place]:
    """Run the kubelet of a node and write its files; it stands still."""
    async with FakeNode(load(scenario), root=root, clock=lambda: SECOND) as node:
        await node.step(SECOND)
        (root / "var/log/pods").mkdir(parents=True, exist_ok=True)
        yield Place(root=root, scenario=scenario, node=node)


def bundle(spec: Spec, place: Place, folder: Path, command: list[str]) -> Path:
    """Write what crun needs to run a pod's one container with another command, in the format of OCI."""
    (container,) = spec["containers"]
    (folder / "rootfs").mkdir()
    (folder / "config.json").write_text(json.dumps(_config(spec, container, place, command)))
    return folder


def _config(spec: Spec, container: Spec, place: Place, command: list[str]) -> Spec:
    """Do as the kubelet and its runtime do with each field that restricts a container or lets it see more."""
    pod, own = spec["securityContext"], container["securityContext"]
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert own["privileged"] is False
    assert pod["seccompProfile"]["type"] == "RuntimeDefault"
    kinds = ["mount", "ipc", "uts", *([] if spec.get("hostPID") else ["pid"])]
    none: list[str] = []
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": pod["runAsUser"], "gid": pod["runAsGroup"]},
            "args": command,
            "cwd": "/",
            "env": [f"{name}={value}" for name, value in _environment(spec, container).items()],
            "capabilities": dict.fromkeys(
                ("bounding", "effective", "permitted", "inheritable", "ambient"), none
            ),
            "noNewPrivileges": own["allowPrivilegeEscalation"] is False,
        },
        "root": {"path": "rootfs", "readonly": own["readOnlyRootFilesystem"]},
        "mounts": [*_MOUNTS, *_image(), *_volumes(spec, container, place)],
        "linux": {"namespaces": [{"type": kind} for kind in kinds], "seccomp": _seccomp()},
    }


_MOUNTS = [
    {"destination": "/proc", "type": "proc", "source": "proc"},
    {
        "destination": "/dev",
        "type": "tmpfs",
        "source": "tmpfs",
        "options": ["nosuid", "mode=755", "size=65536k"],
    },
]


def _environment(spec: Spec, container: Spec) -> dict[str, str]:
    told = {"spec.nodeName": NODE_NAME, "metadata.uid": UID}
    given = {
        each["name"]: each["value"] if "value" in each else told[each["valueFrom"]["fieldRef"]["fieldPath"]]
        for each in container["env"]
    }
    # As the Dockerfile has it, but for the path to the sources.
    image = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
    node = {"GPUSLICE_LISTEN": "127.0.0.1:0", "GPUSLICE_CGPU_ROOT": CGPU}
    return given | image | node | ({"GPUSLICE_PROC_ROOT": PROC} if spec.get("hostPID") else {})


def _bind(source: Path, destination: str | Path, *, read_only: bool = True) -> Spec:
    options = ["rbind", "ro" if read_only else "rw"]
    return {"destination": str(destination), "type": "bind", "source": str(source), "options": options}


def _image() -> list[Spec]:
    """Mount this Python and the program where they are."""
    prefixes = {Path(sys.prefix), Path(sys.base_prefix)} - {Path("/usr")}
    parts = {
        Path("/usr/bin"),
        Path("/usr/lib"),
        *(prefix / part for prefix in prefixes for part in ("bin", "lib")),
    }
    parts |= {
        Path(sys.prefix) / "pyvenv.cfg",
        *(ROOT / name for name in ("exporter", "podresources", "tests")),
    }
    old = {Path("/lib"), Path("/lib64")}
    return [_bind(path.resolve(), path) for path in sorted(parts | old) if path.exists()]


def _volumes(spec: Spec, container: Spec, place: Place) -> list[Spec]:
    """Mount directories of the node; one that is not there keeps the pod from starting, as it does there."""
    volumes = {each["name"]: each["hostPath"] for each in spec["volumes"]}
    assert all(path["type"] == "Directory" for path in volumes.values())
    mounts = [
        _bind(
            place.root / volumes[mount["name"]]["path"].lstrip("/"),
            mount["mountPath"],
            read_only=mount["readOnly"],
        )
        for mount in container["volumeMounts"]
    ]
    # What a container of any kind sees of its node's kernel, and what it sees with the node's pids.
    kernel = {"/sys": "sys", CGPU: "proc/cgpu_km"} | ({PROC: "proc"} if spec.get("hostPID") else {})
    there = {path: place.root / name for path, name in kernel.items() if (place.root / name).is_dir()}
    return [*mounts, *(_bind(source, path) for path, source in there.items())]


def _seccomp() -> Spec:
    """Turn the runtime's profile into the rules for a container without capabilities on this machine."""
    if not PROFILE.exists():
        tool("the package golang-github-containers-common")
    profile = json.loads(PROFILE.read_text())
    rules = [
        {
            "names": each["names"],
            "action": each["action"],
            "args": each["args"] or [],
            **({"errnoRet": each["errnoRet"]} if "errnoRet" in each else {}),
        }
        for each in profile["syscalls"]
        if not each["includes"].get("caps") and set(each["includes"].get("arches", [_arch()])) & {_arch()}
    ]
    return {
        "defaultAction": profile["defaultAction"],
        "defaultErrnoRet": profile["defaultErrnoRet"],
        "syscalls": rules,
    }


def _arch() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]


def inside(place: Place, *arguments: str) -> list[str]:
    """Give the words that run the program with that node's driver."""
    return [sys.executable, "-m", "tests.deploy.inside", place.scenario, str(SECOND), *arguments]


@asynccontextmanager
async def running(spec: Spec, place: Place, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the container while the body runs; only root can, whose uid and devices it shares."""
    if os.geteuid() != 0:
        pytest.skip("containers are run as root only")
    with TemporaryDirectory(dir=DISK) as folder:
        made = bundle(spec, place, Path(folder), inside(place, *arguments))
        name = f"gpuslice-{os.getpid()}-{Path(folder).name}"
        crun = [*ALONE, tool("crun"), "--cgroup-manager=disabled", "--root", f"{folder}/state"]
        pipe = asyncio.subprocess.PIPE
        words = [*crun, "run", "--bundle", str(made), name]
        process = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=pipe)
        try:
            yield process
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
            kill = await asyncio.create_subprocess_exec(*crun, "delete", "--force", name, stderr=pipe)
            await kill.communicate()


async def told(spec: Spec, place: Place) -> Mapping[str, Any]:
    """Poll once in the container, and give what each form says: ``snapshot``, ``metrics``, ``doctor``."""
    async with running(spec, place, "tell") as process:
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    found: Mapping[str, Any] = json.loads(out)
    return found
