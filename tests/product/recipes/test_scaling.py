"""Scaling by compute used of entitled, and by free slices; what is unknown gives no value."""

from typing import Any

import pytest
import yaml

from tests.product.recipes.scene import CLUSTERS, RECIPES
from tests.together.end_to_end.programs import Prometheus

ADAPTER = yaml.safe_load((RECIPES / "prometheus-adapter.yaml").read_text())


def _spec(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((RECIPES / name).read_text())["spec"])


def _rows(server: Prometheus, query: str) -> list[tuple[dict[str, str], float]]:
    result = server.api("query", query=query)["result"]
    return [(each["metric"], float(each["value"][1])) for each in result]


def _asked(rule: dict[str, Any], matchers: str, group: str) -> str:
    """Fill a query in as prometheus-adapter does."""
    series = rule["seriesQuery"].partition("{")[0]
    query = str(rule["metricsQuery"])
    return (
        query.replace("<<.Series>>", series)
        .replace("<<.LabelMatchers>>", matchers)
        .replace("<<.GroupBy>>", group)
    )


@pytest.mark.slow
def test_a_workload_is_the_mean_of_its_pods(server: Prometheus) -> None:
    """One pod uses 0.9 of a GPU, the other 0.1 of the quarter that it holds."""
    ratio = _spec("keda-used.yaml")["triggers"][0]["metadata"]["query"]
    found = {labels["cluster"]: value for labels, value in _rows(server, ratio)}

    assert found == {cluster: pytest.approx((0.9 + 0.1 / 0.25) / 2, abs=0.1) for cluster in CLUSTERS}


@pytest.mark.slow
def test_a_workload_with_a_pod_of_unknown_use_has_no_value(server: Prometheus) -> None:
    """Neither 0 nor the mean of the rest: for a MIG device without a meter, and an exporter that is away."""
    found = {
        (labels["cluster"], labels["owner_name"])
        for labels, _ in _rows(server, "workload:gpuslice_used_of_held:ratio")
    }

    assert {name for _, name in found} == {"infer", "wide", "idle-whole", "idle-shared"}
    assert ("west", "wide") in found
    assert ("east", "wide") not in found


@pytest.mark.slow
def test_the_adapter_finds_pods_and_workloads(server: Prometheus) -> None:
    """Each rule's series exist, and its query yields one value for each object that is asked for."""
    (pods,), (workloads,) = ADAPTER["rules"], ADAPTER["externalRules"]
    names = ["infer-5c9d8f7b6-aaaaa", "infer-5c9d8f7b6-bbbbb"]
    of_pods = _rows(server, _asked(pods, f'namespace="ml",pod=~"{"|".join(names)}"', "pod"))
    labels = _spec("hpa-workload.yaml")["metrics"][0]["external"]["metric"]["selector"]["matchLabels"]
    matchers = ",".join(f'{name}="{value}"' for name, value in {"namespace": "ml", **labels}.items())
    of_workloads = _rows(server, _asked(workloads, matchers, ""))

    assert server.query(pods["seriesQuery"])
    assert server.query(workloads["seriesQuery"])
    assert sorted((row["cluster"], row["pod"]) for row, _ in of_pods) == [
        (c, n) for c in CLUSTERS for n in names
    ]
    assert sorted(row["cluster"] for row, _ in of_workloads) == list(CLUSTERS)


def test_autoscalers_ask_for_what_the_adapter_has() -> None:
    """The names of metrics are those of its rules."""
    pods = _spec("hpa-pods.yaml")["metrics"][0]["pods"]["metric"]["name"]
    workloads = _spec("hpa-workload.yaml")["metrics"][0]["external"]["metric"]["name"]

    assert pods == ADAPTER["rules"][0]["name"]["as"]
    assert workloads == ADAPTER["externalRules"][0]["name"]["as"]


def test_keda_takes_no_value_for_an_error() -> None:
    """Without this it would take an unknown value for 0, and scale down."""
    for name in ("keda-used.yaml", "keda-fill.yaml"):
        assert {each["metadata"]["ignoreNullValues"] for each in _spec(name)["triggers"]} == {"false"}


@pytest.mark.slow
def test_free_slices_and_waiting_pods_are_counted(server: Prometheus) -> None:
    """A worker without a node does not count as waiting; all slices are held, and a pod waits for two."""
    triggers = _spec("keda-fill.yaml")["triggers"]
    found = {each["name"]: _rows(server, each["metadata"]["query"]) for each in triggers}

    assert {name: {row["cluster"]: value for row, value in rows} for name, rows in found.items()} == {
        name: dict.fromkeys(CLUSTERS, value) for name, value in (("workers", 1), ("free", 0), ("waiting", 2))
    }


@pytest.mark.slow
def test_nothing_waits_only_if_kube_state_metrics_reports_requests(server: Prometheus) -> None:
    """0 is known, and no series is unknown."""
    query = _spec("keda-fill.yaml")["triggers"][2]["metadata"]["query"]
    none_waits = query.replace('node=""', 'node="no"')

    assert set(server.query(none_waits).values()) == {0}
    assert not server.query(none_waits.replace("nvidia_com_gpu_shared", "nvidia_com_none"))
