"""``doctor``: what can be read, what is lost, and how to mend it."""

import asyncio
import json
from dataclasses import replace

import pytest

from exporter.demo.scenario import KubeletFailure, NvmlError, catalog
from exporter.demo.scenario.catalog import dump
from tests.commands.program import nothing_here, output_of, run
from tests.dcgm_scrape.serving import page, sample, serving
from tests.hardware.amd.tree import Tree, unreadable

# What is judged, and how, on each node; what is not named is OK.
NODES = {
    "a10-mps": (0, {}),
    "a100-mig-mixed": (0, {}),
    "dra-only": (1, {"device health": "degraded"}),
    "gke": (3, {"processes": "missing", "pod names": "missing"}),
    "h100-exclusive": (0, {}),
    "hami-hygon": (0, {}),
    "cgpu": (0, {}),
    "no-gpu": (3, {"driver": "missing"}),
    "old-driver": (1, {"pod-resources": "degraded"}),
    "showcase": (0, {}),
    "t4-timeslicing": (0, {}),
}


def judged(*arguments: object) -> tuple[int, dict[str, dict[str, str]]]:
    """Return the exit code and the checks by name."""
    done = run("doctor", "--json", *arguments)
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert report["exit_code"] == done.returncode
    return done.returncode, {check["name"]: check for check in report["checks"]}


@pytest.mark.slow
@pytest.mark.parametrize("name", NODES)
def test_nodes(name: str):
    """Each node is judged as it is; what is not well says what is lost and how to mend it."""
    code, checks = judged("--scenario", name)
    expected, unwell = NODES[name]
    assert code == expected
    well = ("OK", "absent")
    assert {name: check["status"] for name, check in checks.items() if check["status"] not in well} == unwell
    for check in checks.values():
        assert check["found"]
        assert bool(check["lost"]) == bool(check["remedy"]) == (check["status"] not in well)
    assert {"driver", "pod-resources", "processes", "pod names"} <= set(checks)
    assert len([check for check in checks if check.startswith("GPU")]) >= len(catalog.load(name).gpus)


