"""vGPUs that KubeVirt gives to virtual machines: who holds what of which GPU."""

import re
from pathlib import Path

import pytest

from exporter.model import (
    Allocation,
    ContainerRef,
    DeviceKey,
    DeviceSharing,
    GpuIdentity,
    GpuReading,
    Holding,
    Holdings,
    HostDevices,
    Meter,
    OfferedDevice,
    SliceCount,
    VgpuReading,
)
from exporter.sharing import resolve_holdings
from exporter.sharing.base.view import NodeFacts
from exporter.sharing.kubevirt import host_devices, vgpu_rows
from tests.core.attribution.build import GIB, MIG, UUID, gpu, held, mig, mig_gpu, whole
from tests.core.sharing.build import OTHER_UUID, allocations, by, container, only, rows

TYPE = "nvidia.com/NVIDIA_A40-12Q"
A = "c73f1fa6-489e-4834-9476-d70dabd98c40"
B = "3b356d38-854e-48be-b376-00c72c7d119c"
C = "5f2b6f1d-91cf-4f7e-9a7d-6d1a3e2c8b55"
BARE = UUID.removeprefix("GPU-")
KEY, OTHER = DeviceKey(UUID), DeviceKey(OTHER_UUID)
HARD = DeviceSharing(sharing="vgpu", isolation="hard")


def vgpu(mdev: str | None = A, uuid: str = "vgpu-a", **more) -> VgpuReading:
    """Return a vGPU of 12 GiB that uses 3 GiB and a fifth of the GPU's time."""
    values = {"memory_total": 12 * GIB, "memory_used": 3 * GIB, "sm_percent": 20}
    return VgpuReading(uuid=uuid, mdev_uuid=mdev, **(values | more))


def host(*vgpus: VgpuReading, uuid: str = UUID, index: int = 0, address: str = "00000000:3B:00.0", **more):
    """Return a GPU that hosts these vGPUs."""
    identity = GpuIdentity(uuid=uuid, index=index, minor=index, model="A40", pci_bus_id=address)
    return gpu((), uuid=uuid, identity=identity, virtualization="vgpu_host", vgpus=vgpus, **more)


def machine(pod: str, *ids: str, resource: str = TYPE) -> list[Allocation]:
    """Return what the launcher of a virtual machine holds."""
    return held(pod, *ids, container="compute", resource=resource)


def offers(*ids: str, resource: str = TYPE) -> list[OfferedDevice]:
    """Return what the plugin offers."""
    return [OfferedDevice(resource, device_id) for device_id in ids]


def resolve(gpus, allocated=(), offered=(), found: HostDevices | None = None, patterns=()) -> Holdings:
    """Return the holdings of one node."""
    gpus = gpus if isinstance(gpus, list) else [gpus]
    facts = NodeFacts(host=found or HostDevices(), patterns=tuple(patterns))
    return resolve_holdings(gpus, allocations(allocated, offered), facts)


def test_a_machine_is_entitled_to_the_frame_buffer_of_its_vgpu():
    """What it may fill, what it fills and computes as the driver meters it; no share of compute is due."""
    holdings = resolve(host(vgpu()), machine("vm", A), offers(A))
    assert only(holdings) == Holding(
        holder=container("vm", "compute"),
        device=KEY,
        resource=TYPE,
        slices=1,
        memory_entitled=12 * GIB,
        compute_entitled=None,
        meter=Meter(source="vgpu", memory=3 * GIB, compute=0.2),
        sharing="vgpu",
        isolation="hard",
    )
    slices = (SliceCount(TYPE, 1, 1),)
    assert holdings.devices == {KEY: DeviceSharing(sharing="vgpu", isolation="hard", slices=slices)}
    assert holdings.unresolved == {}


@pytest.mark.parametrize("device_id", [A, A.upper(), "VGPU-A"])
def test_a_vgpu_is_found_by_either_of_its_names_in_any_case(device_id: str):
    assert only(resolve(host(vgpu(A.upper())), machine("vm", device_id))).device == KEY


