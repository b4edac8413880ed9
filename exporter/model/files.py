"""What the files of sharing systems say: limits and meters of containers that these keep on the node."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """One device in the file of a container.

    ``device`` is the name that the file has for it: a UUID, a PCI bus id, or a minor in digits. Limits and
    use are bytes, and shares of the whole physical device; None is no limit, or not told. ``memory_only``:
    what the file has of the use of compute is never believed.
    """

    device: str
    memory_limit: int | None = None
    compute_limit: float | None = None
    memory_used: int | None = None
    compute_used: float | None = None
    memory_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFile:
    """The file of one container, found by whichever of the names its system gives it.

    ``container_id`` may be only the beginning of the runtime's 64 hex digits; ``claim_uid`` is that of a
    resource claim. ``pids`` are its processes in the host's pid namespace, None where the file has none.
    """

    pod_uid: str = ""
    container: str = ""
    container_id: str = ""
    claim_uid: str = ""
    devices: tuple[DeviceUse, ...] = ()
    pids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProblem:
    """A file that cannot be used. ``reason`` is a short stable word, ``about`` names the file."""

    reason: str
    about: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemFiles:
    """All files of one sharing system. ``names`` is what else they say, in the system's own terms."""

    containers: tuple[ContainerFile, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[FileProblem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFiles:
    """Which jobs a batch system runs where: by the index of the GPU and, in MIG, by its GPU instance."""

    jobs: Mapping[tuple[int, int | None], tuple[str, ...]] = field(default_factory=dict)
    problems: tuple[FileProblem, ...] = ()
