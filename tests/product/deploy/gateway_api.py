"""What the chart's objects of the Gateway API may have, as its definitions (v1, standard) say, and no more.

Of each definition it has the fields that the chart uses. Rules in CEL are patterns here, but for those that
compare parts of a list: ``broken_rules``. Source: config/crd/standard of kubernetes-sigs/gateway-api.
"""

from collections.abc import Iterator
from typing import Any

from tests.product.deploy.rendering import Manifest

Schema = dict[str, Any]
GROUP = "gateway.networking.k8s.io"

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DOMAIN = rf"{_LABEL}(\.{_LABEL})*"
# Characters of a path, without the segments and texts that the rules forbid.
_PATH = r"^(?!.*(//|/\.{1,2}(/|$)|%2[fF]|#))/([-A-Za-z0-9/._~!$&'()*+,;=:@]|%[0-9a-fA-F]{2})*$"


def _closed(required: tuple[str, ...] = (), **properties: Any) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _text(pattern: str = ".*", longest: int = 253, shortest: int = 1) -> Schema:
    return {"type": "string", "pattern": pattern, "maxLength": longest, "minLength": shortest}


def _list(items: Schema, most: int, least: int = 0) -> Schema:
    return {"type": "array", "items": items, "maxItems": most, "minItems": least}


_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_METADATA = _closed(
    ("name", "namespace"), name=_text(), namespace=_text(longest=63), labels=_TEXTS, annotations=_TEXTS
)
_PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
_REFERENCE = {
    "group": _text(rf"^$|^{_DOMAIN}$", shortest=0),
    "kind": _text("^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$", 63),
    "name": _text(),
}
_SECTION = _text(rf"^{_DOMAIN}$")
_NAMESPACE = _text(rf"^{_LABEL}$", 63)
_HOST = _text(rf"^(\*\.)?{_DOMAIN}$")
_MATCH = _closed(path=_closed(type={"enum": ["Exact", "PathPrefix"]}, value=_text(_PATH, 1024)))


def _new_path(kind: str, field: str) -> Schema:
    return _closed(("type", field), type={"const": kind}, **{field: _text(longest=1024)})


_REWRITE = _closed(
    ("type", "urlRewrite"),
    type={"const": "URLRewrite"},
    urlRewrite=_closed(hostname=_HOST, path=_new_path("ReplacePrefixMatch", "replacePrefixMatch")),
)
_REDIRECT = _closed(
    ("type", "requestRedirect"),
    type={"const": "RequestRedirect"},
    requestRedirect=_closed(
        path=_new_path("ReplaceFullPath", "replaceFullPath"),
        statusCode={"enum": [301, 302, 303, 307, 308]},
    ),
)
_BACKEND = _closed(
    ("name", "port"),  # a Service needs its port
    **_REFERENCE,
    namespace=_NAMESPACE,
    port=_PORT,
    weight={"type": "integer", "minimum": 0, "maximum": 1_000_000},
)
_RULE = _closed(
    matches=_list(_MATCH, 64),
    filters=_list({"anyOf": [_REWRITE, _REDIRECT]}, 16),
    backendRefs=_list(_BACKEND, 16),
)
_PARENT = _closed(("name",), **_REFERENCE, namespace=_NAMESPACE, sectionName=_SECTION, port=_PORT)


def _object(kind: str, spec: Schema) -> Schema:
    return _closed(
        ("apiVersion", "kind", "metadata", "spec"),
        apiVersion={"const": f"{GROUP}/v1"},
        kind={"const": kind},
        metadata=_METADATA,
        spec=spec,
    )


HTTP_ROUTE = _object(
    "HTTPRoute",
    _closed(parentRefs=_list(_PARENT, 32), hostnames=_list(_HOST, 16), rules=_list(_RULE, 16, 1)),
)
_AUTHORITY = _closed(("group", "kind", "name"), **_REFERENCE)
_TARGET = _closed(("group", "kind", "name"), **_REFERENCE, sectionName=_SECTION)
_VALIDATION = _closed(
    ("hostname",),
    hostname=_text(rf"^{_DOMAIN}$"),
    caCertificateRefs=_list(_AUTHORITY, 8, 1),
    wellKnownCACertificates={"const": "System"},
)
BACKEND_TLS_POLICY = _object(
    "BackendTLSPolicy",
    _closed(
        ("targetRefs", "validation"),
        targetRefs=_list(_TARGET, 16, 1),
        validation=_VALIDATION
        | {"oneOf": [{"required": ["caCertificateRefs"]}, {"required": ["wellKnownCACertificates"]}]},
    ),
)


def broken_rules(route: Manifest) -> Iterator[str]:
    """Yield the rules that the parts of an HTTPRoute break together."""
    parents: dict[Any, list[str]] = {}
    for parent in route["spec"]["parentRefs"]:
        name = tuple(parent.get(part) for part in ("group", "kind", "namespace", "name"))
        parents.setdefault(name, []).append(parent.get("sectionName", ""))
    for name, sections in parents.items():
        if len(set(sections)) < len(sections) or (len(sections) > 1 and "" in sections):
            yield f"sectionName must be specified and unique for references to the same parent {name}"
    for rule in route["spec"]["rules"]:
        filters = [each["type"] for each in rule.get("filters", ())]
        if "RequestRedirect" in filters and rule.get("backendRefs"):
            yield "RequestRedirect filter must not be used together with backendRefs"
        kinds = [match["path"]["type"] for match in rule["matches"]]
        if "URLRewrite" in filters and kinds != ["PathPrefix"]:
            yield "replacePrefixMatch needs exactly one PathPrefix match"
        if len(set(filters)) < len(filters) or {"URLRewrite", "RequestRedirect"} <= set(filters):
            yield "filters cannot be repeated, and only one of RequestRedirect and URLRewrite be used"
