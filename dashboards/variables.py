"""Variables of the dashboards; each narrows those after it."""

from grafana_foundation_sdk.builders.dashboard import (
    DatasourceVariable,
    QueryVariable,
    TextBoxVariable,
)
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from dashboards.selectors import CLUSTER, NODES

DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_PRICE = "2.5"
_HOLDERS = "container:gpuslice_held_slices:max"


def datasource() -> DatasourceVariable:
    """Return the variable of the Prometheus; its default is Grafana's default data source."""
    return DatasourceVariable("datasource").label("Data source").type("prometheus")


def cluster() -> QueryVariable:
    """Return the variable of clusters. Series without the label are in All."""
    return _all(_query("cluster", "Cluster", "label_values(gpuslice_node_info, cluster)"))


def node() -> QueryVariable:
    """Return the variable of nodes: one at first, since a whole fleet has too many GPUs to draw."""
    return _query("node", "Node", f"label_values(gpuslice_node_info{{{CLUSTER}}}, node)")


def gpu() -> QueryVariable:
    """Return the variable of the indexes of GPUs. A GPU without an index is in All."""
    made = _query("gpu", "GPU", f"label_values(gpuslice_gpu_up{{{NODES}}}, gpu)")
    return _all(made).sort(VariableSort.NUMERICAL_ASC)


def tenants() -> tuple[QueryVariable, ...]:
    """Return the variables of namespaces and pods with holders, also of those that have ended."""
    pods = f'{CLUSTER}, namespace=~"$namespace"'
    return (
        _all(_query("namespace", "Namespace", f"label_values({_HOLDERS}{{{CLUSTER}}}, namespace)")),
        _all(_query("pod", "Pod", f"label_values({_HOLDERS}{{{pods}}}, pod)")),
    )


def price() -> TextBoxVariable:
    """Return the variable of the price of one GPU-hour, in any currency."""
    default = VariableOption(text=_PRICE, value=_PRICE, selected=True)
    return (
        TextBoxVariable("price")
        .label("Price of a GPU-hour")
        .default_value(_PRICE)
        .current(default)
        .options([default])
    )


def _all(made: QueryVariable) -> QueryVariable:
    """Add All, which is chosen at first and includes series without the label."""
    everything = VariableOption(text="All", value="$__all", selected=True)
    return made.include_all(True).all_value(".*").current(everything)


def _query(name: str, label: str, query: str) -> QueryVariable:
    return (
        QueryVariable(name)
        .label(label)
        .query(query)
        .datasource(DATASOURCE)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
    )
