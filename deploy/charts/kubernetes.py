"""JSON schemas of values that are passed on to Kubernetes, and helpers to build schemas."""

from typing import Any

Schema = dict[str, Any]


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


def _keys(*names: str) -> Schema:
    """Return the schema of a mapping with values that only Kubernetes checks."""
    return closed(**{name: {} for name in names})


_SECONDS: Schema = {"type": "integer", "minimum": 0}
_USERS = ("runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile", "seLinuxOptions", "appArmorProfile")

NAMED = list_of(closed(("name",), name=text(".")))
PROBE = closed(
    initialDelaySeconds=_SECONDS,
    periodSeconds=_SECONDS,
    timeoutSeconds=_SECONDS,
    failureThreshold=_SECONDS,
    successThreshold=_SECONDS,
)
RESOURCES = _keys("requests", "limits", "claims")
SECURITY_CONTEXT = _keys(
    *_USERS,
    *("allowPrivilegeEscalation", "capabilities", "privileged", "procMount", "readOnlyRootFilesystem"),
)
POD_SECURITY_CONTEXT = _keys(
    *_USERS,
    *(
        "fsGroup",
        "fsGroupChangePolicy",
        "seLinuxChangePolicy",
        "supplementalGroups",
        "supplementalGroupsPolicy",
    ),
    "sysctls",
)
TOLERATIONS = list_of(
    closed(
        key=text(),
        operator=one_of("Exists", "Equal", "Lt", "Gt"),
        value=text(),
        effect=one_of("NoSchedule", "PreferNoSchedule", "NoExecute"),
        tolerationSeconds=_SECONDS,
    )
)
PEERS = list_of(
    closed(
        podSelector={"type": "object"},
        namespaceSelector={"type": "object"},
        ipBlock={"type": "object"},
    )
)