def test_machines_on_one_gpu_have_their_own_figures():
    node = host(vgpu(), vgpu(B, "vgpu-b", memory_used=GIB, sm_percent=0), vgpu(C, "vgpu-c"))
    holdings = resolve(node, machine("one", A) + machine("two", B), offers(A, B))
    assert by(holdings, "holder.pod", "meter") == {
        "one": Meter(source="vgpu", memory=3 * GIB, compute=0.2),
        "two": Meter(source="vgpu", memory=GIB, compute=0.0),
    }


def test_two_vgpus_of_one_machine_add_up():
    node = host(vgpu(), vgpu(B, "vgpu-b"))
    both = only(resolve(node, machine("vm", A, B)))
    assert (both.slices, both.memory_entitled) == (2, 24 * GIB)
    assert both.meter == Meter(source="vgpu", memory=6 * GIB, compute=0.4)
    node = host(vgpu(), vgpu(B, "vgpu-b", memory_used=None))
    part = only(resolve(node, machine("vm", A, B)))
    assert part.memory_entitled == 24 * GIB
    assert part.meter == Meter(source="vgpu", memory=None, compute=0.4)


def test_a_machine_with_vgpus_of_two_gpus_holds_both():
    node = [host(vgpu()), host(vgpu(B, "b", memory_total=GIB), uuid=OTHER_UUID, index=1, address="0:5E:00.0")]
    holdings = resolve(node, machine("vm", A, B))
    assert set(rows(holdings, "device", "slices", "memory_entitled")) == {(KEY, 1, 12 * GIB), (OTHER, 1, GIB)}


def test_unmetered_use_is_unknown():
    node = host(vgpu(memory_total=None, memory_used=None, sm_percent=None))
    holding = only(resolve(node, machine("vm", A)))
    assert (holding.memory_entitled, holding.meter) == (None, Meter(source="vgpu"))


def test_a_machine_that_has_not_started_is_on_the_gpu_of_the_kernel():
    kernel = HostDevices(vgpus={B: "0000:3b:00.0"})
    holdings = resolve(host(vgpu()), machine("new", B), offers(A, B), kernel)
    assert only(holdings) == Holding(
        holder=container("new", "compute"),
        device=KEY,
        resource=TYPE,
        slices=1,
        memory_entitled=None,
        compute_entitled=None,
        meter=Meter(source="vgpu"),
        sharing="vgpu",
        isolation="hard",
    )
    assert holdings.devices[KEY].slices == (SliceCount(TYPE, 2, 1),)


def test_the_driver_outweighs_the_kernel():
    node = [host(vgpu()), host(uuid=OTHER_UUID, index=1, address="00000000:5E:00.0")]
    kernel = HostDevices(vgpus={A: "0000:5e:00.0"})
    assert only(resolve(node, machine("vm", A), found=kernel)).device == KEY


def test_a_lost_gpu_keeps_its_machines():
    """The kernel still knows them."""
    lost = GpuReading(identity=host().identity, up=False)
    kernel = HostDevices(vgpus={A: "0000:3b:00.0"})
    holdings = resolve(lost, machine("vm", A), offers(A), kernel)
    assert (only(holdings).device, only(holdings).meter) == (KEY, Meter(source="vgpu"))
    assert holdings.devices[KEY].sharing == "vgpu"


def test_an_unknown_mediated_device_is_unresolved():
    holdings = resolve(host(vgpu()), machine("vm", B))
    assert holdings.unresolved == {TYPE: 1}
    assert holdings.unresolved_holders == {container("vm", "compute")}
    assert not holdings.holdings


def test_offers_without_a_place_leave_the_number_unknown():
    holdings = resolve(host(vgpu()), machine("vm", A), offers(A, B, C))
    assert holdings.devices[KEY].slices == (SliceCount(TYPE, None, 1),)
    holdings = resolve(host(vgpu()), machine("vm", A), None)
    assert holdings.devices[KEY].slices == (SliceCount(TYPE, None, 1),)


def test_an_idle_host_is_in_vgpu_mode():
    assert resolve(host()).devices == {KEY: HARD}
    assert resolve(host(), offered=whole()).devices[KEY].sharing == "exclusive"
    assert resolve(gpu((), virtualization="vgpu_guest")).devices[KEY].sharing == "none"


