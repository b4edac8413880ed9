"""What the kernel tells of processes, and what lies beside it: /proc, pod logs, files of jobs, sysfs."""

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from exporter.model import Allocation, Allocations, ContainerRef
from exporter.sharing.kubevirt import host_devices
from exporter.workloads.cgroups import is_root, parse_cgroup
from exporter.workloads.device_memory import read_tree
from exporter.workloads.jobs import read_jobs
from exporter.workloads.pid_namespace import why_no_view
from exporter.workloads.places import read_running
from exporter.workloads.pod_log_dirs import read_pod_logs
from exporter.workloads.processes import ProcessTable, boot_seconds
from tests.together.fuzz.promises import BrokenPromiseError
from tests.together.fuzz.seeds import MARK, Scratch, files_of, parts_of
from tests.together.fuzz.target import Target

_process, _table, _view, _jobs, _logs, _sys, _dmem = (Scratch() for _ in range(7))
UID = "6a1f3c8e-0000-4000-8000-000000000001"
REGION, TILE = b"nvidia/00000000:02:00.0/vidmem", b"drm/0000:03:00.0/vram0"
GPU, FUNCTION, MDEV = "0000:3b:00.0", "0000:3b:00.4", "c73f1fa6-489e-4834-9476-d70dabd98c40"
POD_OF_ANOTHER = (
    f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/crio-{'ef' * 32}.scope\n".encode()
)


def _cgroup(content: bytes) -> Any:
    text = content.decode("utf-8", "replace")
    return parse_cgroup(text), is_root(text)


def _device_memory(content: bytes) -> Any:
    """Read a cgroup whose files of ``dmem``, and the capacity at the root, are these four parts."""
    names = ("dmem.capacity", "pod/dmem.current", "pod/dmem.min", "pod/dmem.max")
    for name, part in zip(names, parts_of(content, len(names)), strict=True):
        _dmem.write(name, part)
    return read_tree(_dmem.path, UID, "/pod")


def _check_device_memory(told: Any) -> None:
    for cgroup in told.cgroups.values():
        for pci, memory in cgroup.memory.items():
            most = told.capacity[pci]
            amounts = (memory.used or 0, memory.guaranteed, memory.limit or 0)
            if not all(0 <= amount <= most for amount in amounts):
                raise BrokenPromiseError(f"more than the GPU has, or less than nothing: {memory} of {most}")


def _stat(content: bytes) -> Any:
    """Read a process whose stat, cgroup and boot clock are these three parts."""
    for name, part in zip(("7/stat", "7/cgroup", "uptime"), parts_of(content, 3), strict=True):
        _process.write(name, part)
    return ProcessTable(_process.path, UID).read({7: None, 8: 1.0}), boot_seconds(_process.path)


def _check_boot(told: Any) -> None:
    _, clock = told
    if clock is not None and not 0 <= clock < float("inf"):
        raise BrokenPromiseError(f"a boot clock of {clock}")


def _seeds_of_stat() -> list[bytes]:
    stats = files_of("hami", "proc/[1-9]*/stat", 2)
    cgroups = files_of("hami", "proc/[1-9]*/cgroup", 2)
    return [MARK.join(parts) + MARK + b"12.5 3.0" for parts in zip(stats, cgroups, strict=False)]


# The 52 fields of proc(5), of a process of this name.
_STAT = b"7 (%s) S 1" + b" 7" * 48


def _running(content: bytes) -> Any:
    """Search a tree of two processes whose cgroup and stat files are these four parts."""
    names = ("7/cgroup", "7/stat", "8/cgroup", "8/stat")
    for name, part in zip(names, parts_of(content, len(names)), strict=True):
        _table.write(name, part)
    return read_running(_table.path)


def _check_running(told: Any) -> None:
    if not told.containers.keys() <= told.pods:
        raise BrokenPromiseError("a container of a pod without processes")


def _pid_view(content: bytes) -> Any:
    """Look at a tree of processes; the pid that the reader itself has stands in an input as {pid}."""
    names = ("1/cgroup", "self/cgroup", "self/status", "2/comm", "3/cgroup")
    for name, part in zip(names, parts_of(content, len(names)), strict=True):
        _view.write(name, part.replace(b"{pid}", b"%d" % os.getpid()))
    return why_no_view(_view.path)


def _job_files(content: bytes) -> Any:
    for name, part in zip(("0", "1.2"), parts_of(content, 2), strict=True):
        _jobs.write(name, part)
    return read_jobs(_jobs.path)


def _pod_logs(content: bytes) -> Any:
    """Read a folder whose one entry is named by the input."""
    name = content.translate(None, b"/\0")[:200].decode("utf-8", "surrogateescape")
    if name in ("", ".", ".."):
        return ()
    path = _logs.path / name
    path.mkdir(exist_ok=True)
    try:
        return read_pod_logs(_logs.path)
    finally:
        path.rmdir()


