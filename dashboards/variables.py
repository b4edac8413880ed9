"""The variables that stand above the dashboards, each of which narrows those after it."""

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
# After so long the recording rules call a holder idle, unless their thresholds were changed.
IDLE_SECONDS = 3600
PRICE = "2.5"
_RECORDED = "container:gpuslice_slices:max"
_EXPORTED = "gpuslice_container_slices"


def datasource() -> DatasourceVariable:
    """Choose the Prometheus to ask: the default one is taken without asking."""
    return DatasourceVariable("datasource").label("Data source").type("prometheus")


def cluster() -> QueryVariable:
    """Choose clusters. Series of a Prometheus that gives them no such label are in All."""
    return _chosen("cluster", "Cluster", "label_values(gpuslice_node_info, cluster)")


def node() -> QueryVariable:
    """Choose nodes: one at first, for the GPUs of a whole fleet are too many to draw."""
    return _asked("node", "Node", f"group by (node) ({node_names(CLUSTER, '$__range')})")


def instance() -> QueryVariable:
    """Find the targets that are the chosen nodes (hidden).

    All of them stand in every query, so that it is narrowed where that is cheapest: in the selector. The GPUs
    of the nodes would do as well, but are longer to write, and what tells of no GPU would not be narrowed.
    """
    nodes = chosen_nodes(CLUSTER, "$__range")
    found = _asked("instance", "Targets", f"group by (instance) ({nodes})")
    return _all(found).hide(VariableHide.HIDE_VARIABLE)


def tenants() -> tuple[QueryVariable, ...]:
    """Choose the namespaces of those who hold or use GPUs, and pods of these, those that are gone by now too.

    Only lists of values of a label are cheap over any time, and those of two labels cannot be put into one.
    Hidden variables say where to look: in the records, whose labels are ours; where the rules are not loaded
    in the series, under the names that our labels have there. If they have several, those that were not
    renamed are not listed; All takes them, and a cluster that is chosen shows its own.
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
    """Choose GPUs of the chosen nodes: shown by node and index, told apart by uuid.

    All also takes those that the list does not know, for instance since they are gone by now.
    """
    rows = f'label_join({gpu_names(ON_NODES)}, "place", " ", "cluster", "node")'
    rows = f'label_join({rows}, "called", " GPU ", "place", "gpu")'
    query = _chosen("uuid", "GPU", f"query_result({rows})")
    return query.regex('/called=" ?(?<text>[^"]+)".*uuid="(?<value>[^"]+)"/')


def fallback() -> QueryVariable:
    """Tell whether the recording rules are loaded: empty if they are, else ".+" (hidden)."""
    return _hidden("fallback", "Recording rules absent", _found("absent(cluster:gpuslice_gpus:count)", ".+"))


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


def _label(name: str) -> QueryVariable:
    """Tell how a label of ours is called in the rows of the chosen clusters (hidden)."""
    renamed = f"exported_{name}"
    clashing = f'group($rows{{{CLUSTER}, {renamed}!=""}})'
    return _first(f"{name}_label", f"Label of the {name}", name, clashing, renamed)


def _first(name: str, label: str, usual: str, condition: str, other: str) -> QueryVariable:
    """Give ``other`` where a condition has a result, else what is usual (hidden)."""
    return _hidden(name, label, f"{_found(condition, other)} or on () {_found('vector(1)', usual)}")


def _found(rows: str, value: str) -> str:
    return f'label_replace({rows}, "found", "{value}", "", "")'


def _hidden(name: str, label: str, query: str) -> QueryVariable:
    """Ask for rows that are told apart by ``found``."""
    return (
        _query(name, label, f"query_result({query})")
        .regex('/found="([^"]+)"/')
        .hide(VariableHide.HIDE_VARIABLE)
    )


def _asked(name: str, label: str, rows: str) -> QueryVariable:
    """Several can be chosen of rows that have the variable's label alone."""
    return _offered(name, label, f"query_result({rows})").regex(f'/{name}="([^"]+)"/')


def _chosen(name: str, label: str, query: str) -> QueryVariable:
    """Several can be chosen, and All, which also takes series without the label."""
    return _all(_offered(name, label, query)).all_value(".*")


def _all(made: QueryVariable) -> QueryVariable:
    """Let all be chosen at once, which they are at first: as what they are, unless All has its own value."""
    return made.include_all(True).current(VariableOption(text="All", value="$__all", selected=True))


def _offered(name: str, label: str, query: str) -> QueryVariable:
    """Several can be chosen; at first it is the first."""
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
