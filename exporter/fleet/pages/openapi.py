"""The description of the hub's routes, as OpenAPI 3.1: ``/api/v1/openapi.json``."""

from collections.abc import Mapping

from exporter.fleet.pages.waiting_schema import SCHEMAS
from exporter.web.kit.http.responses import ADVICE_TYPES, CONTENT_TYPES
from exporter.web.kit.openapi import describe
from exporter.web.kit.openapi.advice_schema import advice_schema
from exporter.web.kit.openapi.describe import Schema, choice, flag, listed, number, reference, text, whole

# The formats of the cluster, and their content types.
FLEET_TYPES = {name: CONTENT_TYPES[name] for name in ("json", "text", "csv")}
# The longest name of a namespace that Kubernetes allows.
LONGEST_NAME = 63
_NAMES = f"[^,]{{1,{LONGEST_NAME}}}"
_NAMESPACE = {
    "namespace": describe.Parameter(
        "Only the holders in this namespace: its row, idle holders and advice. Sums of nodes and totals stay"
        " those of all. Repeatable, or several with commas.",
        {"type": "array", "items": {"type": "string", "pattern": f"^{_NAMES}(,{_NAMES})*$"}},
    )
}
_WAITING_NAMESPACE = {
    "namespace": describe.Parameter(
        "Only the pods in this namespace. Repeatable, or several with commas.",
        _NAMESPACE["namespace"].schema,
    )
}
_USAGE = {
    "month": describe.Parameter(
        "A month of UTC, such as 2026-10; by default the last 30 days.",
        {"type": "string", "pattern": "^(19[8-9][0-9]|20[0-9]{2})-(0[1-9]|1[0-2])$"},
    ),
    "by": describe.Parameter(
        "namespace (default), owner, model, node, or label:NAME with a label of pods. A hub of some"
        " namespaces has namespace only.",
        {"type": "string", "pattern": "^(namespace|owner|model|node|label:[A-Za-z0-9./_-]{1,80})$"},
    ),
}
_ABOUT = """\
The GPUs of a cluster, their holders and their use, from Prometheus. The API is read-only. HEAD returns the
headers of GET. Unknown parameters are ignored.

Unknown values are null, never 0. Fields may be added. Units are base units."""
# The paths of the hub for programs.
OPERATIONS: describe.Operations = {
    "/": describe.Operation(
        "cluster",
        "The cluster as text.",
        {describe.TEXT: ""},
        parameters=_NAMESPACE,
        refusals=(404,),
        words="For clients that accept HTML a page, which is not described here.",
    ),
    "/api/v1/fleet": describe.Operation(
        "document",
        "The last answer of the cluster.",
        {describe.JSON: "FleetRead", describe.TEXT: "", describe.CSV: ""},
        words="As CSV it is the nodes, which no namespace narrows. Unknown values are empty cells; the column"
        " lower_bounds names the sums that lack unknown parts.",
        parameters={**describe.format_of(FLEET_TYPES), **_NAMESPACE},
        refusals=(404, 503),
    ),
    "/api/v1/advice": describe.Operation(
        "advice",
        "Which slice would fit each workload, by the last seven days, and what that would free.",
        {describe.JSON: "ClusterAdvice", describe.CSV: ""},
        parameters={**describe.format_of(ADVICE_TYPES), **_NAMESPACE},
        refusals=(404, 503),
    ),
    "/api/v1/waiting": describe.Operation(
        "waiting",
        "The pods that wait for a device, with why, and what is nearest to help.",
        {describe.JSON: "Waiting", describe.TEXT: "", describe.CSV: ""},
        parameters={**describe.format_of(FLEET_TYPES), **_WAITING_NAMESPACE},
        refusals=(404, 503),
    ),
    "/waiting": describe.Operation(
        "waiting_text",
        "The pods that wait as text.",
        {describe.TEXT: ""},
        parameters=_WAITING_NAMESPACE,
        refusals=(404, 503),
        words="For clients that accept HTML a page, which is not described here.",
    ),
    "/usage": describe.Operation(
        "usage",
        "Who held and used GPUs in a month, as text.",
        {describe.TEXT: ""},
        parameters=_USAGE,
        refusals=(400, 404, 503),
        words="For clients that accept HTML a page, which is not described here.",
    ),
    "/api/v1/usage": describe.Operation(
        "usage_document",
        "Who held and used GPUs in a month: GPU-hours by group, and where the others went.",
        {describe.JSON: "Usage", describe.CSV: ""},
        words="As CSV it is the groups; as FOCUS a bill in the columns of FOCUS 1.3, a row for each day,"
        " device and holder, of a hub with --prices.",
        parameters={**describe.format_of(("json", "csv", "focus")), **_USAGE},
        refusals=(400, 404, 503),
    ),
    describe.PATH: describe.DESCRIBE,
    "/metrics": describe.Operation("metrics", "Series of the hub itself.", {describe.TEXT: ""}, tagged=False),
    "/-/healthy": describe.probe("healthy", "Whether it runs."),
    "/-/ready": describe.probe("ready", "Whether there is data to show.", refusals=(503,)),
}


