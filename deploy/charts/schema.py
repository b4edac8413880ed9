"""The JSON schema of the values: types from the defaults, texts from the comments, the rest from this table.

Helm uses Go's regular expressions, which have no look-ahead.
"""

import re
from dataclasses import fields
from typing import Any

from deploy.charts.kubernetes import (
    AFFINITY,
    EGRESS,
    ENV,
    NAMED,
    PEERS,
    POD_SECURITY_CONTEXT,
    PROBE,
    RESOURCES,
    ROLLING_UPDATE,
    SECURITY_CONTEXT,
    TOLERATIONS,
    VOLUME_MOUNTS,
    VOLUMES,
    closed,
    list_of,
    one_of,
    or_null,
    referenced,
    text,
)
from deploy.charts.monitors import TIME, monitor, node_monitor
from deploy.charts.routes import routes
from deploy.charts.values import Value
from exporter.config.parse import ADDRESS, ANCESTOR, HEADER, PREFIX, PRICE, SWITCH, URL, Option
from exporter.config.table import Settings
from exporter.web.kit.auth.web_config import (
    CIPHERS_12,
    CIPHERS_13,
    CURVES,
    HEADERS,
    IF_GIVEN,
    NO_CERTIFICATE,
    REQUIRED,
    VERSIONS,
)

Schema = dict[str, Any]

_TYPES: dict[type, Schema] = {
    bool: {"type": "boolean"},
    int: {"type": "integer", "minimum": 0, "maximum": 2**31 - 1},
    str: {"type": "string"},
}
_TEXTS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_NODES: Schema = {"type": "object", "additionalProperties": text(rf"^({_LABEL})?$")}
# Selectors use these labels, so values must not overwrite them.
_LABELS: Schema = {
    **_NODES,
    "properties": {"app.kubernetes.io/name": False, "app.kubernetes.io/instance": False},
}
_PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
_URL = text(r"^(https?://\S+)?$")
# Of a Prometheus, for instance, which may be in a variable.
_ADDRESS = r"^(https?://|\$\()\S+$"
_DURATION: Schema = {"type": ["string", "number"], "pattern": r"^[0-9]+(\.[0-9]+)?(ms|s|m|h)?$", "minimum": 0}
_PRICE: Schema = {"type": ["string", "number"], "pattern": r"^[0-9]+(\.[0-9]+)?$", "minimum": 0}
_NAME = text(r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$")
# Part of the names of objects; the name of a Service must not begin with a digit.
_OBJECT = text(r"^([a-z]([a-z0-9-]*[a-z0-9])?)?$")
# Defined once and referenced by each alert.
_ALERT: Schema = {"$ref": "#/definitions/alert"}
_DEFINITIONS: Schema = {
    "alert": closed(
        severity=text("."),
        labels=_TEXTS,
        annotations=_TEXTS,
        **{"for": {**TIME, "minLength": 1}},
    )
}
# Other charts use them too.
_GLOBAL: Schema = {
    "imageRegistry": or_null(text()),
    "imagePullSecrets": or_null({"type": "array", "items": {"anyOf": [text("."), NAMED["items"]]}}),
}
# Options of the exporter on a node that a file of settings may have.
NODE_OPTIONS = tuple(
    row.name
    for row in fields(Settings)
    if row.name != "config" and "serve" in row.metadata["option"].commands
)
# Options of the hub that have their own value, or that a pod cannot have.
_HUB_VALUES = ("config", "web_config", "prometheus_url", "kubernetes_api", "kubeconfig")
HUB_OPTIONS = tuple(
    row.name
    for row in fields(Settings)
    if row.name not in _HUB_VALUES and "hub" in row.metadata["option"].commands
)
# What YAML reads unquoted as booleans and numbers.
_BOOLEANS = {"on": True, "off": False}
_NUMBER = re.compile(r"[0-9]+\.[0-9]+")


def values_schema(values: list[Value], alerts: list[str]) -> Schema:
    """Return the schema of all values; ``alerts`` are the names that rules may have."""
    special = _special(alerts)
    root = closed()
    root["properties"] |= {
        "global": {"type": "object", "description": "Values of a parent chart.", "properties": _GLOBAL},
        "enabled": {
            "type": "boolean",
            "description": "Condition of a parent chart; not used by this one.",
        },
    }
    for value in values:
        *groups, name = value.path.split(".")
        place = root
        for group in groups:
            place = place["properties"].setdefault(group, closed())
        schema = special.pop(value.path, None) or _TYPES[type(value.default)]
        place["properties"][name] = {"description": value.text, **schema}
    if special:
        message = f"no such values: {', '.join(special)}"
        raise ValueError(message)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of gpuslice-exporter",
        "definitions": _DEFINITIONS | referenced(root),
        **root,
    }


