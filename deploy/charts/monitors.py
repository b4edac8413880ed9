"""JSON schemas of the values of monitors."""

from deploy.charts.kubernetes import Schema, closed, list_of, one_of, text

# As Prometheus and its operator write it, such as 1m30s; empty too.
TIME = text(f"^{''.join(rf'([0-9]{{1,6}}{unit})?' for unit in ('y', 'w', 'd', 'h', 'm', 's', 'ms'))}$")
_BOOLEAN: Schema = {"type": "boolean"}
_NUMBER: Schema = {"type": "integer", "minimum": 0}
_MAPPING: Schema = {"type": "object"}
_TEXTS = list_of(text())
_ACTIONS = (
    *("replace", "keep", "drop", "keepequal", "dropequal", "hashmod"),
    *("labelmap", "labeldrop", "labelkeep", "lowercase", "uppercase"),
)
_RELABELINGS = list_of(
    closed(
        sourceLabels=list_of(text("^[a-zA-Z_][a-zA-Z0-9_]*$")),
        separator=text(),
        targetLabel=text(),
        regex=text(),
        modulus=_NUMBER,
        replacement=text(),
        action=one_of(*_ACTIONS),
    )
)
# Further fields; each operator has some in addition.
_ENDPOINT: Schema = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("interval", "scrapeTimeout", "scrape_interval", "timeout"), TIME),
        **{name: text() for name in ("port", "path", "proxyUrl")},
        "scheme": one_of("http", "https", "HTTP", "HTTPS"),
        "params": {"type": "object", "additionalProperties": _TEXTS},
        **dict.fromkeys(
            ("honorLabels", "honorTimestamps", "followRedirects", "enableHttp2", "filterRunning"), _BOOLEAN
        ),
        **dict.fromkeys(
            ("basicAuth", "authorization", "oauth2", "tlsConfig", "tls", "bearerTokenSecret"), _MAPPING
        ),
        **dict.fromkeys(("relabelings", "metricRelabelings", "metricRelabeling"), _RELABELINGS),
        **{name: list_of(_MAPPING) for name in ("relabelConfigs", "metricRelabelConfigs")},
    },
}
_SPEC: Schema = {
    "type": "object",
    "properties": {
        **dict.fromkeys(
            ("sampleLimit", "targetLimit", "labelLimit", "labelNameLengthLimit", "labelValueLengthLimit"),
            _NUMBER,
        ),
        **dict.fromkeys(("selector", "namespaceSelector", "attachMetadata"), _MAPPING),
        "podTargetLabels": _TEXTS,
        # A mapping for Google.
        "targetLabels": {"type": ["array", "object"]},
        "jobLabel": text(),
    },
}


def monitor(name: str) -> dict[str, Schema]:
    """Return the schemas of the values that each monitor has, by path."""
    return {
        f"{name}.interval": TIME,
        f"{name}.scrapeTimeout": TIME,
        f"{name}.relabelings": _RELABELINGS,
        f"{name}.metricRelabelings": _RELABELINGS,
        f"{name}.endpoint": _ENDPOINT,
        f"{name}.spec": _SPEC,
    }


def node_monitor(name: str) -> dict[str, Schema]:
    """Return the schemas of the values of a monitor of the nodes, by path."""
    return monitor(name) | {f"{name}.attachMetadata": closed(node=_BOOLEAN)}
