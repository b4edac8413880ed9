"""Values that a scenario may leave out: identities by place, properties of boards by architecture.

The same scenario has the same uuids, pids and ids on every machine.
"""

import hashlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import replace

from exporter.demo.scenario.gpus import Gpu, MigInstance, MigProfileSize
from exporter.documents import fail
from exporter.model.mig_profiles import listed_profiles

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "scenario.gpuslice")
FIRST_PID, PIDS = 2_000, 4_000_000
_PROFILE = re.compile(r"(?:(\d+)c\.)?(\d+)g\.\d+gb(?:\+\S+)?")
# PCI buses of a board with eight GPUs; further GPUs repeat them in the next domain.
_BUSES = (0x07, 0x0F, 0x47, 0x4E, 0x87, 0x90, 0xB7, 0xBD)
# The first number of a VBIOS version, by architecture.
_VBIOS = {5: 88, 6: 90, 7: 92, 8: 95, 9: 96}
_LATEST_VBIOS = 97

VOLTA, TURING, AMPERE, ADA, HOPPER, BLACKWELL = 5, 6, 7, 8, 9, 10

# MB/s of one NVLink in one direction, by architecture.
_NVLINK_SPEEDS = {VOLTA: 25781, TURING: 25781, AMPERE: 25000, HOPPER: 26562, BLACKWELL: 53125}
_PCIE_GENERATIONS = {VOLTA: 3, TURING: 3, AMPERE: 4, ADA: 4, HOPPER: 5}
_LATEST_PCIE = 5
# Modules of a processor and GPUs with a power reading for the whole module.
_MODULES = ("GH200", "GB200", "GB300")
# Number of known field ids by branch of the driver.
_FIELD_IDS = ((575, 274), (570, 269), (560, 230), (550, 200), (535, 197), (525, 170), (0, 146))
# NVML's GPU instance profiles, by the slices of the GPU and the compute and memory slices of the instance.
_GI_PROFILES = {
    (7, 1, 1): 19,
    (7, 1, 2): 15,
    (7, 2, 2): 14,
    (7, 3, 4): 9,
    (7, 4, 4): 5,
    (7, 7, 8): 0,
    (4, 1, 1): 14,
    (4, 2, 2): 5,
    (4, 4, 4): 0,
}
# The same with media extensions.
_WITH_MEDIA = {(7, 1, 1): 20, (4, 1, 1): 21, (4, 2, 2): 6}
# NVML_GPU_INSTANCE_PROFILE numbers by slices and suffix, and of one slice with twice the memory.
_PROFILE_NUMBERS = {
    **{(slices, ""): number for number, slices in enumerate("1234786")},
    **{(slices, "+me"): number for number, slices in enumerate("12", 7)},
    **{(slices, "+gfx"): number for number, slices in enumerate("124", 10)},
    **{(slices, "-me"): number for number, slices in enumerate("12", 13)},
    **{(slices, "+me.all"): number for number, slices in enumerate("12", 15)},
}
DOUBLE_MEMORY = 9
_CAPABILITIES = {
    VOLTA: (7, 0),
    TURING: (7, 5),
    AMPERE: (8, 0),
    ADA: (8, 9),
    HOPPER: (9, 0),
    BLACKWELL: (10, 0),
}


def make_uuid(*parts: object) -> str:
    """Return a uuid derived from the parts."""
    return str(uuid.uuid5(_NAMESPACE, "/".join(map(str, parts))))


def make_hex(*parts: object) -> str:
    """Return 64 hex digits derived from the parts, such as a container id."""
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()


def make_pid(*parts: object) -> int:
    """Return a pid derived from the parts."""
    return FIRST_PID + int(make_hex(*parts)[:8], 16) % PIDS


def complete_gpu(scenario: str, gpu: Gpu, index: int, path: str) -> Gpu:
    """Return a GPU with the values that the scenario leaves out; ``path`` is that of its ``mig``."""
    identity = gpu.uuid or f"GPU-{make_uuid(scenario, 'gpu', index)}"
    mig = gpu.mig
    if mig is not None:
        mig = replace(mig, instances=complete_instances(identity, mig.instances, path))
    serial = f"1{int(make_hex(scenario, 'serial', index)[:12], 16) % 10**12:012d}"
    return replace(
        gpu,
        count=1,
        uuid=identity,
        minor=index if gpu.minor is None else gpu.minor,
        pci_bus_id=gpu.pci_bus_id or f"{index // 8:08X}:{_BUSES[index % 8]:02X}:00.0",
        serial=serial if gpu.serial == "" else gpu.serial,
        vbios=f"{_VBIOS.get(gpu.architecture, _LATEST_VBIOS)}.00.5C.00.02" if gpu.vbios == "" else gpu.vbios,
        mig=mig,
    )


