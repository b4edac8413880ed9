"""A tree of cgroups with the files of the controller ``dmem``, for tests."""

from pathlib import Path

MIB = 1 << 20
GIB = 1 << 30
PCI = "0000:02:00.0"
REGION = "nvidia/00000000:02:00.0/vidmem"
CAPACITY = 16 * GIB
UIDS = {name: f"{number:08x}-0000-4000-8000-000000000000" for number, name in enumerate("abcdef", 1)}
IDS = {name: f"{number:064x}" for number, name in enumerate("abcdef", 1)}


def pod_path(name: str) -> str:
    """Return the path of a pod's cgroup."""
    return f"/kubepods.slice/kubepods-pod{UIDS[name].replace('-', '_')}.slice"


def container_path(name: str, container: str = "") -> str:
    """Return the path of a container's cgroup, by default of the pod's first one."""
    return f"{pod_path(name)}/cri-containerd-{container or IDS[name]}.scope"


class Tree:
    """Writes the tree."""

    def __init__(self, root: Path, regions: dict[str, int] | None = None) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.file("", "dmem.capacity", {REGION: CAPACITY} if regions is None else regions)

    def file(self, path: str, name: str, amounts: dict[str, int | str]) -> None:
        """Write one file of a cgroup."""
        folder = self.root / path.lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("".join(f"{region} {amount}\n" for region, amount in amounts.items()))

    def add(
        self, path: str, used: int = 0, soft: int = 0, hard: int | str = "max", region: str = REGION
    ) -> None:
        """Write a cgroup, and those above it that are missing, with what they have to hold."""
        above = path.rpartition("/")[0]
        if above and not (self.root / above.lstrip("/") / "dmem.current").exists():
            self.add(above)
        self.file(path, "dmem.current", {region: used})
        self.file(path, "dmem.min", {region: soft})
        self.file(path, "dmem.max", {region: hard})
