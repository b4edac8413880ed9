"""MPS or time-slicing: by the device, the daemon's directory or the node's labels, in this order."""

import os
from pathlib import Path

import pytest

from exporter.model import NodeObject, SystemFiles
from exporter.sharing.base import Roots
from exporter.sharing.base.view import Objections
from exporter.sharing.nvidia_strategy import MOST, read_daemons
from tests.core.attribution.build import (
    GIB,
    MIG,
    UUID,
    gpu,
    held,
    memory,
    mig,
    mig_gpu,
    process,
    replicas,
    whole,
)
from tests.core.sharing.build import OTHER_UUID, numbered, only, resolve, roots_at

GPU = "nvidia.com/gpu"
GKE_ID = "nvidia0/vgpu0"
STRATEGY, REPLICAS = f"{GPU}.sharing-strategy", f"{GPU}.replicas"
GKE_STRATEGY = "cloud.google.com/gke-gpu-sharing-strategy"
GKE_REPLICAS = "cloud.google.com/gke-max-shared-clients-per-gpu"
MIB = 1 << 20


def labelled(*pairs) -> NodeObject:
    """Return the node's object with these labels."""
    return NodeObject(labels=dict(pairs))


def daemon(*resources) -> dict[str, SystemFiles]:
    """Return the files of MPS daemons that serve these resources."""
    return {"nvidia": SystemFiles(names={each: f"/run/nvidia/mps/{each}/.started" for each in resources})}


def silent(**more):
    """Return a GPU with unknown compute mode and processes."""
    return gpu(None, compute_mode=None, **more)


def mode(device, *, ids=(), offered=None, objections=None, **facts) -> tuple[str, str]:
    """Return mode and isolation of the one device."""
    offered = replicas(4) if offered is None and not ids else offered
    holdings = resolve(device, held("a", *ids), offered, objections, **facts)
    (sharing,) = holdings.devices.values()
    return sharing.sharing, sharing.isolation


def counted_by(objections: Objections) -> dict[str, int]:
    """Return what this system has objected to."""
    return {reason: count for reason, count in objections.counts.items() if reason.startswith("nvidia_")}


MPS, SLICED, UNKNOWN = ("mps", "soft"), ("time-slicing", "none"), ("unknown", "")


SHARED, MIG_STRATEGY = "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb.sharing-strategy"
RENAMED = replicas(4, resource=SHARED)
FILE = {"files": daemon(GPU)}
DEFAULT, EXCLUSIVE, IDLE = (
    gpu(compute_mode="default"),
    gpu(compute_mode="exclusive_process"),
    gpu([], compute_mode=None),
)


def label(strategy, key=STRATEGY) -> dict[str, NodeObject]:
    """Return the fact that a node has a label with this strategy."""
    return {"node": labelled((key, strategy))}


# The device comes first, then the directory of the daemon, then labels; what contradicts is objected to.
DECISIONS = {
    "silent": (silent(), {}, UNKNOWN, ()),
    "silent, the daemon's file": (silent(), FILE, MPS, ()),
    "silent, a daemon of another resource": (silent(), {"files": daemon(SHARED)}, UNKNOWN, ()),
    "silent, a label": (silent(), label("mps"), MPS, ()),
    "silent, a label of time-slicing": (silent(), label("time-slicing"), SLICED, ()),
    "silent, a label of none": (silent(), label("none"), UNKNOWN, ()),
    "silent, the label of an invalid MIG layout": (silent(), label(""), UNKNOWN, ()),
    "silent, another's label": (
        silent(),
        label("mps", "nvidia.com/mig-1g.5gb.sharing-strategy"),
        UNKNOWN,
        (),
    ),
    "silent, GKE's label, another's ids": (silent(), label("mps", GKE_STRATEGY), UNKNOWN, ()),
    "silent, no labels": (silent(), {"node": labelled()}, UNKNOWN, ()),
    "silent, an unknown strategy": (silent(), label("vgpu"), UNKNOWN, ("label",)),
    "silent, file and label differ": (silent(), FILE | label("time-slicing"), MPS, ("label",)),
    # Processes without MPS clients do not rule MPS out.
    "idle": (IDLE, {}, SLICED, ()),
    "idle, the daemon's file": (IDLE, FILE, MPS, ()),
    "idle, a label": (IDLE, label("mps"), MPS, ()),
    "stale .started": (DEFAULT, FILE, SLICED, ("file",)),
    "stale label of MPS": (DEFAULT, label("mps"), SLICED, ("label",)),
    "stale label of time-slicing": (EXCLUSIVE, label("time-slicing"), MPS, ("label",)),
    "clients prove MPS": (
        gpu([process(1, kind="mps")], compute_mode="default"),
        *(label("time-slicing"), MPS, ("label",)),
    ),
    "all agree": (EXCLUSIVE, FILE | label("mps"), MPS, ()),
    # A daemon of renamed replicas has the new name in its directory, and the old one in labels.
    "renamed, its daemon": (silent(), {"offered": RENAMED, "files": daemon(SHARED)}, MPS, ()),
    "renamed, a daemon of the old name": (silent(), {"offered": RENAMED} | FILE, UNKNOWN, ()),
    "renamed, a label": (silent(), {"offered": RENAMED} | label("mps"), MPS, ()),
}


