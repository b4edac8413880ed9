"""MIG profiles: what a GPU instance of each really has, from the driver or from published listings.

The usable memory of a profile is less than its name says, and its multiprocessors are not so many sevenths.
Sizes differ a little between drivers, so the answer of a node's own driver is better than the table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

MEBIBYTE, GIBIBYTE = 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """What a GPU instance of one MIG profile has; None is unknown."""

    name: str  # such as ``1g.10gb`` or ``1g.10gb+me``
    memory: int | None = None  # bytes that a process can use
    multiprocessors: int | None = None
    instances: int | None = None  # most instances of the profile on one GPU


class MigProfiles(NamedTuple):
    """The MIG profiles of a GPU model; ``table``: the driver does not report them."""

    source: Literal["driver", "table"]
    profiles: tuple[MigProfile, ...]


class ProfileListing(NamedTuple):
    """A published listing of the profiles of some models."""

    models: tuple[str, ...]  # names in NVML, without ``NVIDIA``
    gibibytes: int  # memory of the GPU in GiB, rounded up; profile names follow from it
    source: str


_GITHUB = "https://github.com/"
_A100 = f"{_GITHUB}NVIDIA/go-nvml/blob/main/pkg/nvml/mock/gpus/a100.go"
_GKE = f"{_GITHUB}GoogleCloudPlatform/container-engine-accelerators/pull/564"
_RTX_PRO_6000 = tuple(
    f"RTX PRO 6000 Blackwell {edition} Edition" for edition in ("Server", "Workstation", "Max-Q Workstation")
)
# Rows of name, usable MiB, multiprocessors and instances.
# The usable memory is a multiple of 64 MiB; ``nvidia-smi mig -lgip`` prints it in GiB with two digits.
LISTINGS: Mapping[ProfileListing, tuple[tuple[str, int, int, int], ...]] = {
    ProfileListing(("A30",), 24, f"{_GITHUB}Summer-Lo/Docker_configuration/blob/main/000-MIG/README.md"): (
        ("1g.6gb", 5952, 14, 4),
        ("1g.6gb+me", 5952, 14, 1),
        ("2g.12gb", 11968, 28, 2),
        ("4g.24gb", 24064, 56, 1),
    ),
    ProfileListing(("A100-SXM4-40GB", "A100-PCIE-40GB"), 40, _A100): (
        ("1g.5gb", 4864, 14, 7),
        ("1g.5gb+me", 4864, 14, 1),
        ("1g.10gb", 9856, 14, 4),
        ("2g.10gb", 9856, 28, 3),
        ("3g.20gb", 19968, 42, 2),
        ("4g.20gb", 19968, 56, 1),
        ("7g.40gb", 40192, 98, 1),
    ),
    ProfileListing(("A100-SXM4-80GB", "A100 80GB PCIe"), 80, _A100): (
        ("1g.10gb", 9856, 14, 7),
        ("1g.10gb+me", 9856, 14, 1),
        ("1g.20gb", 19968, 14, 4),
        ("2g.20gb", 19968, 28, 3),
        ("3g.40gb", 40192, 42, 2),
        ("4g.40gb", 40192, 56, 1),
        ("7g.80gb", 80384, 98, 1),
    ),
    ProfileListing(
        ("H100 80GB HBM3",), 80, f"{_GITHUB}stackhpc/ansible-slurm-appliance/blob/main/docs/mig.md"
    ): (
        ("1g.10gb", 9984, 16, 7),
        ("1g.10gb+me", 9984, 16, 1),
        ("1g.20gb", 20096, 26, 4),
        ("2g.20gb", 20096, 32, 3),
        ("3g.40gb", 40448, 60, 2),
        ("4g.40gb", 40448, 64, 1),
        ("7g.80gb", 81152, 132, 1),
    ),
    ProfileListing(("H100 NVL",), 94, f"{_GITHUB}NVIDIA/gpu-operator/pull/903"): (
        ("1g.12gb", 11008, 16, 7),
        ("1g.12gb+me", 11008, 16, 1),
        ("1g.24gb", 22144, 26, 4),
        ("2g.24gb", 22144, 32, 3),
        ("3g.47gb", 47488, 60, 2),
        ("4g.47gb", 47488, 64, 1),
        ("7g.94gb", 95360, 132, 1),
    ),
    ProfileListing(("GH200 480GB",), 96, f"{_GITHUB}kf-cuanschutz/NVIDIA_Grace_Hopper_benchmarking_logs_"): (
        ("1g.12gb", 11264, 16, 7),
        ("1g.12gb+me", 11264, 16, 1),
        ("1g.24gb", 23552, 26, 4),
        ("2g.24gb", 23552, 32, 3),
        ("3g.48gb", 47616, 60, 2),
        ("4g.48gb", 47616, 64, 1),
        ("7g.96gb", 95232, 132, 1),
    ),
    ProfileListing(("GH200 144G HBM3e",), 144, f"{_GITHUB}NVIDIA/mig-parted/pull/139"): (
        ("1g.18gb", 17920, 16, 7),
        ("1g.18gb+me", 17920, 16, 1),
        ("1g.36gb", 36096, 26, 4),
        ("2g.36gb", 36096, 32, 3),
    ),
    ProfileListing(("H200",), 141, f"{_GITHUB}NVIDIA/mig-parted/issues/120"): (
        ("1g.18gb", 16384, 16, 7),
        ("1g.18gb+me", 16384, 16, 1),
        ("1g.35gb", 33024, 26, 4),
        ("2g.35gb", 33024, 32, 3),
        ("3g.71gb", 71168, 60, 2),
        ("4g.71gb", 71168, 64, 1),
    ),
    ProfileListing(("B200",), 180, f"{_GITHUB}NVIDIA/mig-parted/pull/187"): (
        ("1g.23gb", 20992, 18, 7),
        ("1g.23gb+me", 20992, 18, 1),
        ("1g.45gb", 45312, 30, 4),
        ("2g.45gb", 45312, 36, 3),
    ),
    ProfileListing(("GB200",), 186, f"{_GITHUB}NVIDIA/mig-parted/issues/227"): (
        ("1g.23gb", 22528, 18, 7),
        ("1g.23gb+me", 22528, 18, 1),
        ("1g.47gb", 46592, 32, 4),
        ("2g.47gb", 46592, 38, 3),
    ),
    ProfileListing(("GB200",), 189, f"{_GITHUB}NVIDIA/gpu-operator/pull/1303"): (
        ("1g.24gb", 20480, 18, 7),
        ("1g.24gb+me", 20480, 18, 1),
        ("1g.47gb", 46592, 32, 4),
        ("2g.47gb", 46592, 38, 3),
    ),
    ProfileListing(_RTX_PRO_6000, 96, _GKE): (
        ("1g.24gb", 24192, 46, 4),
        ("1g.24gb+me", 24192, 46, 1),
        ("1g.24gb+gfx", 24192, 46, 4),
        ("1g.24gb+me.all", 24192, 46, 1),
        ("1g.24gb-me", 24192, 46, 4),
        ("2g.48gb", 48512, 94, 2),
        ("2g.48gb+gfx", 48512, 94, 2),
        ("2g.48gb+me.all", 48512, 94, 1),
        ("2g.48gb-me", 48512, 94, 2),
    ),
}


def listed_profiles(model: str, memory: int | None) -> MigProfiles | None:
    """Return the profiles of the table for a GPU model with ``memory`` bytes; None without a listing."""
    gibibytes = None if memory is None else -(-memory // GIBIBYTE)
    for listing, rows in LISTINGS.items():
        if model.removeprefix("NVIDIA ") in listing.models and listing.gibibytes == gibibytes:
            return MigProfiles("table", tuple(map(_profile, rows)))
    return None


def _profile(row: tuple[str, int, int, int]) -> MigProfile:
    name, mebibytes, multiprocessors, instances = row
    return MigProfile(
        name=name, memory=mebibytes * MEBIBYTE, multiprocessors=multiprocessors, instances=instances
    )
