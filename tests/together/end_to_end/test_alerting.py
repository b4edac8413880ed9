"""From a fault on a fake node through real Prometheus and Alertmanager to a webhook."""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from alerts.thresholds import load_thresholds
from alerts.write import ALERTS, RECORDING, rule_files
from tests.together.end_to_end.alerting import Receiver, alertmanager, receiving
from tests.together.end_to_end.programs import demo, free_port, prometheus, until

pytestmark = [pytest.mark.slow, pytest.mark.tools]

RUNBOOKS, GRAFANA = "https://runbooks.example", "https://grafana.example"
NUMBERS = f"""
[rules]
interval = "1s"
slow_interval = "10s"
runbook_url = "{RUNBOOKS}"
grafana_url = "{GRAFANA}"

[exporter]
pod_resources_for = "1s"

[hardware]
lost_for = "1s"
xid_window = "8s"

[sharing]
idle_after = "3s"
"""
MODEL = "NVIDIA L4"
UUIDS = [f"GPU-00000000-0000-0000-0000-00000000000{index}" for index in range(3)]
# Start and end of the faults, in seconds after the start of a node.
FROM, TO = 3, 24
XID = 94
XID_ALERT, IDLE, LOST, KUBELET = NAMES = (
    "GpuSliceXidHardware",
    "GpuSliceHolderIdle",
    "GpuSliceGpuLost",
    "GpuSlicePodResourcesDown",
)
# Labels of the exporter's own pod: no alert is about it.
OF_TARGET = {"namespace": "monitoring", "pod": "exporter-x", "container": "exporter", "node": "k8s-3"}
SCRAPE = {
    "honor_labels": True,
    "relabel_configs": [
        {"source_labels": ["job"], "target_label": "instance", "replacement": "$1:9836"},
        *({"target_label": name, "replacement": value} for name, value in OF_TARGET.items()),
    ],
}


def _gpu(index: int) -> dict[str, Any]:
    return {
        "uuid": UUIDS[index],
        "model": MODEL,
        "architecture": 8,
        "memory_total": "23034 MiB",
        "power_idle_mw": 13200,
        "power_max_mw": 72000,
        "clocks": {"sm_idle": 210, "sm_max": 2040, "memory": 6251, "video_max": 1770},
    }


def _pod(index: int, name: str, load: Mapping[str, object]) -> dict[str, Any]:
    process = {"memory": "512 MiB", "load": load}
    holds = {"nvidia.com/gpu": [f"{{gpu:{index}}}"]}
    return {
        "namespace": "ml",
        "name": name,
        "containers": [{"name": "main", "devices": holds, "processes": [process]}],
    }


def _node(name: str, pods: list[dict[str, Any]], faults: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": name,
        "node": {
            "name": name,
            "driver_version": "550.90.07",
            "nvml_version": "12.550.90.07",
            "cuda_version": 12040,
        },
        "gpus": [_gpu(index) for index in range(len(pods))],
        "offers": [{"resource": "nvidia.com/gpu", "of": "gpus"}],
        "pods": pods,
        "faults": faults,
    }


BUSY = {"high": 80}
# Idle until TO, and busy from then on.
LATE = {"shape": "square", "high": 80, "period": 600, "phase": 600 - TO}
SICK = _node(
    "sick-node",
    [_pod(0, "train", BUSY), _pod(1, "notebook", LATE), _pod(2, "serve", BUSY)],
    [
        {"kind": "xid", "at": FROM, "device": "{gpu:0}", "xid": XID},
        {"kind": "nvml_error", "at": FROM, "for": TO - FROM, "device": "{gpu:2}", "code": "GPU_IS_LOST"},
    ],
)
DEAF = _node("deaf-node", [], [{"kind": "kubelet_down", "at": FROM, "for": TO - FROM}])


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """Run each fault once, until the webhook has received its start and its end."""
    folder = tmp_path_factory.mktemp("alerting")
    ports = {node["name"]: free_port() for node in (SICK, DEAF)}
    jobs = {name: f"http://127.0.0.1:{port}/metrics" for name, port in ports.items()}
    with ExitStack() as running, ThreadPoolExecutor() as at_once:
        webhook = running.enter_context(receiving())
        to = running.enter_context(alertmanager(folder, webhook.url))
        rules = prometheus(folder, jobs, scrape=SCRAPE, rules=_rules(folder), alertmanager=to)
        server = running.enter_context(rules)
        # Prometheus takes 5 s until it scrapes at all; faults begin when it does.
        until(lambda: len(server.query("up")) == len(jobs), "both nodes are scraped")
        nodes = [demo(_scenario(folder, node), *_options(ports[node["name"]])) for node in (SICK, DEAF)]
        list(at_once.map(running.enter_context, nodes))
        until(lambda: webhook.received_all(NAMES, "firing"), "the webhook received each fault")
        until(lambda: webhook.received_all(NAMES, "resolved"), "the webhook received the end of each fault")
        yield webhook


