"""The groups of hardware readings: what is given or missing together, and which GPUs have it.

A family and the driver's calls behind it carry the name of their group, so that the reference page, the
doctor and the cost of reading all speak of the same thing.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Group(NamedTuple):
    """What a group is called, and where it is to be had, as one phrase each."""

    title: str
    where: str


GROUPS: Mapping[str, Group] = {
    "core": Group("presence and identity", "every GPU"),
    "memory": Group("frame buffer", "every GPU; a MIG-enabled GPU only with the right to monitor MIG"),
    "bar1": Group("BAR1", "every GPU, MIG devices too; a MIG-enabled GPU only with the right to monitor MIG"),
    "utilization": Group("utilization", "every GPU without MIG; AMD"),
    "engines": Group("video engines", "GPUs without MIG that have the engine; JPEG and OFA from Turing on"),
    "processes": Group("processes", "every GPU and MIG device, with the host's pid namespace"),
    "profiling": Group(
        "profiling meters",
        "Hopper and later, MIG devices too (GPM), cycles by driver; others with --dcgm-exporter-url",
    ),
    "power": Group(
        "power and energy", "every GPU; energy from Volta on; averages from Ampere on, but for A100 and A30"
    ),
    "thermal": Group("temperatures", "every GPU; memory on boards with HBM; margins from Ada on"),
    "clocks": Group("clocks", "every GPU"),
    "throttling": Group("clock events and violations", "every NVIDIA GPU; times by driver"),
    "pcie": Group("PCIe", "every GPU outside a vGPU guest; bytes where the driver's counter does not wrap"),
    "pcie_throughput": Group("PCIe throughput", "on request: --pcie-throughput on (20 ms per direction)"),
    "nvlink": Group("NVLink", "GPUs with NVLink"),
    "ecc": Group("ECC errors", "data-center GPUs with ECC; not on MIG devices"),
    "repairs": Group(
        "repairs of memory", "rows from Ampere on, not while cut; pages before; action by driver"
    ),
    "modes": Group("modes", "every NVIDIA GPU"),
    "events": Group("XID and other events", "every NVIDIA GPU whose events can be waited for"),
    "vgpu": Group("vGPU", "hosts with the vGPU manager, and their guests"),
    "topology": Group("topology", "every GPU"),
    "sharing": Group("holders and slices", "every GPU, with the kubelet's pod-resources socket"),
}
"""By the name that families and calls carry."""