def test_a_kubelet_that_never_answered_says_nothing():
    holdings = resolve_holdings([host(vgpu())], None)
    assert (holdings.known, holdings.devices) == (False, {KEY: DeviceSharing()})


def test_the_device_that_exists_decides_what_a_bare_uuid_is():
    """Renamed plugins may leave the GPU- away."""
    resource = "nvidia.com/renamed"
    holdings = resolve(
        host(vgpu()), held("job", BARE, resource=resource) + machine("vm", A, resource=resource)
    )
    assert set(rows(holdings, "holder.pod", "device")) == {("job", KEY), ("vm", KEY)}
    assert holdings.unresolved == {}


@pytest.mark.parametrize(
    ("resource", "device_id"),
    [
        ("intel.com/gpu", A),
        ("example.com/NVIDIA_A40-12Q", A),
        (TYPE, f"{A}-0"),
        (TYPE, f"{A}::0"),
        ("nvidia.com/hostdev", "0000:3b:00.2"),
    ],
)
def test_other_systems_ids_are_left_alone(resource: str, device_id: str):
    holdings = resolve(host(vgpu()), held("other", device_id, resource=resource))
    assert not holdings.holdings
    assert holdings.unresolved == {}


def test_a_pattern_for_nvidias_plugin_takes_no_vgpu_away():
    """An operator may name all of nvidia.com; an id is counted once."""
    patterns = [re.compile(r"nvidia\.com/.*")]
    holdings = resolve(host(vgpu()), machine("vm", A) + machine("new", B), patterns=patterns)
    assert only(holdings).meter is not None
    assert holdings.unresolved == {TYPE: 1}


def test_a_gpu_that_is_passed_through_is_unresolved():
    kernel = HostDevices(passed_through=frozenset({"0000:86:00.0"}))
    allocated = machine("vm", "0000:86:00.0", resource="nvidia.com/GA102GL_A40")
    holdings = resolve(host(), allocated, found=kernel)
    assert holdings.unresolved == {"nvidia.com/GA102GL_A40": 1}
    assert holdings.unresolved_holders == {container("vm", "compute")}


def test_a_vgpu_with_a_gpu_instance_of_its_own():
    """It holds the MIG device: also its compute is the machine's alone."""
    node = mig_gpu([mig(gi=1), mig(uuid="MIG-2", gi=2)], vgpus=(vgpu(gi=2, sm_percent=None),))
    holdings = resolve(node, machine("vm", A), offers(A))
    holding = only(holdings)
    assert holding.device == DeviceKey(UUID, "MIG-2")
    assert (holding.memory_entitled, holding.compute_entitled) == (12 * GIB, 3 / 7)
    assert holding.meter == Meter(source="vgpu", memory=3 * GIB, compute=None)
    assert holdings.devices[holding.device].sharing == "vgpu"
    assert holdings.devices[DeviceKey(UUID, MIG)].sharing == "mig"


def test_vgpus_that_take_turns_on_a_gpu_instance():
    node = mig_gpu([mig(gi=1)], vgpus=(vgpu(gi=1), vgpu(B, "vgpu-b", gi=1)))
    assert only(resolve(node, machine("vm", A))).compute_entitled is None
    assert only(resolve(node, machine("vm", A, B))).compute_entitled == 3 / 7


def test_an_ambiguous_instance_is_unresolved():
    shared = [mig(gi=1), mig(uuid="MIG-2", gi=1, ci=1)]
    for instances in (shared, [mig(gi=5)], []):
        holdings = resolve(mig_gpu(instances, vgpus=(vgpu(gi=1),)), machine("vm", A))
        assert not holdings.holdings
        assert holdings.unresolved == {TYPE: 1}


def test_every_vgpu_has_a_row_with_its_holder():
    """In the order of the GPUs; a machine outside Kubernetes has no holder."""
    node = [host(vgpu(B, "vgpu-b"), uuid=OTHER_UUID, index=1), host(vgpu(), vgpu(C, "vgpu-c")), gpu()]
    rows = vgpu_rows(node, allocations(machine("one", A.upper()) + machine("two", B)))
    assert [(row.uuid, row.reading.uuid, row.holder) for row in rows] == [
        (UUID, "vgpu-a", ContainerRef("ml", "one", "compute")),
        (UUID, "vgpu-c", None),
        (OTHER_UUID, "vgpu-b", ContainerRef("ml", "two", "compute")),
    ]