@cache
def _devices() -> Path:
    """Write what stays around a device: its driver, the GPU that it is of, its group, a mediated device."""
    root, pci = _sys.path, _sys.path / "bus/pci/devices"
    for folder in (
        "bus/pci/drivers/vfio-pci",
        "bus/mdev/devices",
        f"kernel/iommu_groups/12/devices/{FUNCTION}",
    ):
        (root / folder).mkdir(parents=True)
    for folder in (GPU, FUNCTION, f"{FUNCTION}/{MDEV}"):
        (pci / folder).mkdir(parents=True)
    (root / "class/vfio-dev/vfio7").mkdir(parents=True)
    for link, to in (
        (pci / FUNCTION / "driver", root / "bus/pci/drivers/vfio-pci"),
        (pci / FUNCTION / "physfn", pci / GPU),
        (root / "class/vfio-dev/vfio7/device", pci / FUNCTION),
        (root / "bus/mdev/devices" / MDEV, pci / FUNCTION / MDEV),
    ):
        link.symlink_to(to)
    return root


def _host(content: bytes) -> Any:
    """Look up an id that may be a device for a virtual machine, with these files around it."""
    device, vendor, kind = parts_of(content, 3)
    root = _devices()
    for name, part in (("vendor", vendor), ("nvidia/current_vgpu_type", kind)):
        _sys.write(f"bus/pci/devices/{FUNCTION}/{name}", part)
    text = device.decode("utf-8", "replace")
    held = Allocation(ContainerRef("a", "b", "c"), "nvidia.com/A10-4Q", text)
    return host_devices(root, Allocations(allocated=(held,), offered=(), api_version="v1", read_at=0.0))


def _cgroup_seeds() -> Sequence[bytes]:
    return [
        *files_of("hami", "proc/[1-9]*/cgroup", 2),
        f"12:pids:/kubepods/pod{UID}/{'ab' * 32}\n0::/../cri-containerd-{'cd' * 32}.scope\n".encode(),
        f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/crio-{'ef' * 32}.scope\n".encode(),
    ]


TARGETS = (
    Target(
        name="proc-cgroup",
        covers=("exporter.workloads.cgroups",),
        seeds=_cgroup_seeds,
        decode=_cgroup,
        words=(b"pod", b"/../", b"crio-", b"conmon-", UID.encode(), b"ab" * 32),
    ),
    Target(
        name="proc-device-memory",
        covers=("exporter.workloads.device_memory",),
        seeds=lambda: [
            MARK.join(b"%s %s\n" % (REGION, each) for each in (b"17179869184", b"4096", b"0", b"max")),
            MARK.join(b"%s %s\n" % (TILE, each) for each in (b"9", b"3", b"max", b"7")),
        ],
        decode=_device_memory,
        check=_check_device_memory,
        words=(REGION, TILE, b"max", b"-1", b"18446744073709551616"),
    ),
    Target(
        name="proc-process",
        covers=("exporter.workloads.processes",),
        seeds=_seeds_of_stat,
        decode=_stat,
        check=_check_boot,
        words=(b") Z ", b"nan", b"1e999", b"-1", b"18446744073709551616"),
    ),
    Target(
        name="proc-running",
        covers=("exporter.workloads.places",),
        seeds=lambda: [MARK.join((POD_OF_ANOTHER, _STAT % b"pause", POD_OF_ANOTHER, _STAT % b"python3"))],
        decode=_running,
        check=_check_running,
        words=(b"(pod) ", b"/../", b"crio-", UID.encode(), b"ab" * 32),
    ),
    Target(
        name="proc-view",
        covers=("exporter.workloads.pid_namespace",),
        seeds=lambda: [
            MARK.join((b"0::/init.scope\n", b"0::/../x\n", b"NSpid:\t{pid}\n", b"kthreadd\n", b"")),
            MARK.join((b"0::/\n", b"0::/\n", b"NSpid:\t{pid}\n", b"", POD_OF_ANOTHER)),
            MARK.join((b"0::/\n", b"0::/\n", b"NSpid:\t7\t{pid}\n", b"", b"")),
            MARK.join((POD_OF_ANOTHER, b"0::/\n", b"NSpid:\t{pid}\n", b"", b"")),
        ],
        decode=_pid_view,
    ),
    Target(
        name="job-files",
        covers=("exporter.workloads.jobs",),
        seeds=lambda: [b"4711\n4712\n\x1e4713\n"],
        decode=_job_files,
    ),
    Target(
        name="pod-logs",
        covers=("exporter.workloads.pod_log_dirs",),
        seeds=lambda: [f"chat_llm-0_{UID}".encode(), f"kube-system_etcd-a_{'0f' * 16}".encode()],
        decode=_pod_logs,
    ),
    Target(
        name="sysfs-host-devices",
        covers=("exporter.sharing.kubevirt",),
        seeds=lambda: [
            b"12\x1e0x10de\x1e530",
            f"{FUNCTION}\x1e0x10de\x1e0".encode(),
            f"{MDEV.upper()}\x1e\x1e".encode(),
        ],
        decode=_host,
    ),
)