def _rules(folder: Path) -> list[Path]:
    numbers = folder / "thresholds.toml"
    numbers.write_text(NUMBERS)
    made = rule_files(load_thresholds(numbers))
    paths = [folder / Path(name).name for name in (RECORDING, ALERTS)]
    for path, name in zip(paths, (RECORDING, ALERTS), strict=True):
        path.write_text(made[name])
    return paths


def _scenario(folder: Path, node: Mapping[str, Any]) -> str:
    path = folder / f"{node['name']}.json"
    path.write_text(json.dumps(node))
    return str(path)


def _options(port: int) -> tuple[str, ...]:
    return ("--poll-interval", "1s", "--listen", f"127.0.0.1:{port}")


def _alert(receiver: Receiver, name: str) -> dict[str, Any]:
    """Return the only alert of that name, which was also resolved, with the same labels."""
    (fired,) = receiver.alerts(name, "firing")
    (over,) = receiver.alerts(name, "resolved")
    assert over["labels"] == fired["labels"]
    assert over["endsAt"] > fired["startsAt"]
    assert fired["annotations"]["runbook_url"] == f"{RUNBOOKS}/{name}.md"
    return dict(fired)


def test_an_xid_fires_and_is_resolved_after_its_window(receiver: Receiver) -> None:
    """It has the GPU, the code and its meaning, and the pod on the GPU."""
    alert = _alert(receiver, XID_ALERT)

    assert alert["labels"] == {
        "alertname": XID_ALERT,
        "severity": "warning",
        "node": "sick-node",
        "gpu": "0",
        "uuid": UUIDS[0],
        "xid": str(XID),
    }
    description = alert["annotations"]["description"]
    assert "uncorrectable memory error was contained" in description
    assert MODEL in description
    assert "ml/train" in description
    assert "exporter-x" not in description
    assert alert["annotations"]["dashboard"] == (
        f"{GRAFANA}/d/gpuslice-hardware?var-cluster=&var-node=sick-node&var-gpu=0"
    )


def test_an_idle_holder_fires_and_is_resolved_when_it_computes(receiver: Receiver) -> None:
    """It has the namespace, pod and container of the holder, not those of the exporter."""
    alert = _alert(receiver, IDLE)

    assert alert["labels"] == {
        "alertname": IDLE,
        "severity": "info",
        "node": "sick-node",
        "gpu": "1",
        "uuid": UUIDS[1],
        "namespace": "ml",
        "pod": "notebook",
        "container": "main",
    }
    assert alert["annotations"]["summary"].startswith("ml/notebook (main) has not computed on GPU 1 ")
    assert alert["annotations"]["dashboard"] == f"{GRAFANA}/d/gpuslice-tenant?var-cluster=&var-namespace=ml"


def test_a_lost_gpu_fires_and_is_resolved_when_it_is_back(receiver: Receiver) -> None:
    """It has the index of the GPU from before, and the pod on it."""
    alert = _alert(receiver, LOST)

    assert alert["labels"] == {
        "alertname": LOST,
        "condition": "lost",
        "severity": "critical",
        "node": "sick-node",
        "gpu": "2",
        "uuid": UUIDS[2],
    }
    assert "ml/serve" in alert["annotations"]["description"]
    assert "ml/train" not in alert["annotations"]["description"]
    assert "exporter-x" not in alert["annotations"]["description"]


def test_a_kubelet_that_is_down_fires_and_is_resolved_when_it_is_back(receiver: Receiver) -> None:
    """It has the node, and not the one whose kubelet answers."""
    alert = _alert(receiver, KUBELET)

    assert alert["labels"] == {
        "alertname": KUBELET,
        "severity": "warning",
        "node": "deaf-node",
        "collector": "podresources",
    }
    assert "deaf-node" in alert["annotations"]["summary"]
    assert "var-node=deaf-node" in alert["annotations"]["dashboard"]
