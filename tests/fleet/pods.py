"""The series of a pod, in place of a Prometheus."""

import json
import re
from collections.abc import Mapping

from exporter.fleet.pages.links import NodeUrl
from exporter.fleet.pod import read_pod
from exporter.fleet.pod_model import PodFound
from exporter.fleet.prometheus import Prometheus, PrometheusError, Response, Sample, read_vector
from tests.fleet.answering import AT, GPU, HOLDER, NODE, TARGET, Answer, Samples, nodes

GIB = float(1 << 30)
URL = "http://n1:9836/holder/ml/train-0/main"
OTHER = {**HOLDER, "namespace": "lab", "pod": "nb", "container": "jupyter"}
INFO = {
    "resource": "nvidia.com/gpu",
    "sharing": "time-slicing",
    "isolation": "none",
    "model": "T4",
    "pod_uid": "u-1",
}
SERIES: Mapping[str, Samples] = {
    "gpuslice_gpu_up": [(GPU, 1.0)],
    "gpuslice_gpu_info": [({**GPU, "model": "T4", "sharing": "time-slicing"}, 1.0)],
    "gpuslice_gpu_condition": [
        ({**GPU, "condition": "needs_reset"}, 1.0),
        ({**GPU, "condition": "lost"}, 0.0),
    ],
    "gpuslice_gpu_holders": [(GPU, 2.0)],
    "gpuslice_gpu_xid_errors_total": [(GPU, 2.0)],
    "gpuslice_gpu_xid_last_timestamp_seconds": [
        ({**GPU, "xid": "31"}, AT - 60),
        ({**GPU, "xid": "79"}, AT - 90_000),
    ],
    "gpuslice_container_info": [({**HOLDER, **INFO}, 1.0), ({**OTHER, **INFO}, 1.0)],
    "gpuslice_container_slices": [(HOLDER, 1.0), (OTHER, 1.0)],
    "gpuslice_container_memory_entitled_bytes": [(HOLDER, 4 * GIB), (OTHER, 4 * GIB)],
    "gpuslice_container_memory_used_bytes": [(HOLDER, 6 * GIB), (OTHER, GIB)],
    "gpuslice_container_memory_peak_bytes": [(HOLDER, 7 * GIB)],
    "gpuslice_container_compute_entitled_ratio": [(HOLDER, 0.25), (OTHER, 0.25)],
    "gpuslice_container_compute_used_ratio": [(HOLDER, 0.0), (OTHER, 0.5)],
    "gpuslice_container_last_active_timestamp_seconds": [(HOLDER, AT - 3600), (OTHER, AT)],
    "gpuslice_container_used_gpu_seconds_total": [(HOLDER, 900.0)],
    "gpuslice_container_entitled_gpu_seconds_total": [(HOLDER, 1800.0)],
    "gpuslice_container_compute_measured_gpu_seconds_total": [(HOLDER, 1800.0)],
    "gpuslice_container_held_seconds_total": [(HOLDER, 7200.0)],
    "gpuslice_container_energy_joules_total": [(HOLDER, 7200.0)],
}
KUBELET: Mapping[str, Samples] = {
    "gpuslice_collector_success": [({**TARGET, **NODE, "collector": "podresources"}, 1.0)],
    "gpuslice_unlisted_pods": [({**TARGET, **NODE}, 0.0)],
}
_NAME = re.compile(r"gpuslice_\w+")


def answers(
    series: Mapping[str, Samples],
    *,
    last: Samples | None = None,
    times: Samples | None = None,
    silent: bool = False,
) -> Answer:
    """Return the answers of a Prometheus with these series now, and with these of the last days."""
    had_any = "gpuslice_container_info" in series or last
    fixed: dict[str, Samples] = {
        "last_over_time(gpuslice_container_info{namespace": last or [],
        "max_over_time(timestamp(": times or [],
        "group(gpuslice_container_info or ": [({}, 1.0)] if had_any else [],
    }
    if silent:
        fixed["topk by (cluster, node)"] = []

    def answer(expression: str) -> Samples | str:
        known = next((samples for start, samples in fixed.items() if expression.startswith(start)), None)
        known = nodes(expression, "n1") if known is None else known
        if known is not None:
            return known
        name = _NAME.match(expression)
        if name is None or "_over_time" in expression:
            return []
        pod = re.search(r'pod="([^"]*)"', expression)
        samples = series.get(name.group(), [])
        return [each for each in samples if pod is None or each[0].get("pod") == pod[1]]

    return answer


class Direct(Prometheus):
    """Answers of a test without a server."""

    def __init__(self, answer: Answer) -> None:
        super().__init__("http://127.0.0.1:9")
        self._answer = answer

    async def query(self, expression: str, _at: float | None = None) -> list[Sample]:
        """Return an answer as the client reads it."""
        result = [({}, AT)] if expression == "vector(time())" else self._answer(expression)
        if isinstance(result, str):
            raise PrometheusError(result)
        rows = [{"metric": labels, "value": [AT, str(value)]} for labels, value in result]
        body = {"status": "success", "data": {"resultType": "vector", "result": rows}}
        return read_vector(Response(200, json.dumps(body).encode()))


async def found(answer: Answer, name: str = "ml/train-0") -> PodFound:
    """Return what is found of a pod."""
    namespace, _, pod = name.partition("/")
    return await read_pod(Direct(answer), namespace, pod, idle_after=600, node_url=NodeUrl())


def week(holder: Mapping[str, str]) -> Samples:
    """Return the records of three days of a holder that uses a tenth of an exclusive GPU."""
    held, kind = 3 * 86400.0, {"model": "T4", "sharing": "exclusive", "isolation": "none"}
    values = {
        "since": AT - held,
        "peak": 2 * GIB,
        "flat": 0.0,
        "memory_known": held,
        "compute_known": held,
        "used": 0.1 * held,
        "steps": held / 300,
        "p95_gpus": 0.1,
        "held_bytes": 16 * GIB,
        "held_gpus": 1.0,
    }
    rows: Samples = [({**holder, "value": name}, value) for name, value in values.items()]
    return [*rows, ({**holder, **kind, "value": "held"}, held)]