def option_schema(option: Option) -> Schema:
    """Return the schema of the YAML value of an option."""
    one = _kind_schema(option)
    several = {"anyOf": [one, list_of(one)]} if option.repeatable else one
    default = option.shown if option.shown == "none" else option.shown.strip("`")
    return {"description": f"{option.help} Default: {default}.".replace("`", ""), **several}


def _kind_schema(option: Option) -> Schema:
    kind = option.kind
    if kind is SWITCH or "|" in kind.metavar:
        names = kind.metavar.split("|")
        words = {"enum": [*names, *(_BOOLEANS[name] for name in names if name in _BOOLEANS)]}
        numbers = [float(name) for name in names if _NUMBER.fullmatch(name)]
        # Helm refuses a list with both the text and the number.
        return {"anyOf": [words, {"enum": numbers}]} if numbers else words
    if kind.metavar == "DURATION":
        return _DURATION
    if kind is PRICE:
        return _PRICE
    patterns = {
        id(ADDRESS): r"^(\[[^\]]*\]|[A-Za-z0-9._-]*):[1-9][0-9]{0,4}$",
        id(PREFIX): r"^(/[A-Za-z0-9._~-]+)+/?$",
        id(ANCESTOR): r"^(self|https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?)$",
        id(URL): _ADDRESS,
        id(HEADER): r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+:[ \t]*[!-~]([ -~]*[!-~])?$",
    }
    return text(patterns.get(id(kind), r"."))


def _config(*names: str) -> Schema:
    """Return the schema of options; null resets a value of an earlier file."""
    options = {row.name: row.metadata["option"] for row in fields(Settings) if row.name in names}
    return closed(
        **{name.replace("_", "-"): or_null(option_schema(option)) for name, option in options.items()}
    )


def _special(alerts: list[str]) -> dict[str, Schema]:
    return {
        "nameOverride": _OBJECT,
        "fullnameOverride": _OBJECT,
        "namespaceOverride": _NAME,
        "commonLabels": _LABELS,
        "image.repository": text(r"^([A-Za-z0-9.-]+(:[0-9]+)?/)?[a-z0-9._/-]+$"),
        "image.tag": text(r"^([A-Za-z0-9_][A-Za-z0-9._-]{0,127})?$"),
        "image.digest": text(r"^(sha256:[0-9a-f]{64})?$"),
        "image.pullPolicy": one_of("Always", "IfNotPresent", "Never"),
        "imagePullSecrets": NAMED,
        "config": _config(*NODE_OPTIONS),
        "kubeletRoot": text(r"^/.*[^/]$"),
        "driverRoot": text(r"^(/.*[^/])?$"),
        "adminClaim.deviceClass": text(r"^[a-z0-9][a-z0-9.-]*$"),
        "webConfig.content": _web_config(),
        "webConfig.scheme": one_of("http", "https"),
        "gpuNodes": {
            "type": "object",
            "additionalProperties": or_null(text(rf"^(\*|{_LABEL})$")),
        },
        "nodeSelector": _NODES,
        "affinity": AFFINITY,
        "tolerations": TOLERATIONS,
        "updateStrategy": closed(type=one_of("RollingUpdate", "OnDelete"), rollingUpdate=ROLLING_UPDATE),
        "resources": RESOURCES,
        "podSecurityContext": POD_SECURITY_CONTEXT,
        "securityContext": SECURITY_CONTEXT,
        **dict.fromkeys(("startupProbe", "livenessProbe", "readinessProbe"), PROBE),
        "podLabels": _LABELS,
        "podAnnotations": _TEXTS,
        "annotations": _TEXTS,
        "extraArgs": list_of(text()),
        "extraEnv": ENV,
        "extraVolumes": VOLUMES,
        "extraVolumeMounts": VOLUME_MOUNTS,
        "service.port": _PORT,
        "service.labels": _LABELS,
        "service.annotations": _TEXTS,
        "serviceAccount.name": _NAME,
        "serviceAccount.annotations": _TEXTS,
        "monitoring.place": one_of("prometheus-operator", "google", "victoria-metrics", "azure"),
        **_operator("podMonitor"),
        **_operator("serviceMonitor"),
        **node_monitor("podMonitor"),
        **node_monitor("serviceMonitor"),
        **_rules(alerts),
        "dashboards.namespace": _NAME,
        "dashboards.labels": _LABELS,
        "dashboards.annotations": _TEXTS,
        "networkPolicy.from": PEERS,
        "networkPolicy.egress": EGRESS,
        **_hub(),
    }


