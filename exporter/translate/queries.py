"""Where rules, dashboards and triggers have their queries, and where panels name labels.

Grafana's dashboards in the classic schema and in v2, the rules and dashboards of clouds, KEDA, Perses.
https://grafana.com/docs/grafana/latest/observability-as-code/schema-v2/
https://learn.microsoft.com/azure/azure-monitor/metrics/prometheus-rule-groups
https://cloud.google.com/monitoring/api/ref_v3/rest/v3/projects.alertPolicies
"""

from typing import Final

from exporter.translate.documents import Mapping, Node, Scalar

# Parts of a panel that name labels as fields.
_FIELDS: Final = ("transformations", "fieldConfig", "options", "links", "styles", "columns")
# The text of a query, or of one that was written before Grafana 12.
_QUERIES: Final = ("query", "__legacyStringValue")


def query_of(node: Mapping) -> Scalar | None:
    """Return the expression of a rule, of a query of a panel, or of a trigger."""
    if (expr := node.scalar("expr") or node.scalar("prometheusQuery")) is not None:
        return expr
    if node.word("alert") or node.word("record"):
        return node.scalar("expression")  # Azure
    if node.word("type") == "prometheus":
        return _query_in(node, "metadata")  # KEDA
    if node.word("kind").startswith("Prometheus"):
        return _query_in(node, "spec")  # Perses
    return _query_in(node, "conditionPrometheusQueryLanguage")  # Google Cloud


def _query_in(node: Mapping, key: str) -> Scalar | None:
    inner = node.get(key)
    return inner.scalar("query") if isinstance(inner, Mapping) else None


def variables(node: Mapping) -> list[Mapping]:
    """Return the variables of a dashboard (classic), or a variable itself (v2), whose values are queried."""
    templating, spec = node.get("templating"), node.get("spec")
    if node.word("kind") == "QueryVariable" and isinstance(spec, Mapping):
        return [spec]
    found = templating.mappings("list") if isinstance(templating, Mapping) else []
    return [variable for variable in found if variable.word("type") in ("query", "")]


def variable_parts(variable: Mapping) -> tuple[Scalar | None, Mapping | None]:
    """Return the query of a variable, and the mapping that it is in if it is not the variable's own."""
    query = variable.get("query")
    while isinstance(query, Mapping):
        found = next((scalar for key in _QUERIES if (scalar := query.scalar(key))), None)
        if found is not None:
            return found, query
        query = query.get("spec")
    return (query, None) if isinstance(query, Scalar) else (None, None)


def field_parts(node: Mapping) -> list[Node]:
    """Return the parts of a panel that name labels; none of what is not a panel."""
    if node.get("targets"):
        return [part for key in _FIELDS if (part := node.get(key)) is not None]
    spec = node.get("spec")
    if node.word("kind") != "Panel" or not isinstance(spec, Mapping):
        return []
    data = spec.get("data")
    inner = data.get("spec") if isinstance(data, Mapping) else None
    found = [spec.get("vizConfig"), spec.get("links")]
    found += [inner.get("transformations")] if isinstance(inner, Mapping) else []
    return [part for part in found if part is not None]
