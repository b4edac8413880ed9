"""Parts of what NVML tells, each with its own reader: what is asked often, or leads from one answer to more.

Lists of processes whose length the driver tells wrongly, NVLinks that lead nowhere, masks of processors, and
virtual GPUs.
"""

import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any, TypeVar

import pynvml

from exporter.model import DeviceProcess, GpuIdentity, Topology
from exporter.model.bounds import BYTES, LINKS
from exporter.model.mig_profiles import MigProfiles
from exporter.nvml.driver.calls import Calls, DeviceLostError, DriverGoneError
from exporter.nvml.mig import ProfileReader
from exporter.nvml.readings.answers import KeptRows, add_kept
from exporter.nvml.readings.device_reader import active_links, ask_missing, link_state_rows
from exporter.nvml.readings.field_reader import FieldReader
from exporter.nvml.readings.gpu_processes import GREATEST_PID, InstanceIds, read_utilization, running
from exporter.nvml.readings.samples import SampleReader
from exporter.nvml.topology import COMMON_ANCESTORS, NODE_WORDS, WORD_BITS, TopologyReader
from exporter.nvml.vgpu import VgpuReader
from tests.core.hardware.making import GIB, SMALL, Driver, gpu, process, ticking
from tests.together.fuzz.promises import BrokenPromiseError
from tests.together.fuzz.spoiled import Spoiled
from tests.together.fuzz.target import Target
from tests.together.fuzz.targets_nvml import WORDS, seeds

T = TypeVar("T")
MOST_LINKS = int(LINKS.highest)
BUSES = {"GPU-a": "00000000:07:00.0", "GPU-b": "00000000:0A:00.0"}
RANGES = re.compile(r"(?:[0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*)?")
PROFILE = re.compile(r"[0-9]{1,2}g\.[0-9]{1,4}gb(?:[+-][a-z.]{1,16})?")
MIG = "MIG-small"
# One is asked a second time, when all that leads from the other to it is known.
ORDER = (*BUSES, "GPU-a")
# Counts of a list: none, as many as there is room for, one more, many.
COUNTS = (b"\x80\x00", b"\x80\x09", b"\x80\x0a", b"\x80\xff", b"\xe7", b"\x80\x01\x80\x03")


def _unless_lost(read: Callable[[], T]) -> T | None:
    """Read a device; None where it is lost, which costs the others nothing."""
    try:
        return read()
    except DeviceLostError:
        return None


@cache
def _busy() -> Spoiled:
    """Make a GPU with two processes, and a cut one with a process on its part."""
    load = {"load": {"high": 40}}
    processes = [process(41, "GPU-a", **load), process(42, "GPU-a", **load), process(43, MIG, **load)]
    driver = Driver(gpu("a"), gpu("b", SMALL), host_processes=processes)
    driver.advance(5)
    return Spoiled(driver.library)


@cache
def _part() -> Any:
    """Return the handle of the only MIG device, asked first while the driver is open and well."""
    parent = _busy().handles["GPU-b"]
    for slot in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(parent)):
        try:
            return pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, slot)
        except pynvml.NVMLError_NotFound:
            continue
    raise LookupError(MIG)


def _processes(content: bytes) -> Any:
    """List the processes of the GPU and of the part, and what those of the GPU computed."""
    driver = _busy()
    with driver.opened(b""):
        part = _part()
    with driver.opened(content) as calls:
        whole = driver.handles["GPU-a"]
        place = InstanceIds(SMALL["gi"], SMALL.get("ci", 0))
        return (
            _unless_lost(lambda: running(calls, MIG, part, place)),
            _unless_lost(lambda: running(calls, "GPU-a", whole)),
            _unless_lost(lambda: read_utilization(SampleReader(ticking()), calls, "GPU-a", whole, ())),
        )


def _check_processes(told: tuple[Any, Any, Any]) -> None:
    *lists, used = told
    for listed in lists:
        _check_list(listed or ())
    if any(percent is not None and not 0 <= percent <= 100 for percent in (used or {}).values()):
        raise BrokenPromiseError(f"percents of {used}")