def _web_config() -> Schema:
    """Return the schema of a file of --web-config; the program itself checks more."""
    names = list_of(text())
    texts = ("cert", "cert_file", "key", "key_file", "client_ca", "client_ca_file")
    tls = closed(
        **dict.fromkeys(texts, text()),
        client_auth_type=one_of(NO_CERTIFICATE, IF_GIVEN, REQUIRED),
        client_allowed_sans=names,
        min_version=one_of(*VERSIONS),
        max_version=one_of(*VERSIONS),
        cipher_suites=list_of(one_of(*CIPHERS_12, *CIPHERS_13)),
        curve_preferences=list_of(one_of(*CURVES)),
        prefer_server_cipher_suites={"type": "boolean"},
    )
    headers = closed(**{name: text() for name in HEADERS})
    return closed(
        tls_server_config=tls,
        http_server_config=closed(http2={"type": "boolean"}, headers=headers),
        basic_auth_users={"type": "object", "additionalProperties": text(r"^\$2[aby]\$")},
        rate_limit=closed(interval=text(), burst={"type": "integer", "minimum": 0}),
    )


def _operator(name: str) -> dict[str, Schema]:
    return {f"{name}.namespace": _NAME, f"{name}.labels": _LABELS, f"{name}.annotations": _TEXTS}


def _rules(alerts: list[str]) -> dict[str, Schema]:
    return {
        **_operator("prometheusRule"),
        "prometheusRule.disabled": list_of(one_of(*alerts)),
        "prometheusRule.overrides": closed(**dict.fromkeys(alerts, _ALERT)),
        "prometheusRule.alertLabels": _TEXTS,
        "prometheusRule.alertAnnotations": _TEXTS,
        "prometheusRule.runbookUrl": _URL,
        "prometheusRule.grafanaUrl": _URL,
    }


def _hub() -> dict[str, Schema]:
    return {
        "hub.prometheusUrl": text(rf"^$|{_ADDRESS}"),
        "hub.prometheusHeaderSecret": _NAME,
        "hub.namespaces": list_of(text(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")),
        "hub.refresh": _DURATION,
        "hub.window": _DURATION,
        "hub.waiting.serviceAccount": _NAME,
        **_operator("hub.monitor"),
        **monitor("hub.monitor"),
        "hub.monitor.kind": one_of("PodMonitor", "ServiceMonitor"),
        "hub.config": _config(*HUB_OPTIONS),
        "hub.webConfig.scheme": one_of("http", "https"),
        "hub.resources": RESOURCES,
        "hub.podSecurityContext": POD_SECURITY_CONTEXT,
        "hub.securityContext": SECURITY_CONTEXT,
        "hub.nodeSelector": _NODES,
        "hub.affinity": AFFINITY,
        "hub.tolerations": TOLERATIONS,
        "hub.podLabels": _LABELS,
        "hub.podAnnotations": _TEXTS,
        "hub.extraEnv": ENV,
        "hub.extraVolumes": VOLUMES,
        "hub.extraVolumeMounts": VOLUME_MOUNTS,
        "hub.service.type": one_of("ClusterIP", "NodePort", "LoadBalancer"),
        "hub.service.port": _PORT,
        "hub.service.annotations": _TEXTS,
        **routes(),
    }
