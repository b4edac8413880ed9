"""Alibaba's cGPU: a kernel module between containers and driver, which limits each container to its share.

Its scheduling policy is set for each GPU. With the policies *soft* and *native* it limits memory only, and
containers take the compute that others leave.

It uses gpushare's resources and annotations. ``/proc/cgpu_km`` has the instances that the module made,
whatever the annotations say: a container without an instance there belongs to gpushare.
"""

import re
from collections import defaultdict
from pathlib import Path
from typing import ClassVar

from exporter.model import ContainerFile, DeviceUse, Meter, Problem, SystemFiles
from exporter.sharing.base import Grant, Read, Roots
from exporter.sharing.base.inventory import Device
from exporter.sharing.base.reading import UnusableError, content, names_or_problem, problem
from exporter.sharing.gpushare import ALLOCATIONS, Gpushare, HeldUnits

GPU = re.compile(r"[0-9]{1,3}")
CONTAINER = re.compile(r"[0-9a-f]{12,64}")
# -1 means not set.
NUMBER = re.compile(r"(-?)([0-9]{1,19})\s*")
VERSION = re.compile(r"[0-9A-Za-z.+_-]{1,40}")
FREE = re.compile(r"Free: [0-9]{1,20}")
PROCESS = re.compile(r"PID: [0-9]{1,10} Mem: ([0-9]{1,19})")
POLICY = "policy"
MOST_NAMES, LONGEST = 256, 1 << 16
# Scheduling policy: every instance has an equal share of the time, whether the others use theirs or not.
FIXED_SHARE = 0
# Fixed share, preemptive, by weight, fixed percentage; soft, native.
POLICIES = dict.fromkeys("0123", "hard") | dict.fromkeys("45", "soft")


def read_instances(roots: Roots) -> SystemFiles:
    """Return the instances of all containers; ``names`` is empty if the kernel module is not loaded."""
    reading = _Reading()
    root = roots.cgpu
    gpus = names_or_problem(root, MOST_NAMES, reading.problems)
    devices: dict[str, list[DeviceUse]] = defaultdict(list)
    names: dict[str, str] = {}
    for gpu in filter(GPU.fullmatch, gpus):
        share, policy = reading.share(root / gpu), reading.text(root / gpu / POLICY).strip()
        if policy in POLICIES:
            names[f"{int(gpu)}/{POLICY}"] = policy
        containers = names_or_problem(root / gpu, MOST_NAMES, reading.problems)
        for container in filter(CONTAINER.fullmatch, containers):
            devices[container].append(reading.instance(root / gpu / container, gpu, share))
    version = reading.text(root / "version").strip()
    if gpus:
        names = {"version": version if VERSION.fullmatch(version) else "", **names}
    return SystemFiles(
        containers=tuple(
            ContainerFile(container_id=key, devices=tuple(uses)) for key, uses in sorted(devices.items())
        ),
        names=names,
        problems=tuple(reading.problems),
    )


class _Reading:
    """Reads files and collects the problems of those that cannot be used."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def share(self, gpu: Path) -> float | None:
        """Return each instance's share of a GPU's time, None if it is not fixed."""
        policy, most = self._number(gpu / POLICY), self._number(gpu / "max_inst")
        return 1 / most if policy == FIXED_SHARE and most else None

    def instance(self, folder: Path, gpu: str, share: float | None) -> DeviceUse:
        """Return the limits and use of an instance; each of its files may be missing."""
        weight = self._number(folder / "weight")
        return DeviceUse(
            device=str(int(gpu)),
            memory_limit=self._number(folder / "memsize") or None,
            # The effect of other weights on a fixed share is not documented.
            compute_limit=share if weight in (None, 1) else None,
            memory_used=self._used(folder / "meminfo"),
        )

    def text(self, path: Path) -> str:
        """Return the text of a file, "" if it is missing or unusable."""
        try:
            return content(path, LONGEST).decode("ascii")
        except (UnusableError, PermissionError, UnicodeDecodeError) as error:
            self.problems.append(problem(path, error))
        except OSError:
            pass
        return ""

    def _number(self, path: Path) -> int | None:
        text = self.text(path)
        match = NUMBER.fullmatch(text)
        if match is None and text:
            self.problems.append(problem(path, f"{text[:40]!r} is not a number"))
        return int(match[2]) if match is not None and not match[1] else None

    def _used(self, path: Path) -> int | None:
        """Return the sum of the processes' memory in bytes; None if a line cannot be read."""
        lines = self.text(path).splitlines()
        if not lines:
            return None
        sizes = [PROCESS.fullmatch(line) for line in lines if not FREE.fullmatch(line)]
        known = [int(match[1]) for match in sizes if match is not None]
        if len(known) < len(sizes):
            self.problems.append(problem(path, "has a line that is neither Free nor a process"))
            return None
        return sum(known)


class Cgpu(Gpushare):
    """Holders by the instances of the kernel module."""

    name = "cgpu"
    annotated_by = Gpushare.name
    blind_without_pods = ""
    read: ClassVar[Read | None] = staticmethod(read_instances)

    def knows(self, _resource: str) -> bool:
        return bool(self.view.files(self.name).names)

    def isolation_on(self, device: Device) -> str:
        """Return the isolation by the policy of a GPU; soft if the module works with MPS."""
        if self.uses_mps(device):
            return "soft"
        policy = self.view.files(self.name).names.get(f"{device.gpu.identity.minor}/{POLICY}", "")
        return POLICIES.get(policy, "")

    def _of(self, part: HeldUnits) -> tuple[Grant, ...]:
        file = self.view.file(self.name, part.holder)
        uses = file.devices if file is not None else ()
        annotated = (self._units(part, key) for key, _ in ALLOCATIONS)
        units_by_minor = next(filter(None, annotated), {})
        # Without an annotation, a container has the same share of each of its GPUs.
        equal_units = max(1, part.units // max(1, len(uses)))
        return tuple(
            self._instance(part._replace(units=units_by_minor.get(int(use.device)) or equal_units), use)
            for use in uses
        )

    def _instance(self, part: HeldUnits, use: DeviceUse) -> Grant:
        device = self.view.inventory.by_minor(int(use.device))
        percent = self._percent(part.holder, device) if device is not None else None
        # The module counts the memory of a container, and never its compute.
        used = use.memory_used
        return Grant(
            holder=part.holder,
            resource=part.resource,
            device=device,
            slices=part.units,
            memory_entitled=use.memory_limit,
            compute_entitled=use.compute_limit if percent is None else percent / 100,
            meter=None if used is None else Meter(source=self.name, memory=used, memory_only=True),
            may_be=self.view.inventory.meant_by_minor(int(use.device)),
        )