def test_a_vgpu_without_a_known_holder():
    """The kubelet is silent, another vendor's id looks the same, or one machine follows another."""
    node = [host(vgpu())]
    assert vgpu_rows(node, None)[0].holder is None
    assert vgpu_rows(node, allocations(held("x", A, resource="intel.com/gpu")))[0].holder is None
    assert vgpu_rows(node, allocations(machine("old", A) + machine("new", A)))[0].holder is None


class Sysfs:
    """The devices of a machine as the kernel shows them, below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def mdev(self, mdev: str, *path: str) -> Path:
        """Make a mediated device below the last of these PCI devices."""
        device = self.root.joinpath("devices", *path, mdev)
        device.mkdir(parents=True)
        link = self.root / "bus/mdev/devices" / mdev
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(device)
        return device.parent

    def pci(self, address: str, vendor: str, driver: str) -> None:
        """Make a PCI device that a driver has."""
        device = self.root / "bus/pci/devices" / address
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        target = self.root / "bus/pci/drivers" / driver
        target.mkdir(parents=True, exist_ok=True)
        (device / "driver").symlink_to(target)


def test_the_kernel_names_the_gpu_of_a_mediated_device(tmp_path: Path):
    sysfs = Sysfs(tmp_path)
    sysfs.mdev(A, "pci0000:3a", "0000:3a:00.0", "0000:3B:00.0")
    function = sysfs.mdev(B, "pci0000:5d", "0000:5e:00.4")
    physical = tmp_path / "devices/pci0000:5d/0000:5e:00.0"
    physical.mkdir()
    (function / "physfn").symlink_to(physical)
    sysfs.mdev(C, "virtual", "mtty")
    devices = host_devices(tmp_path, allocations(machine("vm", A.upper(), B, C), offers(B)))
    assert devices.vgpus == {A: "0000:3b:00.0", B: "0000:5e:00.0"}


def test_the_kernel_names_the_gpu_of_a_virtual_function(tmp_path: Path):
    sysfs = Sysfs(tmp_path)
    sysfs.pci("0000:b1:00.0", "0x10de", "nvidia")
    for function, made in ((4, "1155"), (5, "0"), (6, None)):
        address = f"0000:b1:00.{function}"
        sysfs.pci(address, "0x10de", "nvidia")
        (tmp_path / "bus/pci/devices" / address / "physfn").symlink_to(
            tmp_path / "bus/pci/devices/0000:b1:00.0"
        )
        if made is not None:
            (tmp_path / "bus/pci/devices" / address / "nvidia").mkdir()
            (tmp_path / "bus/pci/devices" / address / "nvidia/current_vgpu_type").write_text(f"{made}\n")
    ids = [f"0000:B1:00.{function}" for function in (0, 4, 5, 6)]
    devices = host_devices(tmp_path, allocations(machine("vm", *ids)))
    assert devices == HostDevices(vgpus={"0000:b1:00.4": "0000:b1:00.0"})


def test_iommu_groups_stand_for_what_is_in_them(tmp_path: Path):
    """KubeVirt without NVIDIA's plugin has their numbers for ids, of vGPUs and of GPUs passed through."""
    sysfs = Sysfs(tmp_path)
    sysfs.mdev(A, "pci0000:3a", "0000:3b:00.0")
    sysfs.pci("0000:86:00.0", "0x10de", "vfio-pci")
    sysfs.pci("0000:88:00.0", "0x15b3", "vfio-pci")
    for group, devices in (
        (37, [A]),
        (38, ["0000:86:00.1", "0000:86:00.0"]),
        (39, ["0000:88:00.0"]),
        (40, []),
    ):
        for device in devices:
            (tmp_path / f"kernel/iommu_groups/{group}/devices" / device).mkdir(parents=True)
    found = host_devices(tmp_path, allocations(machine("vm", "37", "38", "39", "40", "41")))
    assert found == HostDevices(
        vgpus={"37": "0000:3b:00.0"}, mdevs={"37": A}, passed_through=frozenset({"38"})
    )


