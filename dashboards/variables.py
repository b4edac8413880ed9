"""Variables of the dashboards; each narrows those after it."""

import re

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

from dashboards.promql import CLUSTER, ON_NODES, chosen_nodes, gpu_names, node_names

DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
# The default of the recording rules.
IDLE_SECONDS = 3600
PRICE = "2.5"
_RECORDED = "container:gpuslice_slices:max"
_EXPORTED = "gpuslice_container_slices"


def datasource() -> DatasourceVariable:
    """Return the variable of the Prometheus; its default is Grafana's default data source."""
    return DatasourceVariable("datasource").label("Data source").type("prometheus")


def cluster() -> QueryVariable:
    """Return the variable of clusters. Series without the label are in All."""
    return _chosen("cluster", "Cluster", "label_values(gpuslice_node_info, cluster)")


def node() -> QueryVariable:
    """Return the variable of nodes: one at first, since a whole fleet has too many GPUs to draw."""
    return _listed("node", "Node", f"group by (node) ({node_names(CLUSTER, '$__range')})")


def instance() -> QueryVariable:
    """Return the targets of the chosen nodes (hidden).

    They are in the selectors of every query, where narrowing is cheapest. The GPUs of the nodes would be
    longer lists, and would not narrow series without a GPU.
    """
    nodes = chosen_nodes(CLUSTER, "$__range")
    targets = _listed("instance", "Targets", f"group by (instance) ({nodes})")
    return _all(targets).hide(VariableHide.HIDE_VARIABLE)


def tenants() -> tuple[QueryVariable, ...]:
    """Return the variables of namespaces with holders, and of their pods, including pods that have ended.

    Only lists of values of one label are cheap over any time. Hidden variables select the source: the
    records, which have our labels, or without the rules the series, under the names that our labels have
    there. If both names occur, those that were not renamed are not listed; All includes them, and choosing a
    cluster shows its own.
    """
    pods = f'$rows{{{CLUSTER}, $namespace_label=~"$namespace"}}'
    return (
        _first("rows", "Rows of holders", _RECORDED, f"absent({_RECORDED}{{{CLUSTER}}})", _EXPORTED),
        _label("namespace"),
        _label("pod"),
        _chosen("namespace", "Namespace", f"label_values($rows{{{CLUSTER}}}, $namespace_label)"),
        _chosen("pod", "Pod", f"label_values({pods}, $pod_label)"),
    )


def gpu() -> QueryVariable:
    """Return the variable of GPUs of the chosen nodes: shown by node and index, identified by uuid.

    All also includes GPUs that are not in the list, for instance since they were removed.
    """
    rows = f'label_join({gpu_names(ON_NODES)}, "place", " ", "cluster", "node")'
    rows = f'label_join({rows}, "called", " GPU ", "place", "gpu")'
    query = _chosen("uuid", "GPU", f"query_result({rows})")
    return query.regex('/called=" ?(?<text>[^"]+)".*uuid="(?<value>[^"]+)"/')


def fallback() -> QueryVariable:
    """Return whether the recording rules are missing: empty if they are loaded, else ".+" (hidden)."""
    return _hidden("fallback", "Recording rules absent", _found("absent(cluster:gpuslice_gpus:count)", ".+"))


def idle() -> CustomVariable:
    """Return the variable of the time without computing after which a holder is idle, in seconds."""
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
    """Return the variable of the price of one GPU-hour, in any currency."""
    default = VariableOption(text=PRICE, value=PRICE, selected=True)
    return (
        TextBoxVariable("price")
        .label("Price of a GPU-hour")
        .default_value(PRICE)
        .current(default)
        .options([default])
    )


def _label(name: str) -> QueryVariable:
    """Return the name of one of our labels in the rows of the chosen clusters (hidden)."""
    renamed = f"exported_{name}"
    clashing = f'group($rows{{{CLUSTER}, {renamed}!=""}})'
    return _first(f"{name}_label", f"Label of the {name}", name, clashing, renamed)


def _first(name: str, label: str, usual: str, condition: str, other: str) -> QueryVariable:
    """Return ``other`` if a condition has a result, else ``usual`` (hidden)."""
    return _hidden(name, label, f"{_found(condition, other)} or on () {_found('vector(1)', usual)}")


def _found(rows: str, value: str) -> str:
    return f'label_replace({rows}, "found", "{value}", "", "")'


def _hidden(name: str, label: str, query: str) -> QueryVariable:
    """Return a hidden variable with the values of the label ``found``."""
    return (
        _query(name, label, f"query_result({query})")
        .regex('/found="([^"]+)"/')
        .hide(VariableHide.HIDE_VARIABLE)
    )


def _listed(name: str, label: str, rows: str) -> QueryVariable:
    """Return a variable of rows that have its label alone; several values can be chosen."""
    return _offered(name, label, f"query_result({rows})").regex(f'/{name}="([^"]+)"/')


def _chosen(name: str, label: str, query: str) -> QueryVariable:
    """Return a variable of several values, and All, which includes series without the label."""
    return _all(_offered(name, label, query)).all_value(".*")


def _all(made: QueryVariable) -> QueryVariable:
    """Add All, which is chosen at first; it is the list of all values unless it has its own value."""
    return made.include_all(True).current(VariableOption(text="All", value="$__all", selected=True))


def _offered(name: str, label: str, query: str) -> QueryVariable:
    """Return a variable of several values; at first it has the first one."""
    return _query(name, label, query).sort(VariableSort.ALPHABETICAL_ASC).multi(True)


def _query(name: str, label: str, query: str) -> QueryVariable:
    # Grafana understands the functions label_values() and query_result() on a single line only.
    return (
        QueryVariable(name)
        .label(label)
        .query(re.sub(r"\s*\n\s*", " ", query))
        .datasource(DATASOURCE)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    )
