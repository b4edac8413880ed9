"""What must hold true of the virtual GPUs of a scenario."""

import re
from datetime import datetime

from exporter.demo.codec import fail
from exporter.demo.devices import keys
from exporter.demo.schema import Scenario
from exporter.demo.schema_gpu import Gpu
from exporter.demo.schema_vgpu import GuestLicence

_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


def check_vgpus(scenario: Scenario) -> None:
    """Raise ScenarioError with the path of what a vGPU or a licence cannot be."""
    seen: set[str] = set()
    for place, gpu in enumerate(scenario.gpus):
        path = f"gpus[{place}]"
        if gpu.vgpus and gpu.virtualization != "vgpu_host":
            fail(f"{path}.virtualization", f"must be vgpu_host for vGPUs to run, not {gpu.virtualization}")
        if gpu.licence is not None:
            _check_licence(gpu.licence, f"{path}.licence")
        for number, vgpu in enumerate(gpu.vgpus):
            own = f"{path}.vgpus[{number}]"
            if not _UUID.fullmatch(vgpu.mdev_uuid):
                fail(f"{own}.mdev_uuid", f"must be a UUID, not {vgpu.mdev_uuid!r}")
            if vgpu.mdev_uuid.lower() in seen:
                fail(f"{own}.mdev_uuid", f"is {vgpu.mdev_uuid}, which another vGPU has already")
            seen.add(vgpu.mdev_uuid.lower())
            _check_process(scenario, gpu, vgpu.pid, f"{own}.pid")


def _check_process(scenario: Scenario, gpu: Gpu, pid: int, path: str) -> None:
    """Without a process of that pid the vGPU waits for its machine to start; another GPU's is a mistake."""
    devices = {process.device for process in scenario.host_processes if process.pid == pid}
    if devices - {key.mig_uuid or key.uuid for key, _, _ in keys((gpu,))}:
        fail(path, f"the process {pid} of the host does not run on this GPU")


def _check_licence(licence: GuestLicence, path: str) -> None:
    try:
        datetime.fromisoformat(licence.expires or "2000-01-01")
    except ValueError:
        fail(f"{path}.expires", f"must be such as 2027-01-31T23:59:59, not {licence.expires!r}")
