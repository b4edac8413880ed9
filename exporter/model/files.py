"""Records of the files that sharing and batch systems keep on the node: limits and use of containers."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """One device in the file of a container.

    Memory is in bytes, compute in shares of the physical device. A limit of None is no limit, or unknown.
    """

    # Its name in the file: a UUID, a PCI bus id, or a minor in digits.
    device: str
    memory_limit: int | None = None
    compute_limit: float | None = None
    memory_used: int | None = None
    compute_used: float | None = None
    # Whether the compute use in the file is never plausible, and must be ignored.
    memory_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFile:
    """The file of one container; its system identifies the container by some of the first four fields."""

    pod_uid: str = ""
    container: str = ""
    # The runtime's 64 hex digits, or only the first of them.
    container_id: str = ""
    # UID of a resource claim.
    claim_uid: str = ""
    devices: tuple[DeviceUse, ...] = ()
    # Processes in the host's pid namespace; None if the file does not list them.
    pids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProblem:
    """A file that cannot be used."""

    # A short stable word.
    reason: str
    # Name of the file.
    about: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemFiles:
    """All files of one sharing system."""

    containers: tuple[ContainerFile, ...] = ()
    # Other facts in the files, in the system's own terms.
    names: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[FileProblem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFiles:
    """The jobs of a batch system by GPU."""

    # By (GPU index, id of the GPU instance or None for the whole GPU).
    jobs: Mapping[tuple[int, int | None], tuple[str, ...]] = field(default_factory=dict)
    problems: tuple[FileProblem, ...] = ()