@pytest.mark.parametrize(("device", "facts", "expected", "counted"), DECISIONS.values(), ids=DECISIONS)
def test_mps_or_time_slicing(device, facts, expected, counted, objections):
    assert mode(device, objections=objections, **facts) == expected
    assert counted_by(objections) == {f"nvidia_{name}": 1 for name in counted}


def test_labels_and_files_do_not_concern_a_whole_gpu(objections):
    facts = {"files": daemon(GPU), "node": labelled((STRATEGY, "mps")), "objections": objections}
    assert mode(silent(), offered=whole(), **facts) == ("exclusive", "hard")
    assert counted_by(objections) == {}


def test_nvidias_plugin_has_no_mps_on_mig_devices(objections):
    cut = mig_gpu([mig()], compute_mode="exclusive_process")
    facts = {"files": daemon(GPU), "node": labelled((STRATEGY, "mps")), "objections": objections}
    assert mode(cut, offered=replicas(2, MIG), **facts) == ("mig-time-slicing", "none")
    assert counted_by(objections) == {"nvidia_file": 1, "nvidia_label": 1}


# GKE's daemon need not change the compute mode.
GKE = {
    "MPS in any mode": (DEFAULT, label("mps", GKE_STRATEGY), MPS),
    "time-sharing": (DEFAULT, label("time-sharing", GKE_STRATEGY), SLICED),
    "time-sharing, silent": (silent(), label("time-sharing", GKE_STRATEGY), SLICED),
    "no label": (DEFAULT, {}, SLICED),
    "no label, silent": (silent(), {}, UNKNOWN),
    "the label of another plugin": (silent(), label("mps"), UNKNOWN),
    "the compute mode": (EXCLUSIVE, {}, MPS),
}
MIG_SLICED = ("mig-time-slicing", "none")
# Unlike NVIDIA's plugin: a client on the MIG device itself proves MPS, else the label decides.
GKE_MIG = {
    "a client": ([process(1, kind="mps")], {}, MPS),
    "the label": ([], label("mps", GKE_STRATEGY), MPS),
    "the label of a node that GKE made by itself": ([], label("MPS", GKE_STRATEGY), MPS),
    "time-sharing by itself": ([], label("TIME_SHARING", GKE_STRATEGY), MIG_SLICED),
    "neither": ([process(1)], {}, MIG_SLICED),
}


@pytest.mark.parametrize(("device", "facts", "expected"), GKE.values(), ids=GKE)
def test_gke_is_known_by_its_label(device, facts, expected):
    assert mode(device, ids=[GKE_ID], offered=None, **({"node": labelled()} | facts)) == expected


@pytest.mark.parametrize(("clients", "facts", "expected"), GKE_MIG.values(), ids=GKE_MIG)
def test_gke_has_mps_on_mig_devices(clients, facts, expected, objections):
    identity = numbered(0, 0, UUID).identity
    partitioned = mig_gpu([mig(clients, gi=1)], identity=identity, compute_mode="default")
    facts = {"node": labelled(), "objections": objections} | facts
    assert mode(partitioned, ids=["nvidia0/gi1/vgpu0"], **facts) == expected
    assert counted_by(objections) == {}


@pytest.mark.parametrize(
    ("held_ids", "limit"),
    # GoogleCloudPlatform/container-engine-accelerators pkg/gpu/nvidia/manager_test.go
    [(1, 8192), (5, 40960)],
)
def test_the_memory_limit_of_gke(held_ids, limit):
    """80 GiB for ten clients: one replica has 8192 MiB, five have 40960."""
    card = numbered(0, 0, UUID, compute_mode="default")
    card = gpu(identity=card.identity, memory=memory(0, 80 * GIB), compute_mode="default")
    ids = [f"nvidia0/vgpu{place}" for place in range(held_ids)]
    labels = labelled((GKE_STRATEGY, "mps"), (GKE_REPLICAS, "10"))
    holding = only(resolve(card, held("a", *ids), None, node=labels))
    assert (holding.memory_entitled, holding.compute_entitled) == (limit * MIB, held_ids / 10)


def test_limits_are_whole_mebibytes_by_container_on_gke_and_by_client_elsewhere():
    labels = labelled((GKE_STRATEGY, "mps"), (GKE_REPLICAS, "3"), (STRATEGY, "mps"), (REPLICAS, "3"))
    card = silent(memory=memory(0, 1000 * MIB))
    ours = only(resolve(card, held("a", f"{UUID}::0", f"{UUID}::2"), None, node=labels))
    theirs = only(resolve(card, held("a", "nvidia0/vgpu0", "nvidia0/vgpu2"), None, node=labels))
    assert ours.memory_entitled == 2 * 333 * MIB
    assert theirs.memory_entitled == 666 * MIB


