"""The files of a node of a cluster: settings of containerd, of the network of pods, and of the kubelet."""

import json
import subprocess
from pathlib import Path
from typing import Any

NAME, ADDRESS = "gpu-node-1", "10.98.0.1"
# That of the API server for pods. The node has it, so that no proxy of services is needed.
SERVICE = "10.97.0.1"
CGROUPS = Path("/sys/fs/cgroup")
# What a node has under these names is below the folder of the node.
BOUND = {
    "kubelet": "/var/lib/kubelet",
    "pods": "/var/log/pods",
    "containers": "/var/log/containers",
    "driver": "/run/nvidia/driver",
}
CONTAINERD = """version = 2
root = "{folder}/containerd"
state = "/run/containerd"
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
disable_apparmor = true
restrict_oom_score_adj = {restricted}
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{folder}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"""
ROUTES = [{"dst": "0.0.0.0/0"}]
NETWORK = {
    "cniVersion": "0.4.0",
    "name": "pods",
    "plugins": [{"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.99.0.0/24", "routes": ROUTES}}],
}
SETUP = """set -e
for place in /run /var/lib /var/log; do mount -t tmpfs tmpfs $place; done
mkdir -p {places}
{mounts}
ip link set lo up
ip address add {address}/32 dev lo
ip address add {service}/32 dev lo
echo 1 >/proc/sys/net/ipv4/ip_forward
touch {folder}/ready
exec sleep infinity
"""
# The capability to raise limits, which not every container of CI has.
_SYS_RESOURCE = 24


def setup(folder: Path) -> str:
    """Return the shell script that makes the mounts and addresses of a node in new namespaces, and stays."""
    mounts = "\n".join(f"mount --bind {folder}/{name} {place}" for name, place in BOUND.items())
    return SETUP.format(
        places=" ".join(BOUND.values()), mounts=mounts, address=ADDRESS, service=SERVICE, folder=folder
    )


def write(folder: Path, pause: str) -> None:
    """Write the settings of a node; ``pause`` is the image of sandboxes."""
    for name in (*BOUND, "containerd", "cni", "api"):
        (folder / name).mkdir()
    (folder / "cni/10-pods.conflist").write_text(json.dumps(NETWORK))
    capabilities = int(_field("/proc/self/status", "CapEff"), 16)
    restricted = "false" if capabilities >> _SYS_RESOURCE & 1 else "true"
    settings = CONTAINERD.format(folder=folder, pause=pause, restricted=restricted)
    (folder / "containerd.toml").write_text(settings)
    subprocess.run(["openssl", "genrsa", "-out", folder / "key", "2048"], check=True, capture_output=True)
    (folder / "tokens").write_text('secret,admin,1,"system:masters"\n')
    server = {"server": "https://127.0.0.1", "insecure-skip-tls-verify": True}
    parts = {"cluster": server, "user": {"token": "secret"}}
    config: dict[str, Any] = {f"{key}s": [{"name": "it", key: value}] for key, value in parts.items()}
    config["contexts"] = [{"name": "it", "context": {"cluster": "it", "user": "it"}}]
    (folder / "admin").write_text(json.dumps(config | {"current-context": "it"}))
    (folder / "kubelet.json").write_text(json.dumps(_kubelet(folder)))


def _field(path: str, key: str) -> str:
    return next(line.split()[1] for line in Path(path).read_text().splitlines() if line.startswith(f"{key}:"))


def _kubelet(folder: Path) -> dict[str, Any]:
    return {
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{folder.name}",
        "enforceNodeAllocatable": [],
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "evictionHard": {"nodefs.available": "0%", "imagefs.available": "0%", "nodefs.inodesFree": "0%"},
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "resolvConf": "",
        "failCgroupV1": False,
    }


def make_control_groups(name: str) -> None:
    """Make the node's control group, which the kubelet expects, in each hierarchy."""
    for hierarchy in hierarchies():
        (hierarchy / name).mkdir()
        for setting in ("cpuset.cpus", "cpuset.mems"):
            # Version 1 gives a new group neither processors nor memory.
            if (hierarchy / setting).exists() and not (hierarchy / "cgroup.controllers").exists():
                (hierarchy / name / setting).write_text((hierarchy / setting).read_text())


def hierarchies() -> list[Path]:
    """Return the hierarchies of control groups: one, or many."""
    places = [CGROUPS] if (CGROUPS / "cgroup.procs").exists() else sorted(CGROUPS.iterdir())
    return [path for path in places if (path / "cgroup.procs").exists() and not path.is_symlink()]
