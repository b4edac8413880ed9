"""``doctor``: its two forms, and nodes of the catalog with what each lacks."""

import asyncio
import json
from functools import cache

import pytest

from exporter.demo.scenario import catalog
from exporter.doctor import Report
from tests.core.commands.doctor_bench import FINDINGS, first_report
from tests.core.commands.program import nothing_here, output_of, run
from tests.core.dcgm_scrape.serving import page, sample, serving
from tests.core.hardware.amd.tree import Tree

WELL = ("OK", "absent")
# Nodes of the catalog with a fault, and its code.
UNWELL = {
    "dra-only": {"device-unhealthy"},
    "elastic-gpu": {"ids-unplaced"},
    "gb200-nvl72": {"gpu-unhealthy"},
    "gke": {"host-pid-missing", "pod-names-missing"},
    "gpu-manager": {"ids-unplaced"},
    "l40s": {"gpu-unhealthy"},
    "memory-limits": {"host-pid-missing", "limit-above", "reservation-left"},
    # The driver is asked about limits from the second poll on.
    "memory-limits-misc": {"outside-mps"},
    "no-gpu": {"driver-not-loaded"},
    "old-driver": {"offers-unknown"},
    "sick-gpus": {"gpu-unhealthy"},
    "unknown-dra": {"claims-unknown"},
    "volcano-gpushare": {"ids-unplaced"},
}
# Groups of readings that the hardware of a node does not have. No node of these has GROUPS_OF_FEW.
LACKING = {
    "a100-mig-mixed": {"utilization", "video engines", "memory repair", "vGPU"},
    "t4-timeslicing": {"NVLink", "vGPU"},
    "vgpu-guest": {"NVLink", "power and energy", "temperatures", "ECC errors", "memory repair"},
    "mi210": {"video engines", "clock events and violations", "NVLink", "memory repair", "modes"}
    | {"XID and other events", "vGPU"},
}
# The first poll has no value of a profiling metric yet.
GROUPS_OF_FEW = {"accounting", "C2C", "protected memory", "PCIe throughput", "profiling metrics"}
FEW = [
    *sorted(UNWELL.keys() - {"elastic-gpu"}),
    *LACKING,
    "amd-dra",
    "confidential",
    "hami-hygon",
    "mps-daemon",
]
# Checks of lists of processes that the hardware does not have: no right is recommended.
NO_LISTS = ("mps-daemon", "confidential")


@cache
def report_of(name: str) -> Report:
    """Examine a node of the catalog at its beginning."""
    return asyncio.run(first_report(catalog.load(name)))


def judged(*arguments: object) -> tuple[int, dict[str, dict[str, str]]]:
    """Return the exit code and the checks by name."""
    done = run("doctor", "--json", *arguments)
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert report["exit_code"] == done.returncode
    return done.returncode, {check["name"]: check for check in report["checks"]}


def assert_well_but_for_its_faults(name: str) -> None:
    """Assert that a node has just the expected findings, and each check that is not OK a code."""
    report = report_of(name)
    found = {check.code for check in report.checks if check.status not in WELL}
    assert found == UNWELL.get(name, set())
    assert bool(report.exit_code) == bool(found)
    for check in report.checks:
        assert check.found
        assert bool(check.lost) == bool(check.remedy) == (check.status not in WELL)
        assert bool(check.code) == (check.status != "OK"), check
        assert check.status == "OK" or FINDINGS[check.code].status == check.status
        assert check.url.endswith(f"/docs/troubleshooting.md#{check.code}" if check.code else "")
    names = [check.name for check in report.checks]
    assert len([check for check in names if check.startswith("GPU")]) >= len(catalog.load(name).gpus)


@pytest.mark.parametrize("name", FEW)
def test_a_node_has_the_findings_of_its_faults(name: str) -> None:
    assert_well_but_for_its_faults(name)


@pytest.mark.slow
def test_every_node_of_the_catalog_has_the_findings_of_its_faults() -> None:
    for name in catalog.names():
        assert_well_but_for_its_faults(name)


