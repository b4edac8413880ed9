"""Idle pods, for gpu-pruner and for kubectl: a pod whose use is unknown is not idle."""

import re
from pathlib import Path

import pytest
import yaml

from tests.product.recipes.scene import CLUSTERS
from tests.together.end_to_end.programs import Prometheus

ROOT = Path(__file__).parents[3]
IDLE = {(cluster, pod) for cluster in CLUSTERS for pod in ("idle-whole-0", "idle-shared-0")}
PRUNED = """
sum by (cluster, Hostname, container, pod, namespace, gpu, modelName) (
  max_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE{pod != ""}[2m])
  or max_over_time(DCGM_FI_DEV_GPU_UTIL{pod != ""}[2m]) / 100
) == 0
"""
"""The query that gpu-pruner sends for --honor-labels --duration 2, with clusters kept apart."""


def _pods(server: Prometheus, query: str) -> list[dict[str, str]]:
    return [each["metric"] for each in server.api("query", query=query)["result"]]


def _names(pods: list[dict[str, str]]) -> set[tuple[str, str]]:
    return {(pod["cluster"], pod["pod"]) for pod in pods}


@pytest.mark.slow
def test_only_pods_with_known_use_are_idle(server: Prometheus) -> None:
    """Neither a pod with unknown use nor one with an idle device and an unknown one has a maximum of 0."""
    assert _names(_pods(server, "pod:gpuslice_used_gpus:max30m == 0")) == IDLE
    unknown = {"embed-6d4f7c9b8-ddddd", "unknown-0", "half-known-0"}
    assert _names(_pods(server, "pod:gpuslice_unmeasured_devices:count30m")) == {
        (cluster, pod) for cluster in CLUSTERS for pod in unknown
    }


@pytest.mark.slow
def test_a_pod_that_computes_has_its_maximum(server: Prometheus) -> None:
    """The maximum of a pod is in physical GPUs, for each cluster."""
    found = server.query('pod:gpuslice_used_gpus:max30m{pod="infer-5c9d8f7b6-aaaaa"}')

    assert len(found) == len(CLUSTERS)
    assert all(0.8 < value <= 1 for value in found.values())


@pytest.mark.slow
def test_gpu_pruner_finds_the_idle_pods(server: Prometheus) -> None:
    """Its query yields them, with all labels that it requires."""
    found = _pods(server, PRUNED)

    assert _names(found) == IDLE
    assert all(pod.keys() >= {"container", "modelName", "namespace"} for pod in found)


@pytest.mark.slow
def test_the_rule_for_gpu_pruner_is_the_only_series_of_that_name(server: Prometheus) -> None:
    """The option that its file demands turns off the names of DCGM."""
    assert re.search("--dcgm-names off", (ROOT / "deploy/recipes/gpu-pruner-rules.yaml").read_text())
    assert all(pod["modelName"] == "all" for pod in _pods(server, "DCGM_FI_PROF_GR_ENGINE_ACTIVE"))
    assert not _pods(server, "DCGM_FI_DEV_GPU_UTIL")


def test_the_time_is_half_an_hour() -> None:
    """The tests shorten the time of the file, which is the time of its names."""
    rules = yaml.safe_load((ROOT / "deploy/recipes/idle-rules.yaml").read_text())["spec"]["groups"][0][
        "rules"
    ]

    assert [rule["expr"].count("[30m]") for rule in rules] == [3, 0, 1]
    assert ">= 1800" in rules[2]["expr"]
