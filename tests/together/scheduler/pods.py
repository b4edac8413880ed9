"""Random pods: placed ones, and ones that wait, with conditions that the scheduler judges."""

from random import Random

from tests.together.scheduler.control_plane import Json

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ENDING = "ending"
"""The annotation of a pod that is deleted after it was made, and is then ending, as no kubelet stops it."""
IMPLICIT = "deviceclass.resource.kubernetes.io/"
_EXTENDED = (
    *("nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb", "nvidia.com/mig-3g.40gb"),
    *("nvidia.com/gpu.shared", "example.com/gpu", "example.com/mig"),
)


def pod(name: str, namespace: str, requests: Json) -> Json:
    """Return a pod with one container."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [container("main", requests)]},
    }


def container(name: str, requests: Json) -> Json:
    """Return a container; extended resources have limits too, as the API server asks for."""
    limits = {key: value for key, value in requests.items() if "/" in key}
    return {"name": name, "image": "none", "resources": {"requests": requests, "limits": limits}}


def placed(random: Random, name: str, node: str) -> Json:
    """Return a pod on a node; some have ended, have been resized, or keep others out."""
    made = pod(name, random.choice(("ml", "web")), _requests(random, 0.3, []))
    made["metadata"]["labels"] = {"app": random.choice("xyz")}
    made["spec"]["nodeName"] = node
    if random.random() < 0.1:
        made["metadata"]["annotations"] = {ENDING: "true"}
    if random.random() < 0.1:
        made["spec"]["affinity"] = {"podAntiAffinity": {REQUIRED: [_anti_affinity(random)]}}
    kind = random.random()
    if kind < 0.1:
        made["status"] = {"phase": random.choice(("Succeeded", "Failed"))}
    elif kind < 0.2:
        more = {"cpu": random.choice(("1", "3"))}
        resized = {"name": "main", "image": "none", "imageID": "", "ready": True, "restartCount": 0}
        resized["allocatedResources"] = more
        made["status"] = {"phase": "Running", "containerStatuses": [resized]}
    return made


def waiting(random: Random, name: str, nodes: list[str], classes: list[str]) -> Json:
    """Return a pod for the scheduler."""
    made = pod(name, random.choice(("ml", "web")), _requests(random, 0.5, classes))
    made["metadata"]["labels"] = {"app": random.choice("xyz")}
    spec: Json = made["spec"]
    if random.random() < 0.2:
        spec["containers"].append(container("second", _requests(random, 0.1, classes)))
    if random.random() < 0.25:
        spec["initContainers"] = [_init(random, number) for number in range(random.randint(1, 3))]
    if random.random() < 0.1:
        spec["overhead"] = {"cpu": "250m", "memory": "1.5Mi"}
    if random.random() < 0.1:
        # Requests of the whole pod may not be less than those of its containers together.
        spec["containers"] = [container("main", {"cpu": "0.5", "nvidia.com/gpu": "1"})]
        spec["resources"] = {"requests": {"cpu": random.choice(("500m", "3900m")), "memory": "1Gi"}}
        spec.pop("initContainers", None)
    if random.random() < 0.4:
        spec["tolerations"] = [_toleration(random) for _ in range(random.randint(1, 3))]
    if random.random() < 0.3:
        spec["nodeSelector"] = {random.choice(("zone", "disk", "gpus")): random.choice(("a", "ssd", "8"))}
    if random.random() < 0.3:
        terms = [_term(random, nodes) for _ in range(random.randint(1, 2))]
        spec["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    if random.random() < 0.1:
        _add_unjudged(random, spec)
    return made


def undemanding(random: Random, name: str) -> Json:
    """Return a pod for the scheduler that asks for no more than a place."""
    made = pod(name, random.choice(("ml", "web")), {})
    made["spec"]["tolerations"] = [{"operator": "Exists"}]
    return made


def _requests(random: Random, extended: float, classes: list[str]) -> Json:
    requests: Json = {}
    if random.random() < 0.7:
        requests["cpu"] = random.choice(("100m", "0.5", "1", "2500m", "3900m", "8"))
    if random.random() < 0.5:
        requests["memory"] = random.choice(("64Mi", "0.5Gi", "1G", "8Gi", "1500m"))
    if random.random() < 0.1:
        requests["ephemeral-storage"] = random.choice(("1Gi", "5Gi", "2G"))
    if random.random() < extended:
        requests[random.choice(_EXTENDED)] = random.choice(("0", "1", "1", "2", "5"))
    if classes and random.random() < 0.5:
        requests[f"{IMPLICIT}{random.choice(classes)}"] = random.choice(("1", "2"))
    return requests


def _init(random: Random, number: int) -> Json:
    made = container(f"init-{number}", _requests(random, 0.2, []))
    return made | ({"restartPolicy": "Always"} if random.random() < 0.5 else {})


def _toleration(random: Random) -> Json:
    made: Json = {"operator": random.choice(("Exists", "Equal"))}
    if made["operator"] == "Equal" or random.random() < 0.8:
        made["key"] = random.choice(("gpu", "team", "node.kubernetes.io/unschedulable"))
    if made["operator"] == "Equal":
        made["value"] = random.choice(("", "a", "7"))
    effect = random.choice(("", "NoSchedule", "NoExecute", "PreferNoSchedule"))
    return made | ({"effect": effect} if effect else {})


def _condition(random: Random) -> Json:
    key = random.choice(("zone", "disk", "gpus", "none", "kubernetes.io/hostname"))
    operator = random.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    made: Json = {"key": key, "operator": operator}
    if operator in {"In", "NotIn"}:
        made["values"] = [random.choice(("a", "b", "ssd", "8", "4")) for _ in range(random.randint(1, 3))]
    elif operator in {"Gt", "Lt"}:
        made["values"] = [random.choice(("1", "4", "007", "many"))]
    return made


def _term(random: Random, nodes: list[str]) -> Json:
    term: Json = {}
    if random.random() < 0.8:
        term["matchExpressions"] = [_condition(random) for _ in range(random.randint(1, 2))]
    if random.random() < 0.25:
        term["matchFields"] = [
            {
                "key": "metadata.name",
                "operator": random.choice(("In", "In", "NotIn")),
                "values": [random.choice((*nodes, "no-such-node"))],
            }
            for _ in range(random.choice((1, 1, 2)))
        ]
    return term


def _anti_affinity(random: Random) -> Json:
    made: Json = {
        "topologyKey": random.choice(("zone", "kubernetes.io/hostname", "none")),
        "labelSelector": random.choice(
            (
                {"matchLabels": {"app": "x"}},
                {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x", "y"]}]},
                {"matchExpressions": [{"key": "none", "operator": "Exists"}]},
                {},
            )
        ),
    }
    return made | random.choice(
        (
            {},
            {"namespaces": ["web"]},
            {"namespaceSelector": {}},
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ml"}}},
        )
    )


def _add_unjudged(random: Random, spec: Json) -> None:
    """Add one thing that is not judged."""
    labels = {"matchLabels": {"app": "x"}}
    kind = random.choice(("ports", "volumes", "spread", "affinity"))
    if kind == "ports":
        spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    elif kind == "volumes":
        claim = {"claimName": "none"}
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": claim}]
    elif kind == "spread":
        rule = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
        spec["topologySpreadConstraints"] = [rule | {"labelSelector": labels}]
    else:
        term = {"topologyKey": "zone", "labelSelector": labels}
        spec.setdefault("affinity", {})["podAffinity"] = {REQUIRED: [term]}
