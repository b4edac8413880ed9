"""Runs the program with the runtime crun, as a kubelet would by the DaemonSet's manifest.

Instead of an image the container has the Python of this test and the program; the node's files and kubelet
are those of a fake node below a folder. Three things differ from a pod: the network is the test's, the
container has no cgroup, and the process table of a node with ``hostPID`` has another path.
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

from exporter.demo.node import FakeNode
from exporter.demo.scenario.catalog import load
from tests.scratch import DISK
from tests.tools import ROOT, lacks, tool

SECOND = 30.0
PROC, CGPU = "/node/proc", "/node/cgpu_km"
# The profile of the runtime for CRI-O and podman; containerd's is nearly the same.
PROFILE = Path("/usr/share/containers/seccomp.json")
# crun refuses machines with control groups of both versions, even if it uses none.
ALONE = ["unshare", "--mount", "sh", "-c", 'mount -t cgroup2 none /sys/fs/cgroup && exec "$@"', "sh"]
UID = "00000000-0000-0000-0000-000000000001"
NODE_NAME = "gpu-node-1"
Spec = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A fake node whose files lie below ``root``, and the name of its scenario."""

    root: Path
    scenario: str
    node: FakeNode


@asynccontextmanager
async def placed(scenario: str, root: Path) -> AsyncIterator[Place]:
    """Run the kubelet of a node and write its files; its time does not pass."""
    async with FakeNode(load(scenario), root=root, clock=lambda: SECOND) as node:
        await node.step(SECOND)
        (root / "var/log/pods").mkdir(parents=True, exist_ok=True)
        yield Place(root=root, scenario=scenario, node=node)


def bundle(spec: Spec, place: Place, folder: Path, command: list[str]) -> Path:
    """Write the files from which crun runs a pod's one container with another command, in OCI's format."""
    (container,) = spec["containers"]
    (folder / "rootfs").mkdir()
    (folder / "config.json").write_text(json.dumps(_config(spec, container, place, command)))
    return folder


def _config(spec: Spec, container: Spec, place: Place, command: list[str]) -> Spec:
    """Translate each field that restricts a container or lets it see more, as kubelet and runtime do."""
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
    fields = {"spec.nodeName": NODE_NAME, "metadata.uid": UID}
    given = {
        each["name"]: each["value"] if "value" in each else fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
        for each in container["env"]
    }
    # As in the Dockerfile, except for the path to the sources.
    image = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
    node = {"GPUSLICE_LISTEN": "127.0.0.1:0", "GPUSLICE_CGPU_ROOT": CGPU}
    return given | image | node | ({"GPUSLICE_PROC_ROOT": PROC} if spec.get("hostPID") else {})


def _bind(source: Path, destination: str | Path, *, read_only: bool = True) -> Spec:
    options = ["rbind", "ro" if read_only else "rw"]
    return {"destination": str(destination), "type": "bind", "source": str(source), "options": options}


def _image() -> list[Spec]:
    """Mount this Python and the program at their own paths."""
    prefixes = {Path("/usr"), Path(sys.prefix), Path(sys.base_prefix)}
    parts = {prefix / part for prefix in prefixes for part in ("bin", "lib")}
    parts |= {Path(sys.prefix) / "pyvenv.cfg", Path("/lib"), Path("/lib64")}
    parts |= {ROOT / name for name in ("exporter", "podresources", "tests")}
    return [_bind(path.resolve(), path) for path in sorted(parts) if path.exists()]


def _volumes(spec: Spec, container: Spec, place: Place) -> list[Spec]:
    """Mount directories of the node; a missing one keeps the container from starting, as on a node."""
    volumes = {each["name"]: each["hostPath"] for each in spec["volumes"]}
    assert all(path["type"] == "Directory" for path in volumes.values())
    sources = {name: place.root / path["path"].lstrip("/") for name, path in volumes.items()}
    mounts = [
        _bind(sources[mount["name"]], mount["mountPath"], read_only=mount["readOnly"])
        for mount in container["volumeMounts"]
    ]
    # What any container sees of its node's kernel, and what it sees with the node's pids.
    kernel = {"/sys": "sys", CGPU: "proc/cgpu_km"} | ({PROC: "proc"} if spec.get("hostPID") else {})
    there = {path: place.root / name for path, name in kernel.items() if (place.root / name).is_dir()}
    return [*mounts, *(_bind(source, path) for path, source in there.items())]


def _seccomp() -> Spec:
    """Return the rules of the runtime's profile for a container without capabilities on this machine."""
    if not PROFILE.exists():
        lacks("golang-github-containers-common is not installed (scripts/install-tools)")
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
    """Return the command that runs the program with that node's driver."""
    return [sys.executable, "-m", "tests.product.deploy.inside", place.scenario, str(SECOND), *arguments]


@asynccontextmanager
async def running(spec: Spec, place: Place, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the container while the body runs; it shares the uid and devices of root, so only root can."""
    if os.geteuid() != 0:
        lacks("only root can run the containers")
    with TemporaryDirectory(dir=DISK) as folder:
        files = bundle(spec, place, Path(folder), inside(place, *arguments))
        name = f"gpuslice-{os.getpid()}-{Path(folder).name}"
        crun = [*ALONE, tool("crun"), "--cgroup-manager=disabled", "--root", f"{folder}/state"]
        pipe = asyncio.subprocess.PIPE
        words = [*crun, "run", "--bundle", str(files), name]
        process = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=pipe)
        try:
            yield process
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
            kill = await asyncio.create_subprocess_exec(*crun, "delete", "--force", name, stderr=pipe)
            await kill.communicate()


async def report(spec: Spec, place: Place) -> Mapping[str, Any]:
    """Poll once in the container, and return what ``inside.py`` prints."""
    async with running(spec, place, "report") as process:
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return dict(json.loads(out))
