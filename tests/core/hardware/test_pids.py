"""Whose the driver's pids are: on a node that is itself a container, the machine's mean other processes."""

import pytest

from exporter.model import DriverInfo, GpuReading
from exporter.model.poll_result import OTHER_PIDS
from exporter.nvml.readings.gpu_processes import ListTrust, list_trust
from tests.core.hardware.making import LARGE, Driver, gpu, process


def read(version: str, *, machine: bool, cut: bool = False) -> GpuReading:
    """Read a GPU with a busy process, whole or cut, by a driver of that version."""
    node = {"name": "n", "driver_version": version, "nvml_version": "12", "cuda_version": 12000}
    running = process(41, "MIG-large" if cut else "GPU-a", load={"high": 80})
    driver = Driver(gpu("a", LARGE) if cut else gpu("a"), node=node, host_processes=[running])
    driver.configure(machine_pids=lambda: machine)
    driver.sweep()
    driver.advance(5)
    return driver.read()


@pytest.mark.parametrize(
    ("version", "lists", "samples"),
    [("525.105.17", False, False), ("550.90.07", True, False), ("570.124.06", True, True)],
)
def test_host_pids_of_older_drivers_are_discarded_in_a_container_node(version, lists, samples):
    """Readings of the GPU itself stay."""
    reading = read(version, machine=False)
    assert (reading.processes is not None, reading.process_utilization is not None) == (lists, samples)
    assert reading.withheld.get("processes") == (None if lists and samples else OTHER_PIDS)
    assert "utilization" not in reading.withheld
    assert (reading.up, reading.utilization_percent) == (True, 80)
    [mig] = read(version, machine=False, cut=True).mig
    assert (mig.processes is not None, mig.memory is not None) == (lists, True)


@pytest.mark.parametrize("version", ["470.129.06", "525.105.17", "550.90.07"])
def test_host_pids_are_used_in_the_pid_namespace_of_the_host(version):
    reading = read(version, machine=True)
    assert ([one.pid for one in reading.processes], reading.process_utilization) == ([41], {41: 80})
    assert OTHER_PIDS not in reading.withheld.values()


@pytest.mark.parametrize("version", [None, "", "unknown", ".1", "²"])
def test_without_a_driver_version_pids_are_not_trusted(version):
    driver = DriverInfo(driver_version=version)
    assert list_trust(driver, machine=False, mode_failed=False) == ListTrust(
        lists=False, samples=False, accounts=False
    )
    assert list_trust(driver, machine=True, mode_failed=False) == ListTrust()
