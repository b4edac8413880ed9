"""The doctor's checks of what GPUs are read through: the drivers, and a dcgm-exporter where one is named."""

from collections.abc import Iterator, Mapping
from typing import Final

from exporter.assembly import Evidence
from exporter.doctor.findings import Finding
from exporter.doctor.findings import driver as found
from exporter.formats_words import plural
from exporter.model import CollectorHealth, Snapshot
from exporter.report import Check
from exporter.settings import Settings
from exporter.sources import NVIDIA_MODULE

_CAUSES: Final[Mapping[str, Finding]] = {
    "LibRmVersionMismatch": found.DRIVER_MISMATCH,
    "FunctionNotFound": found.LIBRARY_TOO_OLD,
    "NoPermission": found.DRIVER_DENIES,
    "Unknown": found.DEVICE_NODES_REVOKED,
    "deadline": found.DRIVER_HANGS,
    "NotReleased": found.DRIVER_NOT_RELEASED,
}


def driver_checks(
    snapshot: Snapshot, health: Mapping[str, CollectorHealth], evidence: Evidence, settings: Settings
) -> Iterator[Check]:
    """Judge the drivers of the vendors that have hardware here, and a dcgm-exporter where one is named."""
    if "nvml" in health:
        yield from _nvidia(snapshot, health["nvml"], evidence, settings)
    if "amd" in health:
        yield _amd(snapshot, health["amd"], settings)
    if "dcgm" in health:
        yield _dcgm(health["dcgm"])


def _nvidia(
    snapshot: Snapshot, health: CollectorHealth, evidence: Evidence, settings: Settings
) -> Iterator[Check]:
    known = [gpu for gpu in snapshot.gpus if gpu.identity.vendor == "nvidia"]
    if snapshot.gpus and not known and evidence.nvidia_module is False:
        yield found.NO_NVIDIA_GPU.check("driver", "no GPU of NVIDIA's is here, only of other makers")
        return
    driver = snapshot.node.driver
    if not health.success or driver is None:
        yield _broken(snapshot, health, evidence, settings)
        return
    others = sum(gpu.identity.vendor == "amd" for gpu in snapshot.gpus)
    gpus = max((snapshot.node.gpu_count or 0) - others, 0)
    text = f"driver {driver.driver_version}, NVML {driver.nvml_version}, {plural(gpus, 'GPU')}"
    if not gpus:
        yield found.NO_GPU_VISIBLE.check("driver", text)
    elif len(known) < gpus:
        yield found.GPU_UNIDENTIFIED.check("driver", f"{text}, of which {len(known)} can be told apart")
    else:
        yield Check("driver", "OK", text)


def _broken(snapshot: Snapshot, health: CollectorHealth, evidence: Evidence, settings: Settings) -> Check:
    if snapshot.node.released:
        return found.DRIVER_RELEASED.check("driver", health.message)
    missing = f"no kernel module ({settings.sys_root / NVIDIA_MODULE} is not there)"
    loaded = {
        True: "the kernel module is loaded",
        False: missing,
        None: "whether its module is loaded is not known",
    }
    message = health.message or "the last answer is too old"
    cause = _cause(health.reason, evidence, settings)
    return cause.check("driver", f"{message}; {loaded[evidence.nvidia_module]}")


def _cause(reason: str, evidence: Evidence, settings: Settings) -> Finding:
    module = evidence.nvidia_module
    if reason == "LibraryNotFound":
        if settings.nvml_library is not None:
            return found.LIBRARY_UNUSABLE
        return found.LIBRARY_NOT_MOUNTED if module else found.DRIVER_NOT_INSTALLED
    if reason == "DriverNotLoaded":
        return found.DEVICE_NODES_MISSING if module else found.DRIVER_NOT_LOADED
    return _CAUSES.get(reason, found.DRIVER_FAILS)


def _amd(snapshot: Snapshot, health: CollectorHealth, settings: Settings) -> Check:
    if not health.success:
        return found.AMD_FAILS.check("amdgpu", health.message)
    cards = sum(gpu.identity.vendor == "amd" for gpu in snapshot.gpus)
    return Check("amdgpu", "OK", f"{plural(cards, 'AMD GPU')} in {settings.sys_root}")


def _dcgm(health: CollectorHealth) -> Check:
    # Without the URL, which may have a password in it.
    if not health.success:
        return found.DCGM_SILENT.check("dcgm-exporter", health.message)
    return Check("dcgm-exporter", "OK", "answers at --dcgm-exporter-url")
