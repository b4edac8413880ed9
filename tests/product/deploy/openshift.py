"""What OpenShift's SecurityContextConstraints may have, as its API (security/v1) defines it, and no more."""

from typing import Any

_BOOLEAN = {"type": "boolean"}
_NAMES = {"type": ["array", "null"], "items": {"type": "string"}}
_NUMBER = {"type": "integer", "minimum": 0}


def _closed(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _strategy(*types: str, **more: Any) -> dict[str, Any]:
    return _closed(("type",), type={"enum": list(types)}, **more)


_RANGES = {"type": "array", "items": _closed(min=_NUMBER, max=_NUMBER)}
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_STRING = {"type": "string"}

# All that the API demands is demanded here, and that the object names itself.
_REQUIRED = (
    *("apiVersion", "kind", "metadata", "allowHostDirVolumePlugin", "allowHostIPC", "allowHostNetwork"),
    *("allowHostPID", "allowHostPorts", "allowPrivilegedContainer", "allowedCapabilities"),
    *("defaultAddCapabilities", "priority", "readOnlyRootFilesystem", "requiredDropCapabilities", "volumes"),
)

SECURITY_CONTEXT_CONSTRAINTS: dict[str, Any] = _closed(
    _REQUIRED,
    apiVersion={"const": "security.openshift.io/v1"},
    kind={"const": "SecurityContextConstraints"},
    metadata=_closed(("name",), name=_STRING, labels=_TEXTS, annotations=_TEXTS),
    priority={"type": ["integer", "null"]},
    allowPrivilegedContainer=_BOOLEAN,
    allowPrivilegeEscalation=_BOOLEAN,
    defaultAllowPrivilegeEscalation=_BOOLEAN,
    defaultAddCapabilities=_NAMES,
    requiredDropCapabilities=_NAMES,
    allowedCapabilities=_NAMES,
    allowHostDirVolumePlugin=_BOOLEAN,
    allowHostNetwork=_BOOLEAN,
    allowHostPorts=_BOOLEAN,
    allowHostPID=_BOOLEAN,
    allowHostIPC=_BOOLEAN,
    readOnlyRootFilesystem=_BOOLEAN,
    volumes=_NAMES,
    allowedFlexVolumes={"type": ["array", "null"], "items": _closed(("driver",), driver=_STRING)},
    allowedUnsafeSysctls=_NAMES,
    forbiddenSysctls=_NAMES,
    seccompProfiles=_NAMES,
    seLinuxContext=_strategy(
        *("MustRunAs", "RunAsAny"),
        seLinuxOptions=_closed(user=_STRING, role=_STRING, type=_STRING, level=_STRING),
    ),
    runAsUser=_strategy(
        *("MustRunAs", "MustRunAsRange", "MustRunAsNonRoot", "RunAsAny"),
        uid=_NUMBER,
        uidRangeMin=_NUMBER,
        uidRangeMax=_NUMBER,
    ),
    supplementalGroups=_strategy("MustRunAs", "RunAsAny", ranges=_RANGES),
    fsGroup=_strategy("MustRunAs", "RunAsAny", ranges=_RANGES),
    users=_NAMES,
    groups=_NAMES,
)
