"""The holdings of the node: allocations resolved to devices by each sharing system.

Each system is a class in a file of its maker's folder, and is listed in ``SYSTEMS``. ``base/system.py`` has
the base class, ``base/resolve.py`` asks the systems, ``base/holdings.py`` makes the holdings.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from exporter.model import Allocations, DeviceSharing, FileProblem, GpuReading, Holdings, SystemFiles
from exporter.sharing.alibaba.cgpu import Cgpu
from exporter.sharing.alibaba.gpushare import Gpushare
from exporter.sharing.alibaba.koordinator import Koordinator, KoordinatorHamiCore
from exporter.sharing.base.holdings import holdings_of
from exporter.sharing.base.inventory import Inventory
from exporter.sharing.base.system import Read, Roots, System
from exporter.sharing.base.view import NodeFacts, Objections, View
from exporter.sharing.dra.checkpoint import with_known
from exporter.sharing.dra.drivers import AmdDra, Dra, HamiDra
from exporter.sharing.hami.nvidia import Hami, VolcanoVgpu
from exporter.sharing.hami.vendors import HAMI_VENDORS
from exporter.sharing.nvidia.device_plugin import Nvidia
from exporter.sharing.nvidia.kubevirt import Vgpu, host_devices, vgpu_rows
from exporter.sharing.others.amd_plugin import Amd
from exporter.sharing.others.baidu import Baidu
from exporter.sharing.others.intel_plugin import Intel
from exporter.sharing.others.mgpu import Mgpu
from exporter.sharing.others.nos import Nos
from exporter.sharing.others.nvshare import Nvshare
from exporter.sharing.others.scaleops import ScaleOps
from exporter.sharing.others.tensor_fusion import TensorFusion
from exporter.sharing.others.vgpu_manager import VgpuManager
from exporter.sharing.others.volcano_gpushare import VolcanoGpushare
from exporter.sharing.runai.kai import Kai, KaiLimited
from exporter.sharing.runai.runai import Runai
from exporter.sharing.tencent.gpu_manager import GpuManager
from exporter.sharing.tencent.qgpu import ElasticGpu, Qgpu

__all__ = [
    "SYSTEMS",
    "NodeFacts",
    "Objections",
    "Roots",
    "host_devices",
    "made",
    "read_files",
    "resolve_holdings",
    "vgpu_rows",
    "with_known",
    "without_use",
]

SYSTEMS: tuple[type[System], ...] = (
    Dra,
    HamiDra,
    AmdDra,
    Hami,
    VolcanoVgpu,
    *HAMI_VENDORS,
    VgpuManager,
    Cgpu,
    Gpushare,
    Nvshare,
    Intel,
    Baidu,
    GpuManager,
    Qgpu,
    ElasticGpu,
    VolcanoGpushare,
    Mgpu,
    Kai,
    KaiLimited,
    Runai,
    Koordinator,
    KoordinatorHamiCore,
    TensorFusion,
    ScaleOps,
    Nos,
    Nvidia,
    Amd,
    Vgpu,
)
"""Every system. If several know the same container or id, it belongs to the first."""


def read_files(roots: Roots) -> dict[str, SystemFiles]:
    """Return the contents of the systems' files on the node by system name; blocks, never raises."""
    return {system.name: _files_of(system.name, system.read, roots) for system in SYSTEMS if system.read}


def without_use(files: Mapping[str, SystemFiles]) -> dict[str, SystemFiles]:
    """Return the contents of files without use, for a later poll that cannot read them."""
    return {
        name: replace(
            system_files,
            containers=tuple(
                replace(
                    file,
                    devices=tuple(replace(use, memory_used=None, compute_used=None) for use in file.devices),
                    pids=None,
                )
                for file in system_files.containers
            ),
        )
        for name, system_files in files.items()
    }


def _files_of(name: str, read: Read, roots: Roots) -> SystemFiles:
    try:
        return read(roots)
    except Exception as error:  # noqa: BLE001 - one bad system does not stop the others
        problem = FileProblem(reason="files", about=f"the files of {name}", text=repr(error))
        return SystemFiles(problems=(problem,))


def made(view: View, systems: Iterable[type[System]] = SYSTEMS) -> Iterator[System]:
    """Yield the systems, made for this view; one that fails adds a problem."""
    for system in systems:
        try:
            yield system(view)
        except Exception as error:  # noqa: BLE001 - one bad system does not stop the others
            view.object_to(system.name, "failure", f"all of {system.name}", repr(error))


def resolve_holdings(
    gpus: Iterable[GpuReading],
    allocations: Allocations | None,
    facts: NodeFacts | None = None,
    objections: Objections | None = None,
) -> Holdings:
    """Return every holding of the node; ``allocations`` is None until the kubelet first answers.

    Unreadable annotations, labels and files of other programs are added to ``objections``.
    """
    gpus = tuple(gpus)
    if allocations is None:
        devices = Inventory(gpus).devices
        return Holdings(known=False, devices={device.key: DeviceSharing() for device in devices})
    view = View(gpus, allocations, facts)
    for name, files in view.facts.files.items():
        for problem in files.problems:
            view.object_to(name, problem.reason, problem.about, problem.text)
    holdings = holdings_of(view, list(made(view)))
    if objections is not None:
        objections.turn(view.problems)
    return holdings
