"""What cGPU's kernel module shows of the containers on each GPU."""

from collections.abc import Mapping

from exporter.demo.metered import Metered
from exporter.demo.schema_sharing import Share

# As many digits of a container's id name its instance.
DIGITS = 12
INSTANCES = 16


def instances(metered: Metered) -> Mapping[str, str | bytes]:
    """Write one instance for each GPU that the container has."""
    minors = {state.gpu.uuid: state.gpu.minor for state in metered.gpus}
    files: dict[str, str | bytes] = {}
    for share in (each for each in metered.shares if each.device in minors):
        folder = f"proc/cgpu_km/{minors[share.device]}/{metered.container.container_id[:DIGITS]}"
        files[f"{folder}/id"] = f"{int(metered.container.container_id[:DIGITS], 16) % INSTANCES}\n"
        files[f"{folder}/memsize"] = f"{share.memory}\n"
        files[f"{folder}/weight"] = "1\n"
        files[f"{folder}/meminfo"] = _meminfo(metered, share)
    return files


def _meminfo(metered: Metered, share: Share) -> str:
    here = [state for state in metered.processes if state.running.process.device == share.device]
    free = max(0, share.memory - sum(state.memory for state in here))
    return f"Free: {free}\n" + "".join(f"PID: {state.pid} Mem: {state.memory}\n" for state in here)
