"""JSON schemas of the values of routes to the hub: an Ingress, and an HTTPRoute of the Gateway API (v1).

Patterns are those of the definitions of these kinds.
"""

from deploy.charts.kubernetes import INGRESS_TLS, Schema, closed, list_of, one_of, text

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DOMAIN = rf"{_LABEL}(\.{_LABEL})*"
# Kubernetes refuses an address as a host.
_HOST: Schema = {**text(rf"^(\*\.)?{_DOMAIN}$"), "maxLength": 253, "not": {"pattern": r"^[0-9.]+$"}}
_OBJECT: Schema = {**text(rf"^({_DOMAIN})?$"), "maxLength": 253}
_TEXTS: Schema = {"type": "object", "additionalProperties": text()}
_PARENT = closed(
    ("name",),
    group={**text(rf"^({_DOMAIN})?$"), "maxLength": 253},
    kind={**text("^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$"), "maxLength": 63},
    namespace={**text(rf"^{_LABEL}$"), "maxLength": 63},
    name={**text(rf"^{_DOMAIN}$"), "maxLength": 253},
    sectionName={**text(rf"^{_DOMAIN}$"), "maxLength": 253},
    port={"type": "integer", "minimum": 1, "maximum": 65535},
)


def routes() -> dict[str, Schema]:
    """Return the schemas of these values, by path."""
    ingress, http_route = "hub.ingress", "hub.httpRoute"
    return {
        f"{ingress}.className": _OBJECT,
        f"{ingress}.hosts": list_of(_HOST),
        f"{ingress}.path": {**text(r"^/\S*$"), "maxLength": 1024},
        f"{ingress}.pathType": one_of("Prefix", "ImplementationSpecific"),
        f"{ingress}.annotations": _TEXTS,
        f"{ingress}.tls": INGRESS_TLS,
        f"{http_route}.parentRefs": list_of(_PARENT, maxItems=32),
        f"{http_route}.hostnames": list_of(_HOST, maxItems=16),
        f"{http_route}.path": {**text(r"^/([A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*/?)?$"), "maxLength": 1000},
        f"{http_route}.annotations": _TEXTS,
        f"{http_route}.backendTLS.hostname": _OBJECT,
        f"{http_route}.backendTLS.caConfigMap": _OBJECT,
    }
