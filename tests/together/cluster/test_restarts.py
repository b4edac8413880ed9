"""The exporter reports what containerd runs, also while the kubelet or the API server is away."""

import time

import pytest

from tests.together.cluster.conftest import Cluster
from tests.together.cluster.truth import Holder

pytestmark = [pytest.mark.tools, pytest.mark.timeout(900)]


def _watch(cluster: Cluster, held: dict[Holder, int], seconds: float) -> list[object]:
    """Compare the holders for some seconds, and return the differences."""
    wrong: list[object] = []
    entitled: dict[tuple[str, Holder], float] = {}
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for exporter in cluster.exporters:
            rows = exporter.rows()
            reported = {holder: row["slices"] for holder, row in rows.items()}
            wrong += [(exporter.release, reported.items() ^ held.items())] if reported != held else []
            for holder, row in rows.items():
                key, total = (exporter.release, holder), row["entitled_gpu_seconds_total"]
                if total < entitled.get(key, 0):
                    wrong.append((key, entitled[key], total))
                entitled[key] = total
        time.sleep(0.1)
    return wrong


def test_no_holder_is_lost_while_the_kubelet_restarts(cluster: Cluster) -> None:
    """Holders stay while it is away and learns its pods again, and counters never decrease."""
    held = cluster.settled()
    cluster.node.kill("kubelet")
    wrong = _watch(cluster, held, 3)
    cluster.node.start_kubelet()

    wrong += _watch(cluster, held, 20)

    assert wrong == []
    assert cluster.settled() == held


def test_no_holder_is_lost_while_the_api_server_is_away_and_the_kubelet_restarts(cluster: Cluster) -> None:
    """A kubelet without an API server lists no pods: holders with running containers stay for minutes."""
    held = cluster.settled()
    cluster.node.kill("kube-apiserver")
    cluster.node.kill("kubelet")
    cluster.node.start_kubelet()
    try:
        assert _watch(cluster, held, 75) == []
    finally:
        cluster.node.start_api_server()
    # A kubelet retries an API server that was away within a minute.
    cluster.expect("unlisted_pods", {("",): 0})
    assert cluster.settled() == held