# Groups of readings that a node does not have, by what it is: nothing of it is an ailment.
LACKING = {
    "a100-mig-mixed": {"utilization", "video engines", "profiling metrics", "PCIe throughput", "vGPU"}
    | {"memory repair"},
    "h100-mixed": {"PCIe throughput", "vGPU"},
    "t4-timeslicing": {"profiling metrics", "PCIe throughput", "NVLink", "vGPU"},
    "vgpu-guest": {"profiling metrics", "PCIe throughput", "NVLink", "power and energy", "temperatures"}
    | {"ECC errors", "memory repair"},
    "mi210": {"video engines", "profiling metrics", "clock events and violations", "PCIe throughput"}
    | {"NVLink", "memory repair", "modes", "XID and other events", "vGPU"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LACKING)
def test_groups_of_readings(name: str):
    """For each group it is told whether this node gives it, and why not: what hardware has it."""
    code, checks = judged("--scenario", name)
    absent = {group for group, check in checks.items() if check["status"] == "absent"}
    # No node of these has them.
    assert absent == LACKING[name] | {"C2C", "protected memory"}
    assert code == 0
    assert all("available: " in checks[group]["found"] for group in absent)


@pytest.mark.slow
def test_a_group_that_fails_is_an_ailment(tmp_path):
    """A call that the driver denies is told with its error, on the GPU where it is; the others are well."""
    lost = catalog.load("t4-timeslicing").gpus[1].uuid
    fault = NvmlError(
        kind="nvml_error", device=lost, function="nvmlDeviceGetBAR1MemoryInfo", code="NO_PERMISSION"
    )
    code, checks = judged("--scenario", faulty(tmp_path, "t4-timeslicing", fault))
    assert code == 1
    assert checks["BAR1"]["status"] == "degraded"
    assert checks["BAR1"]["lost"] == "some or all of it on GPU 1: NoPermission"
    assert "gpuslice_nvml_errors_total" in checks["BAR1"]["remedy"]
    assert checks["memory"]["status"] == "OK"


@pytest.mark.slow
def test_text():
    """A person reads one line per check, with three more below one that is not well."""
    done = run("doctor", "--scenario", "old-driver")
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "node volta-legacy-1"
    place = next(number for number, line in enumerate(lines) if line.startswith("degraded  pod-resources"))
    below = lines[place + 1 : place + 4]
    assert [line.split(":")[0].strip() for line in below] == ["lost", "fix", "more"]
    assert below[2].endswith("/docs/troubleshooting.md#offers-unknown")
    assert output_of("doctor", "--scenario", "a10-mps").count("\nOK        GPU") == 1


def test_a_machine_without_a_gpu(tmp_path):
    """Nothing is there: each source says so, names the path and the remedy, and nothing else is claimed."""
    code, checks = judged(*nothing_here(tmp_path))
    assert code == 3
    assert {checks[name]["status"] for name in ("driver", "pod-resources", "pod names")} == {"missing"}
    assert str(tmp_path / "libnvidia-ml.so.1") in checks["driver"]["found"]
    assert "no kernel module" in checks["driver"]["found"]
    assert str(tmp_path / "kubelet/pod-resources/kubelet.sock") in checks["pod-resources"]["found"]
    assert f"{tmp_path / 'kubelet/pod-resources'} (hostPath" in checks["pod-resources"]["remedy"]
    assert str(tmp_path / "pods") in checks["pod names"]["remedy"]
    # Without the kubelet's answer it is not known which ids were given out.
    assert "device ids" not in checks


def faulty(tmp_path, name: str, *faults, **changes):
    """Write a scenario of the catalog with other faults and return its path."""
    path = tmp_path / "faulty.json"
    path.write_text(dump(replace(catalog.load(name), faults=faults, **changes)))
    return path


@pytest.mark.slow
def test_a_driver_that_shows_no_gpu(tmp_path):
    """A driver that answers and has nothing to show is a fault with a remedy as well."""
    path = faulty(tmp_path, "a10-mps", gpus=(), pods=(), host_processes=(), offers=())
    code, checks = judged("--scenario", path)
    assert (code, checks["driver"]["status"]) == (3, "missing")
    assert "0 GPUs" in checks["driver"]["found"]
    assert "NVIDIA_VISIBLE_DEVICES" in checks["driver"]["remedy"]


@pytest.mark.slow
def test_a_gpu_that_cannot_be_read_whole(tmp_path):
    """It is named with what of it is lost; the others are well."""
    lost = catalog.load("lost-gpu").gpus[2].uuid
    fault = NvmlError(kind="nvml_error", device=lost, function="nvmlDeviceGetMemoryInfo_v2", code="UNKNOWN")
    old = NvmlError(kind="nvml_error", device=lost, function="nvmlDeviceGetMemoryInfo", code="UNKNOWN")
    code, checks = judged("--scenario", faulty(tmp_path, "lost-gpu", fault, old))
    assert code == 1
    assert checks["GPU 2"]["status"] == "degraded"
    assert "memory" in checks["GPU 2"]["lost"]
    assert checks["GPU 1"]["status"] == "OK"


@pytest.mark.slow
def test_a_kubelet_that_is_away(tmp_path):
    """What is lost without it is said in words."""
    path = faulty(tmp_path, "a10-mps", KubeletFailure(kind="kubelet_down"), identity="pod_logs")
    code, checks = judged("--scenario", path)
    assert code == 3
    assert checks["pod-resources"]["status"] == "missing"
    assert "holders, slices" in checks["pod-resources"]["lost"]
    assert checks["driver"]["status"] == "OK"
    assert checks["GPU 0"]["found"].startswith("NVIDIA A10, sharing unknown, ")
    assert "device ids" not in checks


@pytest.mark.slow
def test_ids_that_match_no_device(tmp_path):
    """Ids of GPUs that this process may not see are counted by resource."""
    whole = catalog.load("h100-exclusive")
    pods = tuple(
        replace(pod, containers=tuple(replace(each, processes=()) for each in pod.containers))
        for pod in whole.pods
    )
    path = faulty(tmp_path, "h100-exclusive", gpus=whole.gpus[:5], pods=pods)
    code, checks = judged("--scenario", path)
    assert (code, checks["device ids"]["status"]) == (1, "degraded")
    assert checks["device ids"]["found"] == "2 of nvidia.com/gpu match no visible device"


@pytest.mark.slow
def test_ids_of_a_system_that_has_not_said_which_gpu():
    """No GPU is called hidden where a sharing system has not told which one it gave."""
    code, checks = judged("--scenario", "gpu-manager")
    assert (code, checks["device ids"]["status"]) == (1, "OK")
    told = "10 of tencent.com/vcuda-core, 4 of tencent.com/vcuda-memory: no source names their GPU"
    assert checks["ids without a GPU"]["found"] == told
    assert "annotations" in checks["ids without a GPU"]["remedy"]


@pytest.mark.slow
def test_an_amd_node_with_nvidias_library_is_well():
    """A library that answers and has no GPU is no fault where all GPUs are AMD's."""
    code, checks = judged("--scenario", "amd-dra")
    assert (code, checks["driver"]["status"], checks["driver"]["code"]) == (0, "absent", "no-nvidia-gpu")


@pytest.mark.slow
def test_lists_of_processes_that_the_hardware_lacks():
    """That they are missing is said where the page says it, and no right is asked for in vain."""
    code, checks = judged("--scenario", "mps-daemon")
    assert (code, checks["GPU 0"]["status"]) == (0, "OK")
    assert checks["processes"]["code"] == "process-lists-not-here"


@pytest.mark.slow
def test_lists_of_processes_that_confidential_computing_empties():
    """Nothing can be mended: it is said what is unknown, and why."""
    code, checks = judged("--scenario", "confidential")
    assert (code, checks["GPU 0"]["status"], checks["GPU 1"]["status"]) == (0, "OK", "OK")
    assert checks["processes"]["code"] == "process-lists-not-here"
    assert "confidential computing" in checks["processes"]["found"]


@pytest.mark.slow
def test_partitions_that_kfd_does_not_tell(tmp_path):
    """They are no partitions that are well; what mends it is AMD's remedy."""
    tree = Tree(tmp_path)
    tree.partitions(8)
    for number in range(3, 9):
        unreadable(tree.kfd / f"topology/nodes/{number}/gpu_id")
    _, checks = judged(*nothing_here(tmp_path))
    assert "driver" not in checks
    check = checks["GPU 0 partitions"]
    assert (check["status"], check["found"]) == ("degraded", "2 partitions listed, there may be more")
    assert "deploy/components/amd" in check["remedy"]


@pytest.mark.slow
def test_a_suspended_gpu_says_why(tmp_path):
    """What is lost of it is lost for a reason."""
    tree = Tree(tmp_path)
    tree.card(power__runtime_status="suspended")
    _, checks = judged(*nothing_here(tmp_path))
    assert "suspended" in checks["GPU 0"]["found"]


@pytest.mark.slow
@pytest.mark.parametrize(("pci_class", "missed"), [("0x030200", True), ("0x040300", False)])
def test_nvidia_without_driver_beside_amd(tmp_path, pci_class: str, missed: bool):
    """Graphics of an AMD processor do not hide a GPU of NVIDIA's without driver; its sound is no GPU."""
    tree = Tree(tmp_path)
    tree.card()
    tree.write("bus/pci/devices/0000:2b:00.0/vendor", "0x10de")
    tree.write("bus/pci/devices/0000:2b:00.0/class", pci_class)
    _, checks = judged(*nothing_here(tmp_path))
    assert checks["amdgpu"]["found"].startswith("1 AMD GPU in")
    assert ("driver" in checks) == missed


@pytest.mark.slow
async def test_a_dcgm_exporter_is_told_of_without_its_password():
    """A report is handed on to others."""
    async with serving(page(sample("SM_ACTIVE", 0.5))) as url:
        secret = url.replace("//", "//me:secret@")
        _, checks = await asyncio.to_thread(judged, "--scenario", "a10-mps", "--dcgm-exporter-url", secret)
    assert checks["dcgm-exporter"]["status"] == "OK"
    assert not [check for check in checks.values() if "secret" in str(check)]
