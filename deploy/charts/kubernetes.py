"""JSON schemas of values that are passed on to Kubernetes, and helpers to build schemas."""

import re
from typing import Any

from kubernetes_validate.utils import schema_contents

Schema = dict[str, Any]

# The newest Kubernetes, which has the fields of all that the chart supports.
KUBERNETES = "1.37.0"
_DEFINITIONS: dict[str, Schema] = schema_contents(
    f"kubernetes-json-schema/v{KUBERNETES}-local-strict/_definitions.json", KUBERNETES
)["$defs"]
_LIMITS = {"int32": 2**31 - 1, "int64": 2**63 - 1}
_KEPT = ("properties", "additionalProperties", "items", "required", "type", "oneOf", "$ref")


def closed(required: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    """Return the schema of a mapping with these keys and no others."""
    demanded = {"required": list(required)} if required else {}
    return {"type": "object", "additionalProperties": False, **demanded, "properties": properties}


def list_of(items: Schema, **more: int) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": items, **more}


def one_of(*names: str) -> Schema:
    """Return the schema of a text that is one of these."""
    return {"enum": list(names)}


def text(pattern: str | None = None) -> Schema:
    """Return the schema of a text with a part that matches the pattern."""
    return {"type": "string"} if pattern is None else {"type": "string", "pattern": pattern}


def or_null(schema: Schema) -> Schema:
    """Return a schema that also accepts null."""
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return {**schema, "type": [*kinds, "null"]}


def referenced(*schemas: Schema) -> dict[str, Schema]:
    """Return the definitions of Kubernetes to which schemas refer, by name."""
    found: dict[str, Schema] = {}
    waiting = _references(schemas)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = _definition(name)
            waiting += _references(found[name])
    return dict(sorted(found.items()))


def _references(value: Any) -> list[str]:
    return re.findall(r"#/definitions/(io\.k8s\.[\w.]+)", str(value))


def _definition(name: str) -> Schema:
    if name.endswith(".Quantity"):
        return {"type": ["string", "number"], "pattern": _QUANTITY}
    return _strict(_DEFINITIONS[name])


def _strict(schema: Schema) -> Schema:
    """Return a schema without descriptions, and with null as a field only: in lists and maps it is a 0."""
    strict = {key: value for key, value in schema.items() if key in _KEPT}
    if "$ref" in strict:
        return {"$ref": strict["$ref"].replace("#/$defs/", "#/definitions/")}
    if "oneOf" in strict:
        strict["type"] = [kind for each in strict.pop("oneOf") for kind in each["type"]]
    if isinstance(strict.get("type"), list):
        kinds = [kind for kind in dict.fromkeys(strict["type"]) if kind != "null"]
        strict["type"] = kinds[0] if len(kinds) == 1 else kinds
    if limit := _LIMITS.get(schema.get("format", "")):
        # None of those that values have is ever negative.
        strict |= {"minimum": 0, "maximum": limit}
    for key in ("items", "additionalProperties"):
        if strict.get(key):
            strict[key] = _strict(strict[key])
    if "properties" in strict:
        fields = {name: _strict(child) for name, child in strict["properties"].items()}
        required = strict.get("required", ())
        strict["properties"] = {
            name: or_null(child) if "type" in child and name not in required else child
            for name, child in fields.items()
        }
    return strict


def _ref(name: str) -> Schema:
    return {"$ref": f"#/definitions/io.k8s.api.{name}"}


_QUANTITY = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"
_SECONDS: Schema = {"type": "integer", "minimum": 0, "maximum": _LIMITS["int32"]}

NAMED = list_of(closed(("name",), name=text(".")))
PROBE = closed(
    initialDelaySeconds=_SECONDS,
    periodSeconds=_SECONDS,
    timeoutSeconds=_SECONDS,
    failureThreshold=_SECONDS,
    successThreshold=_SECONDS,
)
# Names that also Kubernetes before 1.32 accepts.
ENV = list_of(
    closed(
        ("name",),
        name=text(r"^[-._a-zA-Z][-._a-zA-Z0-9]*$"),
        value=text(),
        valueFrom=_ref("core.v1.EnvVarSource"),
    )
)
VOLUMES = list_of(_ref("core.v1.Volume"))
VOLUME_MOUNTS = list_of(_ref("core.v1.VolumeMount"))
AFFINITY = _ref("core.v1.Affinity")
RESOURCES = _ref("core.v1.ResourceRequirements")
SECURITY_CONTEXT = _ref("core.v1.SecurityContext")
POD_SECURITY_CONTEXT = _ref("core.v1.PodSecurityContext")
ROLLING_UPDATE = _ref("apps.v1.RollingUpdateDaemonSet")
PEERS = list_of(_ref("networking.v1.NetworkPolicyPeer"))
INGRESS_TLS = list_of(_ref("networking.v1.IngressTLS"))
EGRESS = list_of(_ref("networking.v1.NetworkPolicyEgressRule"))
TOLERATIONS = list_of(
    closed(
        key=text(),
        operator=one_of("Exists", "Equal", "Lt", "Gt"),
        value=text(),
        effect=one_of("NoSchedule", "PreferNoSchedule", "NoExecute"),
        tolerationSeconds=_SECONDS,
    )
)