def _nullable(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


_AMOUNT, _SHARE = reference("Amount"), reference("Share")
_NODE = {"node": text("Name of the node."), "cluster": text("Cluster of the node.", null=True)}
_SUMS = {
    "gpus": _AMOUNT,
    "slices_held": _AMOUNT,
    "slices_offered": _AMOUNT,
    "units": _nullable(listed(reference("Unit"), "Units of sharing systems, by resource.")),
    "memory_total_bytes": _AMOUNT,
    "memory_bytes": _SHARE,
    "compute_gpus": _SHARE,
}
_TOTALS = {
    "nodes": number("Nodes."),
    "nodes_not_answering": number("Nodes without current data."),
    **_SUMS,
}
_IDLE = {
    "holders": number("All idle holders.", null=True),
    "compute_held": number("Physical GPUs that they hold.", null=True),
    "complete": flag("If false, these are lower bounds: of some holders it is unknown."),
    "listed": _nullable(listed(reference("IdleHolder"), "The largest of them.")),
}
_PROBLEM = {"question": text("What was queried."), "error": text("The error from Prometheus.")}
_READ = {
    "read_at": number("Unix time of the last successful query, null before the first.", null=True),
    "error": text("Why the newest query failed.", null=True),
    "failing_since": number("Unix time since which queries fail.", null=True),
    "fleet": {"anyOf": [reference("Fleet"), {"type": "null"}]},
}
# By name of the schema.
_FIELDS: Mapping[str, dict[str, Schema]] = {
    "Fleet": {
        "timestamp": number("Unix time of all data, by the clock of Prometheus."),
        "window_seconds": number("Window of GPU-hours."),
        "totals": whole(_TOTALS),
        "nodes": listed(reference("Node"), "All nodes."),
        "namespaces": _nullable(listed(reference("Namespace"), "The namespaces that hold GPUs.")),
        "all_namespaces": flag("If false, there may be others."),
        "only_namespaces": _nullable(
            listed({"type": "string"}, "The chosen namespaces; null if holders are those of all.")
        ),
        "idle_holders": whole(_IDLE),
        "sick_gpus": _nullable(listed(reference("SickGpu"), "Worst first.")),
        "all_sick": flag("If false, there may be others."),
        "problems": listed(
            whole(_PROBLEM), "Queries that Prometheus refused; values that need them are null."
        ),
    },
    "Node": {
        **_NODE,
        "job": text("Job of its target."),
        "instance": text("Instance of its target."),
        "answers": flag("Whether there is current data for it."),
        "reason": text("Why it does not answer.", null=True),
        "data_age_seconds": number("Age of its newest data.", null=True),
        "models": {"type": ["object", "null"], "additionalProperties": number("GPUs of this model.")},
        "sharing": _nullable(listed({"type": "string"}, "How its GPUs are shared.")),
        "driver_released": flag("Whether the driver is released.", null=True),
        **_SUMS,
    },
    "Amount": {
        "value": number("Null if unknown.", null=True),
        "complete": flag("If false, the value is a lower bound."),
    },
    "Share": {"held": _AMOUNT, "used": _AMOUNT, "wasted": _AMOUNT},
    "Unit": {"resource": text("Name of the resource."), "held": _AMOUNT, "offered": _AMOUNT},
    "Namespace": {
        "namespace": text("Its name."),
        "holders": number("Its holders.", null=True),
        "all_holders": flag("If false, it may have more."),
        "memory_bytes": _SHARE,
        "compute_gpus": _SHARE,
        "gpu_hours": _SHARE,
    },
    "IdleHolder": {
        **_NODE,
        "namespace": text("Namespace of the pod."),
        "pod": text("Name of the pod."),
        "container": text("Name of the container.", null=True),
        "uuid": text("UUID of the GPU."),
        "mig_uuid": text("UUID of the MIG device.", null=True),
        "gpu": text("Index of the GPU on its node.", null=True),
        "resource": text("The resource allocated to it.", null=True),
        "quiet_seconds": number("Seconds since it last computed.", null=True),
        "memory_held_bytes": number("Memory that it holds.", null=True),
        "memory_used_bytes": number("Memory that it uses.", null=True),
        "compute_held_gpus": number("Physical GPUs that it holds.", null=True),
    },
    "SickGpu": {
        **_NODE,
        "uuid": text("UUID of the GPU."),
        "gpu": text("Index of the GPU on its node.", null=True),
        "model": text("Model of the GPU.", null=True),
        "severity": choice(("bad", "note"), "`bad`: unhealthy; `note`: needs maintenance."),
        "reasons": listed({"type": "string"}, "Why it needs attention, worst first."),
    },
}
_HOURS = {
    "held_gpu_hours": number("GPU-hours held.", null=True),
    "measured_gpu_hours": number("GPU-hours held while use was known.", null=True),
    "used_gpu_hours": number("GPU-hours used.", null=True),
    "energy_kwh": number("Energy in kWh, as far as it was attributed to pods.", null=True),
    "unknown_share_hours": number(
        "Hours for which devices were held with an unknown share, which no GPU-hours have; null if none.",
        null=True,
    ),
}
_CLASSES = {"type": "object", "additionalProperties": number("GPU-hours of this class.")}
_OF_USAGE: Mapping[str, dict[str, Schema]] = {
    "UsageBalance": {
        "start": number("Unix time."),
        "end": number("Unix time."),
        "gpu_hours": number("Known GPUs times hours: the sum of the classes and of what was not observed."),
        "not_observed_gpu_hours": number("GPU-hours that were not observed."),
        "allocation_gpu_hours": _CLASSES,
        "use_gpu_hours": _CLASSES,
    },
    "Usage": {
        "timestamp": number("Unix time of the read."),
        "by": text("What the groups are."),
        "known_gpus": number("GPUs that were observed in the period."),
        "balance": reference("UsageBalance"),
        "held_by_unseen_pods_gpu_hours": number("Held by pods that no scrape saw.", null=True),
        "overcommitted_gpu_hours": number("Shares beyond a GPU.", null=True),
        "currency": text("Currency of the costs; null without prices.", null=True),
        "groups": _nullable(listed(reference("UsageGroup"), "Those that held most first.")),
        "days": listed(reference("UsageBalance"), "The balance of each day."),
        "problems": listed({"type": "string"}, "Queries that failed."),
    },
}
_USAGE_GROUP = {"name": text("Null for what has none.", null=True), **_HOURS}
_USAGE_DEVICE = {
    "model": text("Model of the GPU.", null=True),
    "mig_profile": text("Profile of the MIG device.", null=True),
    **_HOURS,
}
# Of advice, which is read at other times than the cluster.
_FAILURE = {
    "error": text("Why a newer read failed, null if none did.", null=True),
    "failing_since": number("Unix time since which reads fail.", null=True),
}


def _priced(fields: dict[str, Schema]) -> Schema:
    """Return the schema of an object that has a cost if the hub has prices."""
    schema = whole(fields)
    return {**schema, "properties": {**schema["properties"], "cost": _AMOUNT}}


def document() -> Schema:
    """Return the description."""
    advice = advice_schema({"problems": listed({"type": "string"}, "Queries that failed."), **_FAILURE})
    schemas = {name: whole(fields) for name, fields in {**_FIELDS, **_OF_USAGE}.items()}
    schemas["UsageGroup"] = _priced(
        {**_USAGE_GROUP, "devices": listed(_priced(_USAGE_DEVICE), "By model and MIG profile.")}
    )
    return describe.description(
        _ABOUT, OPERATIONS, {"FleetRead": whole(_READ), "ClusterAdvice": advice, **schemas, **SCHEMAS}
    )
