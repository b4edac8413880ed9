"""What run:ai writes of the use of a pod: a file for each number, by the index of the GPU."""

from collections.abc import Iterator, Mapping

from exporter.demo.metered import Metered

PODS = "runai/proc/pod"


def metrics(metered: Metered) -> Mapping[str, str | bytes]:
    """Write what a container's processes use of each GPU that it has."""
    return dict(_numbers(metered))


def _numbers(metered: Metered) -> Iterator[tuple[str, str]]:
    held = {share.device for share in metered.shares}
    for index, state in enumerate(metered.gpus):
        if state.gpu.uuid in held:
            own = [each for each in metered.processes if each.running.process.device == state.gpu.uuid]
            folder = f"{PODS}/{metered.pod.uid}/metrics/gpu/{index}"
            yield f"{folder}/utilization.sm", str(sum(each.sm for each in own))
            yield f"{folder}/memory.allocated", str(sum(each.memory for each in own))
