"""The variables that stand above the dashboards, each of which narrows those after it."""

from grafana_foundation_sdk.builders.dashboard import (
    CustomVariable,
    DatasourceVariable,
    QueryVariable,
    TextBoxVariable,
)
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    VariableHide,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from dashboards.promql import CLUSTER, ON_NODES, gpu_names

DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
# After so long the recording rules call a holder idle, unless their thresholds were changed.
IDLE_SECONDS = 3600
PRICE = "2.5"


def datasource() -> DatasourceVariable:
    """Choose the Prometheus to ask: the default one is taken without asking."""
    return DatasourceVariable("datasource").label("Data source").type("prometheus")


def cluster() -> QueryVariable:
    """Choose clusters. Series of a Prometheus that gives them no such label are in All."""
    return _chosen("cluster", "Cluster", "label_values(gpuslice_node_info, cluster)")


def node() -> QueryVariable:
    """Choose nodes: one at first, for the GPUs of a whole fleet are too many to draw."""
    return _offered("node", "Node", f"label_values(gpuslice_node_info{{{CLUSTER}}}, node)")


def instance() -> QueryVariable:
    """Find the targets that are the chosen nodes (hidden).

    All of them stand in every query, so that it is narrowed where that is cheapest: in the selector. The GPUs
    of the nodes would do as well, but are longer to write, and what tells of no GPU would not be narrowed.
    """
    query = f'label_values(gpuslice_node_info{{{CLUSTER}, node=~"$node"}}, instance)'
    return _all(_offered("instance", "Targets", query)).hide(VariableHide.HIDE_VARIABLE)


def namespace() -> QueryVariable:
    """Choose the namespaces of those who hold or use GPUs."""
    return _chosen("namespace", "Namespace", f"label_values(gpuslice_container_info{{{CLUSTER}}}, namespace)")


def pod() -> QueryVariable:
    """Choose pods of the chosen namespaces."""
    selector = f'{CLUSTER}, namespace=~"$namespace"'
    return _chosen("pod", "Pod", f"label_values(gpuslice_container_info{{{selector}}}, pod)")


def gpu() -> QueryVariable:
    """Choose GPUs of the chosen nodes: shown by node and index, told apart by uuid.

    All also takes those that the list does not know, for instance since they are gone by now.
    """
    rows = f'label_join({gpu_names(ON_NODES)}, "called", " GPU ", "node", "gpu")'
    query = _chosen("uuid", "GPU", f"query_result({rows})")
    return query.regex('/called="(?<text>[^"]+)".*uuid="(?<value>[^"]+)"/').sort(
        VariableSort.ALPHABETICAL_ASC
    )


def fallback() -> QueryVariable:
    """Tell whether the recording rules are loaded: empty if they are, else ".+" (hidden)."""
    rows = 'label_replace(absent(cluster:gpuslice_gpus:count), "found", ".+", "", "")'
    return (
        QueryVariable("fallback")
        .label("Recording rules absent")
        .query(f"query_result({rows})")
        .regex('/found="([^"]+)"/')
        .datasource(DATASOURCE)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .hide(VariableHide.HIDE_VARIABLE)
    )


def idle() -> CustomVariable:
    """Choose how long a holder must not have computed to be listed as idle, in seconds."""
    times = {"10 min": 600, "1 h": IDLE_SECONDS, "6 h": 21600, "1 d": 86400, "7 d": 604800}
    offered = [
        VariableOption(text=text, value=str(seconds), selected=seconds == IDLE_SECONDS)
        for text, seconds in times.items()
    ]
    return (
        CustomVariable("idle")
        .label("Idle for")
        .values(", ".join(f"{option.text} : {option.value}" for option in offered))
        .options(offered)
        .current(next(option for option in offered if option.selected))
    )


def price() -> TextBoxVariable:
    """Type the price of one GPU-hour, in any currency."""
    asked = VariableOption(text=PRICE, value=PRICE, selected=True)
    return (
        TextBoxVariable("price")
        .label("Price of a GPU-hour")
        .default_value(PRICE)
        .current(asked)
        .options([asked])
    )


def _chosen(name: str, label: str, query: str) -> QueryVariable:
    """Several can be chosen, and All, which also takes series without the label."""
    return _all(_offered(name, label, query)).all_value(".*")


def _all(made: QueryVariable) -> QueryVariable:
    """Let all be chosen at once, which they are at first: as what they are, unless All has its own value."""
    return made.include_all(True).current(VariableOption(text="All", value="$__all", selected=True))


def _offered(name: str, label: str, query: str) -> QueryVariable:
    """Several can be chosen; at first it is the first."""
    return (
        QueryVariable(name)
        .label(label)
        .query(query)
        .datasource(DATASOURCE)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
    )
