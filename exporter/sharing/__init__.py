"""The holdings of the node: allocations resolved to devices by each sharing system.

Each system is a class, listed in ``SYSTEMS``. ``base/__init__.py`` has the base class, ``base/resolve.py``
asks the systems, ``base/holdings.py`` makes the holdings.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from exporter.model import Allocations, DeviceSharing, GpuReading, Holdings, Problem, SystemFiles
from exporter.sharing.base import Read, Roots, System
from exporter.sharing.base.holdings import holdings_of
from exporter.sharing.base.inventory import Inventory
from exporter.sharing.base.view import NodeFacts, Objections, View
from exporter.sharing.card_systems import Baidu, ElasticGpu, Mgpu, Qgpu, VolcanoGpushare
from exporter.sharing.cgpu import Cgpu
from exporter.sharing.dra import Dra, HamiDra, VgpuManagerDra
from exporter.sharing.dra.amd import AmdDra
from exporter.sharing.dra.claims import ClaimSystem
from exporter.sharing.dra.intel import IntelDra
from exporter.sharing.dra.others import OtherClaims
from exporter.sharing.gpu_manager import GpuManager
from exporter.sharing.gpushare import Gpushare
from exporter.sharing.hami import Hami, VolcanoVgpu
from exporter.sharing.hami.vendors import HAMI_VENDORS
from exporter.sharing.kai import Kai, KaiLimited
from exporter.sharing.koordinator import Koordinator, KoordinatorHamiCore
from exporter.sharing.kubevirt import Vgpu
from exporter.sharing.nvidia_plugin import Nvidia
from exporter.sharing.plain_plugins import Amd, Intel, Nos, Nvshare
from exporter.sharing.runai import Runai
from exporter.sharing.scaleops import ScaleOps
from exporter.sharing.tensor_fusion import TensorFusion
from exporter.sharing.vgpu_manager import VgpuManager

# Every system. If several know the same container or id, it belongs to the first.
SYSTEMS: tuple[type[System], ...] = (
    Dra,
    HamiDra,
    VgpuManagerDra,
    AmdDra,
    IntelDra,
    OtherClaims,
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
OtherClaims.known |= frozenset(system.driver for system in SYSTEMS if issubclass(system, ClaimSystem))


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
        problem = Problem(reason="files", about=f"the files of {name}", text=repr(error))
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