def test_a_vfio_device_stands_for_the_gpu_that_it_is(tmp_path: Path):
    """Where the kernel has IOMMUFD, NVIDIA's plugin for sandboxes has its number, which is no group's."""
    sysfs = Sysfs(tmp_path)
    sysfs.pci("0000:00:00.0", "0x8086", "none")
    sysfs.pci("0000:86:00.0", "0x10de", "vfio-pci")
    sysfs.pci("0000:88:00.0", "0x15b3", "vfio-pci")
    (tmp_path / "kernel/iommu_groups/0/devices/0000:00:00.0").mkdir(parents=True)
    for number, address in ((0, "0000:86:00.0"), (1, "0000:88:00.0")):
        vfio = tmp_path / f"class/vfio-dev/vfio{number}"
        vfio.mkdir(parents=True)
        (vfio / "device").symlink_to(tmp_path / "bus/pci/devices" / address)
    kata = held("sandbox", "0", "1", "2", resource="nvidia.com/pgpu")
    devices = host_devices(tmp_path, allocations(kata))
    assert devices == HostDevices(passed_through=frozenset({"0"}))
    assert resolve(host(), kata, found=devices).unresolved == {"nvidia.com/pgpu": 1}


def test_an_iommu_group_is_the_mediated_device_in_it():
    kernel = HostDevices(vgpus={"37": "0000:3b:00.0"}, mdevs={"37": A})
    running = only(resolve(host(vgpu(A)), machine("vm", "37"), found=kernel))
    assert (running.device, running.memory_entitled) == (KEY, 12 * GIB)
    waiting = only(resolve(host(), machine("vm", "37"), found=kernel))
    assert (waiting.device, waiting.memory_entitled) == (KEY, None)
    (row,) = vgpu_rows([host(vgpu(A))], allocations(machine("vm", "37")), kernel)
    assert row.holder == container("vm", "compute")


def test_a_virtual_function_is_held_and_its_use_is_not_known():
    """The driver lists the vGPU, but not which function it is; one of a GPU that is lost has no place."""
    kernel = HostDevices(vgpus={"0000:3b:00.4": "0000:3b:00.0", "0000:5e:00.4": "0000:5e:00.0"})
    allocated = machine("vm", "0000:3B:00.4") + machine("other", "0000:5e:00.4")
    holdings = resolve(host(vgpu(None)), allocated, found=kernel)
    holding = only(holdings)
    assert (holding.device, holding.slices, holding.memory_entitled) == (KEY, 1, None)
    assert holding.meter == Meter(source="vgpu", memory=None, compute=None)
    assert holdings.unresolved == {TYPE: 1}


def test_only_nvidia_devices_that_a_machine_can_have_are_passed_through(tmp_path: Path):
    sysfs = Sysfs(tmp_path)
    sysfs.pci("0000:86:00.0", "0x10de", "vfio-pci")
    sysfs.pci("0000:87:00.0", "0x10de", "nvidia")
    sysfs.pci("0000:88:00.0", "0x15b3", "vfio-pci")
    ids = [f"0000:{bus}:00.0" for bus in (86, 87, 88, 89)]
    assert host_devices(tmp_path, allocations(machine("vm", *ids))).passed_through == {"0000:86:00.0"}


def test_no_file_is_read_for_other_ids(tmp_path: Path):
    ids = [UUID, f"{UUID}::3", "../../../etc", "nvidia0", "", f"{A}/.."]
    (tmp_path / "bus/mdev/devices").mkdir(parents=True)
    devices = host_devices(tmp_path, allocations(machine("x", *ids) + held("y", A, resource="intel.com/gpu")))
    assert devices == HostDevices()
    assert host_devices(tmp_path / "absent", None) == HostDevices()
    assert host_devices(tmp_path / "absent", allocations(machine("vm", A, "0000:86:00.0"))) == HostDevices()