@pytest.mark.parametrize("name", LACKING)
def test_groups_of_readings_that_the_hardware_lacks_are_absent(name: str) -> None:
    """Each says which hardware has it."""
    absent = {check.name: check for check in report_of(name).checks if check.status == "absent"}
    assert absent.keys() == LACKING[name] | GROUPS_OF_FEW
    assert all("available: " in check.found for check in absent.values())


@pytest.mark.parametrize("name", NO_LISTS)
def test_lists_of_processes_that_the_hardware_lacks_are_absent(name: str) -> None:
    checks = {check.name: check for check in report_of(name).checks}
    assert checks["processes"].code == "process-lists-not-here"
    assert checks["GPU 0"].status == "OK"
    assert ("confidential computing" in checks["processes"].found) == (name == "confidential")


def test_ids_without_a_gpu_are_counted_by_resource() -> None:
    """They are not counted as GPUs that are hidden from the exporter."""
    checks = {check.name: check for check in report_of("gpu-manager").checks}
    assert checks["device ids"].status == "OK"
    counts = "10 of tencent.com/vcuda-core, 4 of tencent.com/vcuda-memory: no source names their GPU"
    assert checks["ids without a GPU"].found == counts
    assert "annotations" in checks["ids without a GPU"].remedy


def test_the_driver_of_nvidia_is_absent_on_a_node_with_amd_gpus_only() -> None:
    (driver,) = [check for check in report_of("amd-dra").checks if check.name == "driver"]
    assert (driver.status, driver.code) == ("absent", "no-nvidia-gpu")


@pytest.mark.slow
def test_a_profiling_metric_is_ok_after_two_polls() -> None:
    code, checks = judged("--scenario", "h100-mixed")
    assert (code, checks["profiling metrics"]["status"]) == (0, "OK")


def test_text_has_a_line_for_each_check_and_three_below_a_fault() -> None:
    done = run("doctor", "--scenario", "old-driver")
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "node volta-legacy-1"
    place = next(number for number, line in enumerate(lines) if line.startswith("degraded  pod-resources"))
    below = lines[place + 1 : place + 4]
    assert [line.split(":")[0].strip() for line in below] == ["lost", "fix", "more"]
    assert below[2].endswith("/docs/troubleshooting.md#offers-unknown")
    assert output_of("doctor", "--scenario", "a10-mps").count("\nOK        GPU") == 1


def test_on_a_machine_without_a_gpu_each_source_names_its_path(tmp_path) -> None:
    code, checks = judged(*nothing_here(tmp_path))
    assert code == 3
    assert {checks[name]["status"] for name in ("driver", "pod-resources", "pod names")} == {"missing"}
    assert str(tmp_path / "libnvidia-ml.so.1") in checks["driver"]["found"]
    assert "no kernel module" in checks["driver"]["found"]
    assert str(tmp_path / "kubelet/pod-resources/kubelet.sock") in checks["pod-resources"]["found"]
    assert f"{tmp_path / 'kubelet/pod-resources'} (hostPath" in checks["pod-resources"]["remedy"]
    assert str(tmp_path / "pods") in checks["pod names"]["remedy"]
    # The allocated ids are unknown.
    assert "device ids" not in checks


@pytest.mark.parametrize(("pci_class", "missed"), [("0x030200", True), ("0x040300", False)])
def test_an_amd_gpu_does_not_hide_an_nvidia_gpu_without_driver(
    tmp_path, pci_class: str, missed: bool
) -> None:
    """The sound function of an NVIDIA card is not a GPU."""
    tree = Tree(tmp_path)
    tree.card()
    tree.write("bus/pci/devices/0000:2b:00.0/vendor", "0x10de")
    tree.write("bus/pci/devices/0000:2b:00.0/class", pci_class)
    _, checks = judged(*nothing_here(tmp_path))
    assert checks["amdgpu"]["found"].startswith("1 AMD GPU in")
    assert ("driver" in checks) == missed


async def test_the_password_of_a_dcgm_exporter_is_not_reported() -> None:
    async with serving(page(sample("SM_ACTIVE", 0.5))) as url:
        secret = url.replace("//", "//me:secret@")
        _, checks = await asyncio.to_thread(judged, "--scenario", "a10-mps", "--dcgm-exporter-url", secret)
    assert checks["dcgm-exporter"]["status"] == "OK"
    assert not [check for check in checks.values() if "secret" in str(check)]
