"""What a model of GPU has by its architecture, where a scenario does not say otherwise.

Architectures are NVML's numbers, drivers are branches (550).
"""

from collections.abc import Mapping

from exporter.demo.schema_gpu import Gpu, MigInstance

VOLTA, TURING, AMPERE, ADA, HOPPER, BLACKWELL = 5, 6, 7, 8, 9, 10

# MB/s of one NVLink in one direction, and NVML's number of its version.
_NVLINK_SPEEDS = {VOLTA: 25781, TURING: 25781, AMPERE: 25000, HOPPER: 26562, BLACKWELL: 53125}
_NVLINK_VERSIONS = {VOLTA: 2, TURING: 3, AMPERE: 4, HOPPER: 6, BLACKWELL: 7}
_PCIE_GENERATIONS = {VOLTA: 3, TURING: 3, AMPERE: 4, ADA: 4, HOPPER: 5}
_LATEST_PCIE = 5
# Modules of a processor and GPUs, whose power the driver can tell as a whole.
_MODULES = ("GH200", "GB200", "GB300")
# Branches of the driver, with how many field ids each knows.
_FIELD_IDS = ((575, 274), (570, 269), (560, 230), (550, 200), (535, 197), (525, 170), (0, 146))
# The driver's numbers of profiles, by the slices of the whole GPU and those of compute and memory in it.
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
_CAPABILITIES: Mapping[int, tuple[int, int]] = {
    VOLTA: (7, 0),
    TURING: (7, 5),
    AMPERE: (8, 0),
    ADA: (8, 9),
    HOPPER: (9, 0),
    BLACKWELL: (10, 0),
}


def has_hbm(gpu: Gpu) -> bool:
    """Say whether it is one of the large boards; a thermometer of the memory gives them away."""
    return gpu.memory_temperature


def is_ga100(gpu: Gpu) -> bool:
    """Say whether it is an A100 or A30, the first Amperes."""
    return gpu.architecture == AMPERE and has_hbm(gpu)


def is_module(gpu: Gpu) -> bool:
    """Say whether it shares a module with a processor."""
    return any(name in gpu.model for name in _MODULES)


def nvlink_speed(gpu: Gpu) -> int:
    """Return the MB/s of one NVLink in one direction."""
    return gpu.links.megabytes_per_second or _NVLINK_SPEEDS.get(gpu.architecture, _NVLINK_SPEEDS[BLACKWELL])


def nvlink_version(gpu: Gpu) -> int:
    """Return NVML's number of the version of its NVLinks."""
    return _NVLINK_VERSIONS.get(gpu.architecture, _NVLINK_VERSIONS[BLACKWELL])


def pcie_generation(gpu: Gpu) -> int:
    """Return the newest PCIe generation that GPU and slot know."""
    return gpu.links.pcie_generation or _PCIE_GENERATIONS.get(gpu.architecture, _LATEST_PCIE)


def knows_field(driver: int, field: int) -> bool:
    """Say whether this branch of the driver has heard of a field value."""
    return field < next(count for branch, count in _FIELD_IDS if driver >= branch)


def engines(gpu: Gpu, cut: MigInstance) -> Mapping[str, int]:
    """Count the engines of a GPU instance: from Hopper on, each slice has its own for video and pictures."""
    if cut.engines:
        return cut.engines
    each = cut.gi_slices if gpu.architecture >= HOPPER else 0
    # Of some engines there is only one: it goes with the whole GPU, or with media extensions.
    one = int("+me" in cut.profile or (gpu.mig is not None and cut.gi_slices == gpu.mig.max_slices))
    return {
        "copy": cut.gi_slices,
        "decoder": each or max(one, cut.gi_slices // 2),
        "encoder": 0,
        "jpeg": each or one,
        "ofa": one,
    }


def gi_profile(gpu: Gpu, cut: MigInstance) -> int | None:
    """Return the driver's number of the profile of a GPU instance, None for one that no board has."""
    if cut.gi_profile is not None:
        return cut.gi_profile
    numbers = _WITH_MEDIA if "+me" in cut.profile else _GI_PROFILES
    return numbers.get((gpu.mig.max_slices if gpu.mig else 0, cut.gi_slices, cut.size))


def capability(gpu: Gpu) -> tuple[int, int] | None:
    """Return the compute capability of a board; Ampere's without HBM have another chip than those with it."""
    if gpu.architecture == AMPERE and not has_hbm(gpu):
        return 8, 6
    return _CAPABILITIES.get(gpu.architecture)
