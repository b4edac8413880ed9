"""MPS or time-slicing: by the device, the daemon's directory or the node's labels, in this order."""

import os
from pathlib import Path

import pytest

from exporter.model import NodeObject, SystemFiles
from exporter.sharing.base import Roots
from exporter.sharing.base.view import Objections
from exporter.sharing.nvidia_strategy import MOST, read_daemons
from tests.attribution.build import GIB, MIG, UUID, gpu, held, memory, mig, mig_gpu, process, replicas, whole
from tests.sharing.build import OTHER_UUID, numbered, only, resolve, roots_at

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


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param({}, UNKNOWN, id="nothing decides it"),
        pytest.param({"files": daemon(GPU)}, MPS, id="the daemon's file"),
        pytest.param({"files": daemon("nvidia.com/gpu.shared")}, UNKNOWN, id="a daemon of another resource"),
        pytest.param({"node": labelled((STRATEGY, "mps"))}, MPS, id="a label"),
        pytest.param({"node": labelled((STRATEGY, "time-slicing"))}, SLICED, id="a label of time-slicing"),
        pytest.param({"node": labelled((STRATEGY, "none"))}, UNKNOWN, id="a label that says nothing"),
        pytest.param({"node": labelled((STRATEGY, ""))}, UNKNOWN, id="an invalid MIG layout's label"),
        pytest.param(
            {"node": labelled(("nvidia.com/mig-1g.5gb.sharing-strategy", "mps"))},
            UNKNOWN,
            id="another's label",
        ),
        pytest.param({"node": labelled((GKE_STRATEGY, "mps"))}, UNKNOWN, id="GKE's label, another's ids"),
        pytest.param({"node": labelled()}, UNKNOWN, id="no labels"),
    ],
)
def test_files_and_labels_decide_for_a_silent_device(facts, expected):
    assert mode(silent(), **facts) == expected


def test_renamed_replicas_have_a_daemon_of_their_own_and_the_old_label():
    """The plugin's directory has the new name, its labels keep the old one."""
    shared = replicas(4, resource="nvidia.com/gpu.shared")
    assert mode(silent(), offered=shared, files=daemon("nvidia.com/gpu.shared")) == MPS
    assert mode(silent(), offered=shared, files=daemon(GPU)) == UNKNOWN
    assert mode(silent(), offered=shared, node=labelled((STRATEGY, "mps"))) == MPS


def test_processes_without_clients_do_not_rule_out_mps():
    idle = gpu([], compute_mode=None)
    assert mode(idle) == SLICED
    assert mode(idle, files=daemon(GPU)) == MPS
    assert mode(idle, node=labelled((STRATEGY, "mps"))) == MPS


@pytest.mark.parametrize(
    ("device", "facts", "expected", "counted"),
    [
        pytest.param(
            gpu(compute_mode="default"),
            {"files": daemon(GPU)},
            SLICED,
            {"nvidia_file": 1},
            id="stale .started",
        ),
        pytest.param(
            gpu(compute_mode="default"),
            {"node": labelled((STRATEGY, "mps"))},
            SLICED,
            {"nvidia_label": 1},
            id="stale label of MPS",
        ),
        pytest.param(
            gpu(compute_mode="exclusive_process"),
            {"node": labelled((STRATEGY, "time-slicing"))},
            MPS,
            {"nvidia_label": 1},
            id="stale label of time-slicing",
        ),
        pytest.param(
            gpu([process(1, kind="mps")], compute_mode="default"),
            {"node": labelled((STRATEGY, "time-slicing"))},
            MPS,
            {"nvidia_label": 1},
            id="clients prove MPS",
        ),
        pytest.param(
            silent(),
            {"files": daemon(GPU), "node": labelled((STRATEGY, "time-slicing"))},
            MPS,
            {"nvidia_label": 1},
            id="the directory comes before the label",
        ),
        pytest.param(
            silent(), {"node": labelled((STRATEGY, "vgpu"))}, UNKNOWN, {"nvidia_label": 1}, id="no strategy"
        ),
        pytest.param(
            gpu(compute_mode="exclusive_process"),
            {"files": daemon(GPU), "node": labelled((STRATEGY, "mps"))},
            MPS,
            {},
            id="all agree",
        ),
    ],
)
def test_contradictions_are_decided_by_the_device_and_counted(device, facts, expected, counted, objections):
    assert mode(device, objections=objections, **facts) == expected
    assert counted_by(objections) == counted


def test_labels_and_files_do_not_concern_a_whole_gpu(objections):
    facts = {"files": daemon(GPU), "node": labelled((STRATEGY, "mps")), "objections": objections}
    assert mode(silent(), offered=whole(), **facts) == ("exclusive", "hard")
    assert counted_by(objections) == {}


def test_nvidias_plugin_has_no_mps_on_mig_devices(objections):
    cut = mig_gpu([mig()], compute_mode="exclusive_process")
    facts = {"files": daemon(GPU), "node": labelled((STRATEGY, "mps")), "objections": objections}
    assert mode(cut, offered=replicas(2, MIG), **facts) == ("mig-time-slicing", "none")
    assert counted_by(objections) == {"nvidia_file": 1, "nvidia_label": 1}


@pytest.mark.parametrize(
    ("device", "labels", "expected"),
    [
        pytest.param(gpu(compute_mode="default"), [(GKE_STRATEGY, "mps")], MPS, id="MPS in any mode"),
        pytest.param(
            gpu(compute_mode="default"), [(GKE_STRATEGY, "time-sharing")], SLICED, id="time-sharing"
        ),
        pytest.param(silent(), [(GKE_STRATEGY, "time-sharing")], SLICED, id="time-sharing, silent"),
        pytest.param(gpu(compute_mode="default"), [], SLICED, id="no label"),
        pytest.param(silent(), [], UNKNOWN, id="no label, silent"),
        pytest.param(silent(), [(STRATEGY, "mps")], UNKNOWN, id="the label of another plugin"),
        pytest.param(gpu(compute_mode="exclusive_process"), [], MPS, id="the compute mode"),
    ],
)
def test_gke_is_known_by_its_label(device, labels, expected):
    """GKE's daemon need not change the compute mode, so that the default mode rules nothing out there."""
    assert mode(device, ids=[GKE_ID], offered=None, node=labelled(*labels)) == expected


@pytest.mark.parametrize(
    ("clients", "labels", "expected"),
    [
        pytest.param([process(1, kind="mps")], [], MPS, id="a client"),
        pytest.param([], [(GKE_STRATEGY, "mps")], MPS, id="the label"),
        pytest.param([], [(GKE_STRATEGY, "MPS")], MPS, id="the label of a node that GKE made by itself"),
        pytest.param(
            [], [(GKE_STRATEGY, "TIME_SHARING")], ("mig-time-slicing", "none"), id="time-sharing by itself"
        ),
        pytest.param([process(1)], [], ("mig-time-slicing", "none"), id="nothing says MPS"),
    ],
)
def test_gke_has_mps_on_mig_devices(clients, labels, expected, objections):
    identity = numbered(0, 0, UUID).identity
    cut = mig_gpu([mig(clients, gi=1)], identity=identity, compute_mode="default")
    found = mode(cut, ids=["nvidia0/gi1/vgpu0"], node=labelled(*labels), objections=objections)
    assert (found, counted_by(objections)) == (expected, {})


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
