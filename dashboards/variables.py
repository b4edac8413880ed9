"""The variables that stand above the dashboards, each of which narrows those after it."""

from grafana_foundation_sdk.builders.dashboard import DatasourceVariable, QueryVariable
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    VariableHide,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from dashboards.promql import CLUSTER, DEVICE, TARGET

DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")


def datasource() -> DatasourceVariable:
    """Choose the Prometheus to ask: the default one is taken without asking."""
    return DatasourceVariable("datasource").label("Data source").type("prometheus")


def cluster() -> QueryVariable:
    """Choose clusters. Series of a Prometheus that gives them no such label are in All."""
    return _chosen("cluster", "Cluster", "label_values(gpuslice_node_info, cluster)")


def node() -> QueryVariable:
    """Choose nodes."""
    return _chosen("node", "Node", f"label_values(gpuslice_node_info{{{CLUSTER}}}, node)")


def namespace() -> QueryVariable:
    """Choose the namespaces of those who hold or use GPUs."""
    return _chosen("namespace", "Namespace", f"label_values(gpuslice_container_info{{{CLUSTER}}}, namespace)")


def pod() -> QueryVariable:
    """Choose pods of the chosen namespaces."""
    selector = f'{CLUSTER}, namespace=~"$namespace"'
    return _chosen("pod", "Pod", f"label_values(gpuslice_container_info{{{selector}}}, pod)")


def gpu() -> QueryVariable:
    """Choose GPUs of the chosen nodes: shown by node and index, told apart by uuid."""
    rows = (
        f"gpuslice_gpu_info{{{CLUSTER}}} * on ({TARGET}) group_left (node) "
        f'max by ({TARGET}, node) (gpuslice_node_info{{{CLUSTER}, node=~"$node"}})'
    )
    rows = f'label_join(max by ({DEVICE}, node, gpu) ({rows}), "called", " GPU ", "node", "gpu")'
    query = _chosen("uuid", "GPU", f"query_result({rows})")
    return query.regex('/called="(?<text>[^"]+)".*uuid="(?<value>[^"]+)"/')


def fallback() -> QueryVariable:
    """Tell whether the recording rules are loaded: empty if they are, else ".+" (hidden)."""
    rows = 'label_replace(absent(cluster:gpuslice_gpus:count), "found", ".+", "", "")'
    return (
        QueryVariable("fallback")
        .label("Recording rules absent")
        .query(f"query_result({rows})")
        .regex('/found="([^"]+)"/')
        .datasource(DATASOURCE)
        .refresh(VariableRefresh.ON_DASHBOARD_LOAD)
        .hide(VariableHide.HIDE_VARIABLE)
    )


def _chosen(name: str, label: str, query: str) -> QueryVariable:
    """Several can be chosen, and All, which also takes series without the label."""
    return (
        QueryVariable(name)
        .label(label)
        .query(query)
        .datasource(DATASOURCE)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(VariableOption(text="All", value="$__all", selected=True))
    )