def test_the_label_has_the_number_of_replicas_if_the_kubelet_does_not():
    labels = labelled((REPLICAS, "4"), (STRATEGY, "time-slicing"))
    holding = only(resolve(gpu(), held("a", f"{UUID}::1"), None, node=labels))
    assert (holding.memory_entitled, holding.compute_entitled) == (4 * GIB, 0.25)
    renamed = held("a", f"{UUID}::1", resource="nvidia.com/gpu.shared")
    assert only(resolve(gpu(), renamed, None, node=labels)).compute_entitled == 0.25
    in_mig = resolve(mig_gpu([mig()]), held("a", f"{MIG}::1"), None, node=labels)
    assert only(in_mig).compute_entitled == pytest.approx(3 / 7 / 4)


def test_the_offer_of_the_kubelet_outweighs_the_label():
    labels = labelled((REPLICAS, "8"))
    assert only(resolve(gpu(), held("a", f"{UUID}::1"), replicas(4), node=labels)).compute_entitled == 0.25
    assert only(resolve(gpu(), held("a", f"{UUID}::1"), [], node=labels)).compute_entitled is None


@pytest.mark.parametrize(
    ("text", "ids", "counted"),
    [
        pytest.param("four", [f"{UUID}::0"], 1, id="no number"),
        pytest.param("٤", [f"{UUID}::0"], 1, id="other digits"),
        pytest.param("9" * 5000, [f"{UUID}::0"], 1, id="a number without end"),
        pytest.param("0", [f"{UUID}::0"], 1, id="none"),
        pytest.param("4", [f"{UUID}::4"], 1, id="a replica beyond the last"),
        pytest.param("4", [f"{UUID}::{'9' * 5000}"], 1, id="a replica without end"),
        pytest.param("4", [f"{UUID}::0", OTHER_UUID], 1, id="not all GPUs of the resource are shared"),
    ],
)
def test_a_label_that_contradicts_ids_gives_no_share(text, ids, counted, objections):
    gpus = [numbered(0, 0, UUID), numbered(1, 1)]
    holdings = resolve(gpus, held("a", *ids), None, objections, node=labelled((REPLICAS, text)))
    shares = [holding.compute_entitled for holding in holdings.holdings if holding.device.uuid == UUID]
    assert shares == [None]
    assert counted_by(objections) == {"nvidia_label": counted}


def roots(root: Path) -> Roots:
    """Return roots of which only that of MPS is looked at."""
    return roots_at(mps=root)


def started(root: Path, resource: str) -> Path:
    """Create the directories of a started daemon, and return its file."""
    for each in ("pipe", "log"):
        (root / resource / each).mkdir(parents=True)
    (root / "shm").mkdir(exist_ok=True)
    (root / ".ready").touch()
    (root / resource / ".started").touch()
    return root / resource / ".started"


def test_daemons_are_found_by_the_file_of_their_resource(tmp_path):
    """NVIDIA/k8s-device-plugin cmd/mps-control-daemon/mps/root.go: <root>/<resource>/.started."""
    path = started(tmp_path, GPU)
    started(tmp_path, "nvidia.com/gpu.shared").unlink()
    files = read_daemons(roots(tmp_path))
    assert files.names == {GPU: str(path)}
    assert files.problems == ()


def test_an_ended_daemon_does_not_count(tmp_path):
    path = started(tmp_path, GPU)
    path.unlink()
    assert read_daemons(roots(tmp_path)) == SystemFiles()


@pytest.mark.parametrize("kind", ["absent", "file", "folder", "link", "fifo", "loop"])
def test_only_a_regular_file_shows_a_daemon(tmp_path, kind):
    path = tmp_path / "mps" / GPU / ".started"
    match kind:
        case "file":
            (tmp_path / "mps").touch()
        case "folder":
            path.mkdir(parents=True)
        case "link":
            path.parent.mkdir(parents=True)
            path.symlink_to(tmp_path)
        case "fifo":
            path.parent.mkdir(parents=True)
            os.mkfifo(path)
        case "loop":
            path.parent.parent.mkdir(parents=True)
            path.parent.symlink_to(path.parent)
    files = read_daemons(roots(tmp_path / "mps"))
    assert files.names == {}
    assert bool(files.problems) == (kind == "loop")


def test_a_crowded_directory_is_read_within_bounds(tmp_path):
    for number in range(MOST * 3):
        started(tmp_path, f"x.io/r{number:04}")
    files = read_daemons(roots(tmp_path))
    assert 0 < len(files.names) <= MOST