def _check_list(listed: tuple[DeviceProcess, ...]) -> None:
    pids = [each.pid for each in listed]
    if pids != sorted(set(pids)) or not all(0 < pid <= GREATEST_PID for pid in pids):
        raise BrokenPromiseError(f"processes with the pids {pids}")
    if any(each.memory is not None and not BYTES.has(each.memory) for each in listed):
        raise BrokenPromiseError(f"a process has more than any machine: {listed}")


@cache
def _pair() -> Spoiled:
    """Make two GPUs with two links between them, one to a switch, and one that is down."""
    links = {name: {"nvlinks": 4, "down": 1, "switch": True, "to": {name: 2}} for name in BUSES}
    boards = (
        gpu("a", pci_bus_id=BUSES["GPU-a"], links=links["GPU-b"]),
        gpu("b", pci_bus_id=BUSES["GPU-b"], links=links["GPU-a"]),
    )
    # Masks have a target of their own: thousands of bits, all of which are looked at.
    return Spoiled(
        Driver(*boards, missing=("nvmlDeviceGetCpuAffinity", "nvmlDeviceGetMemoryAffinity")).library
    )


def _links(content: bytes) -> Any:
    """Ask both GPUs for their links, and the first again: by then the way between the two is known."""
    with _pair().opened(content) as calls:
        reader = TopologyReader()
        links = {uuid: _unless_lost(partial(_active, calls, uuid)) for uuid in BUSES}
        return links, [_unless_lost(partial(_sits, calls, reader, uuid, links[uuid])) for uuid in ORDER]


def _active(calls: Calls, uuid: str) -> frozenset[int] | None:
    found: dict[Any, Any] = {}
    slow = KeptRows()
    handle = _pair().handles[uuid]
    FieldReader().read(calls, uuid, handle, found, slow)
    ask_missing(calls, uuid, handle, link_state_rows(calls, uuid, slow), slow)
    add_kept(found, slow)
    return active_links(found)


def _sits(
    calls: Calls, reader: TopologyReader, uuid: str, active: frozenset[int] | None
) -> tuple[str, Topology | None]:
    return uuid, reader.read(calls, uuid, _pair().handles[uuid], BUSES[uuid], active)


def _check_links(told: tuple[dict[str, frozenset[int] | None], list[Any]]) -> None:
    links, seen = told
    if any(active is not None and not active <= set(range(MOST_LINKS)) for active in links.values()):
        raise BrokenPromiseError(f"links that no GPU has: {links}")
    for uuid, topology in filter(None, seen):
        for other, link in ({} if topology is None else topology.peers).items():
            known = link.pcie is None or link.pcie in COMMON_ANCESTORS.values()
            counted = link.nvlinks is None or 0 <= link.nvlinks <= MOST_LINKS
            if other not in BUSES or other == uuid or not known or not counted:
                raise BrokenPromiseError(f"{uuid} is linked to {other} as {link}")


@cache
def _alone() -> Spoiled:
    return Spoiled(Driver(gpu("a", links={"numa_node": 1, "cpus": "0-3,64"})).library)


def _masks(content: bytes) -> Topology | None:
    driver = _alone()
    with driver.opened(content) as calls:
        handle = driver.handles["GPU-a"]
        return _unless_lost(lambda: TopologyReader().read(calls, "GPU-a", handle, BUSES["GPU-a"], None))


def _check_masks(told: Topology | None) -> None:
    if told is None:
        return
    nodes = range(NODE_WORDS * WORD_BITS)
    if not RANGES.fullmatch(told.cpus) or (told.numa_node is not None and told.numa_node not in nodes):
        raise BrokenPromiseError(f"a GPU near {told}")


@cache
def _virtual() -> Spoiled:
    """Make a host's GPU with two vGPUs that run, and a guest's with a license."""
    vgpus = [
        {
            "mdev_uuid": f"c73f1fa6-489e-4834-9476-d70dabd98c4{place}",
            "type": "NVIDIA A40-4Q",
            "memory_bytes": "4 GiB",
            "pid": 41 + place,
        }
        for place in range(2)
    ]
    guest_license = {"product": "NVIDIA RTX Virtual Workstation", "expires": "2027-01-31T23:59:59"}
    driver = Driver(
        gpu("a", virtualization="vgpu_host", vgpus=vgpus),
        gpu("b", virtualization="vgpu_guest", license=guest_license),
        host_processes=[process(pid, "GPU-a", load={"high": 40}) for pid in (41, 42)],
    )
    driver.advance(5)
    return Spoiled(driver.library)


