"""The description of the pods that wait, for OpenAPI."""

from typing import Final

from exporter.fleet.waiting import REASONS
from exporter.waiting.way import KINDS
from exporter.web.kit.openapi.describe import Schema, choice, flag, listed, number, reference, text, whole

_TEXTS: Final = {"type": "string"}
_NUMBERS: Final = {"type": "object", "additionalProperties": number("")}


def _nullable(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


_WAITING: Final = {
    "timestamp": number("Unix time of the answers."),
    "source": text("Where pods and nodes come from."),
    "ages_seconds": {**_NUMBERS, "description": "Age of what is known, by kind, such as pods and GPUs."},
    "not_seen": listed(_TEXTS, "What could not be read, each with why."),
    "nodes_not_answering": listed(_TEXTS, "Nodes whose exporter does not answer."),
    "only_namespaces": _nullable(listed(_TEXTS, "The namespaces of the pods; null if they are of all.")),
    "pods": _nullable(listed(reference("WaitingPod"), "The longest first; null if they are not known.")),
    "other_pods": number("Pods that wait without asking for a device.", null=True),
    "error": text("Why the newest answers failed.", null=True),
}
_POD: Final = {
    "namespace": text("Namespace of the pod."),
    "pod": text("Name of the pod."),
    "uid": text("UID of the pod."),
    "owner": text("Kind and name of its controller.", null=True),
    "priority": number("Its priority.", null=True),
    "scheduler": text("The scheduler that places it."),
    "gates": listed(_TEXTS, "Scheduling gates that hold it back."),
    "waits_seconds": number("Seconds since the scheduler first could not place it.", null=True),
    "requests": {
        **_NUMBERS,
        "description": "What it requests by resource: millicores of cpu, bytes, and counts.",
    },
    "claims": listed(_TEXTS, "Resource claims that it needs."),
    "reason": choice(tuple(REASONS), "The first reason that holds."),
    "nodes": number("Nodes of the cluster; null if the pod could not be judged.", null=True),
    "nodes_that_fit": number("Nodes that pass all filters.", null=True),
    "nodes_not_judged": number("Nodes that pass all that is judged here, but not all is.", null=True),
    "offers": listed(reference("WaitingOffer"), "Each resource on the nodes that it may go to."),
    "nodes_out": listed(reference("NodesOut"), "Why nodes are out, each node once, the most first."),
    "not_judged": listed(_TEXTS, "What of the pod is not judged on some node."),
    "remarks": listed(_TEXTS, "What holds for the pod as a whole."),
    "pods_ahead": number(
        "Pods that wait for the same and come first, by priority, then age; null if they are not known.",
        null=True,
    ),
    "ways": listed(reference("Way"), "At most five, nearest first, at most one of each kind."),
    "would_not_help": listed(
        whole({"node": text("The node."), "what": text("In words.")}), "What only looks like a way."
    ),
}
_WAY: Final = {
    "kind": choice(KINDS, "By what it costs others, the nearest first."),
    "node": text("The node that the pod would fit."),
    "gpu": text("Index of the GPU on its node.", null=True),
    "what": text("In words."),
    "who_is_asked": text("Who can do it."),
    "would_help": {
        **flag("True if the pod then passes all filters, for it alone; null if not all of it is judged."),
        "type": ["boolean", "null"],
    },
    "not_judged": listed(_TEXTS, "What of the pod is not judged there."),
    "pods": listed(whole({"namespace": _TEXTS, "pod": _TEXTS}), "The pods that would leave."),
    "resource": text("The resource or device class that the pod would ask for.", null=True),
    "instead_of": text("The one that it would no longer ask for.", null=True),
    "commands": listed(_TEXTS, "Commands of the driver, as text: nothing runs them."),
    "stops": text("What it stops or needs besides.", null=True),
    "others": number("Further ways of this kind."),
    "age_seconds": number("Age of the fact that it goes by.", null=True),
}
SCHEMAS: Final = {
    "Waiting": whole(_WAITING),
    "WaitingPod": whole(_POD),
    "WaitingOffer": whole(
        {
            "resource": text("Name of the resource."),
            "requested": number("How many the pod requests."),
            "nodes": number("Nodes that offer it, and that nothing but resources keeps the pod from."),
            "slices": number("Slices that these offer."),
            "free": number("Those that no pod has."),
            "most_free_on_one_node": number("The most free ones of one node."),
        }
    ),
    "NodesOut": whole(
        {"nodes": number("How many."), "reason": text("Why."), "example": text("Name of one of them.")}
    ),
    "Way": whole(_WAY),
}