def complete_instances(gpu: str, instances: tuple[MigInstance, ...], path: str) -> tuple[MigInstance, ...]:
    """Return MIG instances with the values that the scenario leaves out."""
    complete = []
    for index, instance in enumerate(instances):
        profile = _PROFILE.fullmatch(instance.profile)
        if profile is None:
            wrong = f"must be a MIG profile such as 1g.5gb, not {instance.profile!r}"
            fail(f"{path}.instances[{index}].profile", wrong)
        gi_slices = int(profile[2])
        # As in the driver, the same placement has the same uuid.
        derived = make_uuid(gpu, instance.gi, instance.ci, instance.profile, instance.start)
        complete.append(
            replace(
                instance,
                uuid=instance.uuid or f"MIG-{derived}",
                compute_slices=instance.compute_slices or int(profile[1] or gi_slices),
                gi_slices=instance.gi_slices or gi_slices,
            )
        )
    return tuple(complete)


def has_hbm(gpu: Gpu) -> bool:
    """Return whether it is a large board: only these have a memory temperature."""
    return gpu.memory_temperature


def is_ga100(gpu: Gpu) -> bool:
    """Return whether it is an A100 or A30."""
    return gpu.architecture == AMPERE and has_hbm(gpu)


def is_module(gpu: Gpu) -> bool:
    """Return whether it is on a module with a processor."""
    return any(name in gpu.model for name in _MODULES)


def nvlink_speed(gpu: Gpu) -> int:
    """Return the MB/s of one NVLink in one direction."""
    return gpu.links.megabytes_per_second or _NVLINK_SPEEDS.get(gpu.architecture, _NVLINK_SPEEDS[BLACKWELL])


def pcie_generation(gpu: Gpu) -> int:
    """Return the maximum PCIe generation of GPU and slot."""
    return gpu.links.pcie_generation or _PCIE_GENERATIONS.get(gpu.architecture, _LATEST_PCIE)


def power_limit(gpu: Gpu) -> int:
    """Return the power limit that is set, in mW."""
    return gpu.power_max_mw if gpu.power_limit_mw is None else min(gpu.power_limit_mw, gpu.power_max_mw)


def active_nvlinks(gpu: Gpu) -> int:
    """Return the number of active NVLinks."""
    return max(0, gpu.links.nvlinks - gpu.links.down)


def knows_field(driver: int, field: int) -> bool:
    """Return whether a branch of the driver supports a field value."""
    return field < next(count for branch, count in _FIELD_IDS if driver >= branch)


def engines(gpu: Gpu, instance: MigInstance) -> Mapping[str, int]:
    """Return the engines of a GPU instance; from Hopper on, each slice has video and JPEG engines."""
    if instance.engines:
        return instance.engines
    per_slice = instance.gi_slices if gpu.architecture >= HOPPER else 0
    # A GPU has one of some engines: it belongs to the whole GPU, or to media extensions (+me).
    one = int("+me" in instance.profile or (gpu.mig is not None and instance.gi_slices == gpu.mig.max_slices))
    return {
        "copy": instance.gi_slices,
        "decoder": per_slice or max(one, instance.gi_slices // 2),
        "encoder": 0,
        "jpeg": per_slice or one,
        "ofa": one,
    }


def gi_profile(gpu: Gpu, instance: MigInstance) -> int | None:
    """Return NVML's number of a GPU instance's profile, None if no board has that profile."""
    if instance.gi_profile is not None:
        return instance.gi_profile
    numbers = _WITH_MEDIA if "+me" in instance.profile else _GI_PROFILES
    return numbers.get((gpu.mig.max_slices if gpu.mig else 0, instance.gi_slices, instance.size))


def profile_sizes(gpu: Gpu) -> tuple[MigProfileSize, ...]:
    """Return what a GPU instance of each MIG profile has; () without a MIG mode or a published listing."""
    if gpu.mig is None or gpu.mig.profiles:
        return gpu.mig.profiles if gpu.mig else ()
    listed = listed_profiles(gpu.model, gpu.memory_total)
    return tuple(map(MigProfileSize.of, listed.profiles)) if listed else ()


def profile_number(name: str) -> int | None:
    """Return the NVML_GPU_INSTANCE_PROFILE number of a profile with the least memory of its slices."""
    slices, _, rest = name.partition("g.")
    kind = rest.lstrip("0123456789").removeprefix("gb")
    return _PROFILE_NUMBERS.get((slices, kind))


def capability(gpu: Gpu) -> tuple[int, int] | None:
    """Return the compute capability; Ampere boards without HBM have another chip than those with it."""
    given = gpu.board_info.get("compute_capability")
    if given:
        major, minor = map(int, given.split("."))
        return major, minor
    if gpu.architecture == AMPERE and not has_hbm(gpu):
        return 8, 6
    return _CAPABILITIES.get(gpu.architecture)