def _vgpus(content: bytes) -> Any:
    driver = _virtual()
    with driver.opened(content) as calls:
        reader = VgpuReader(ticking())
        return [
            _unless_lost(partial(reader.read, calls, uuid, handle)) for uuid, handle in driver.handles.items()
        ]


def _check_vgpus(told: list[Any]) -> None:
    for each in (vgpu for seen in told if seen is not None for vgpu in seen["vgpus"] or ()):
        shares = (each.sm_percent, each.memory_percent, each.encoder_percent, each.decoder_percent)
        if any(share is not None and not 0 <= share <= 100 for share in shares):
            raise BrokenPromiseError(f"a vGPU used {shares} percent")


@cache
def _model() -> Spoiled:
    """Make a GPU that could be partitioned, of a model with a listing."""
    board = gpu("a", model="NVIDIA A100-SXM4-40GB", memory_total="40 GiB", mig={"enabled": False})
    return Spoiled(Driver(board).library)


def _profiles(content: bytes) -> MigProfiles | None:
    driver = _model()
    identity = GpuIdentity(uuid="GPU-a", index=0, model="NVIDIA A100-SXM4-40GB")
    with driver.opened(content) as calls:
        read, handle = ProfileReader().read, driver.handles["GPU-a"]
        return _unless_lost(lambda: read(calls, identity, handle, 40 * GIB, slow=True))


def _check_profiles(told: MigProfiles | None) -> None:
    for profile in () if told is None else told.profiles:
        known = [
            each for each in (profile.memory, profile.multiprocessors, profile.instances) if each is not None
        ]
        if not PROFILE.fullmatch(profile.name) or any(not 0 < each < 2**64 for each in known):
            raise BrokenPromiseError(f"a profile of {profile}")


TARGETS = (
    Target(
        name="nvml-profiles",
        covers=("exporter.nvml.mig",),
        seeds=lambda: seeds(18, 4),
        decode=_profiles,
        refuses=(DriverGoneError,),
        check=_check_profiles,
        words=(*WORDS, b"MIG 1g.5gb"),
        cost=2,
    ),
    Target(
        name="nvml-processes",
        covers=(
            "exporter.nvml.readings.gpu_processes",
            "exporter.nvml.driver.binding",
            "exporter.nvml.readings.samples",
        ),
        seeds=lambda: [
            *seeds(16, 4),
            *(bytes(place) + count for place in range(0, 16, 3) for count in COUNTS),
        ],
        decode=_processes,
        refuses=(DriverGoneError,),
        check=_check_processes,
        words=(*WORDS, *COUNTS),
        cost=2,
    ),
    Target(
        name="nvml-links",
        covers=(
            "exporter.nvml.readings.device_reader",
            "exporter.nvml.topology",
            "exporter.nvml.readings.fields",
        ),
        seeds=lambda: seeds(30, 6),
        decode=_links,
        refuses=(DriverGoneError,),
        check=_check_links,
        words=WORDS,
        cost=4,
    ),
    Target(
        name="nvml-masks",
        covers=("exporter.nvml.topology",),
        seeds=lambda: [
            *seeds(2, 1),
            b"\x80\x00\x00\x10" + bytes(15) + b"\x80\x80\x00\x08\x10" + b"\xf0" * 16,
        ],
        decode=_masks,
        refuses=(DriverGoneError,),
        check=_check_masks,
        words=WORDS,
        cost=4,
    ),
    Target(
        name="nvml-vgpus",
        covers=("exporter.nvml.vgpu",),
        seeds=lambda: [
            *seeds(30, 6),
            *(bytes(place) + count for place in range(1, 8, 2) for count in COUNTS),
        ],
        decode=_vgpus,
        refuses=(DriverGoneError,),
        check=_check_vgpus,
        words=(*WORDS, *COUNTS),
        cost=2,
    ),
)
