"""What the ways of sharing are called."""

CUT = frozenset({"mig", "mig-time-slicing", "amd-partition"})
"""The ways in which a GPU is cut into devices, each of which has slices of its own."""

OWN_MODES = {
    "exclusive": "exclusive",
    "time-slicing": "time-sliced",
    "mps": "MPS",
    "mig": "MIG",
    "mig-time-slicing": "MIG, time-sliced",
    "vgpu": "vGPU",
    "amd-partition": "partitioned",
    "none": "not shared out",
    "unknown": "sharing not known",
    "": "sharing not known",
}
"""The ways of sharing that the vendors' own plug-ins bring; all others are the names of sharing systems."""

_SYSTEMS = {
    "amd-dra": "DRA",
    "baidu-cgpu": "Baidu cGPU",
    "cgpu": "cGPU",
    "dra": "DRA",
    "elastic-gpu": "Elastic GPU",
    "hami": "HAMi",
    "hami-dra": "HAMi by DRA",
    "intel": "Intel's plug-in",
    "kai": "KAI fractions",
    "koordinator": "Koordinator",
    "mgpu": "mGPU",
    "qgpu": "qGPU",
    "runai": "Run:ai fractions",
    "volcano-gpushare": "Volcano gpushare",
    "volcano-vgpu": "Volcano vGPU",
}


def mode_word(sharing: str) -> str:
    """Name a way of sharing."""
    if sharing.startswith("hami-") and sharing not in _SYSTEMS:
        return _SYSTEMS["hami"]
    return OWN_MODES.get(sharing) or _SYSTEMS.get(sharing, sharing)


def is_system(sharing: str) -> bool:
    """Whether GPUs are shared by a system of its own, which states what its holders may take."""
    return sharing not in OWN_MODES
