"""Random clusters: nodes with taints, MIG layouts and devices, pods on them, and pods that wait.

Each is made of its seed. They are small worlds of few words, in which conditions often meet.
"""

from dataclasses import dataclass, field
from random import Random

from tests.together.scheduler import pods
from tests.together.scheduler.claims import DRIVER, cel, claim_of, claims_in_use, dra
from tests.together.scheduler.control_plane import Json

NAMESPACES = ("ml", "web")
PROBE = "probe"
# What mig-parted makes of a GPU of 80 GB, in resources of the device plugin.
LAYOUTS: tuple[dict[str, int], ...] = (
    {"nvidia.com/gpu": 8},
    {"nvidia.com/mig-1g.10gb": 7},
    {"nvidia.com/mig-3g.40gb": 2},
    {"nvidia.com/mig-1g.10gb": 2, "nvidia.com/mig-2g.20gb": 1, "nvidia.com/mig-3g.40gb": 1},
    {"nvidia.com/gpu": 0, "nvidia.com/mig-7g.80gb": 1},
    {"nvidia.com/gpu.shared": 16},
    {},
)


@dataclass(slots=True)
class RandomCluster:
    """The objects of a cluster, in the order in which they are made, and the pods that then wait."""

    objects: list[Json] = field(default_factory=list)
    waiting: list[Json] = field(default_factory=list)


def make(seed: int, name: str, most_nodes: int = 40) -> RandomCluster:
    """Return the cluster of a seed; ``name`` is in the names of its objects."""
    random = Random(seed)  # noqa: S311 - it is to be the same again
    made = RandomCluster()
    count = random.choice((1, 2, 3, random.randint(4, 12), random.randint(8, most_nodes - 1)))
    names = [f"{name}-{number}" for number in range(count)]
    devices = random.random() < 0.5
    counted = random.random() < 0.3
    made.objects += [_node(random, each) for each in names]
    placed = [
        pods.placed(random, f"{name}-placed-{number}", random.choice(names))
        for number in range(random.randint(0, 3 * count))
    ]
    made.objects += placed
    classes = list(_classes(random, name)) if devices else []
    made.objects += classes
    if devices:
        slices = [piece for each in names if random.random() < 0.7 for piece in _slices(random, each)]
        made.objects += slices
        made.objects += claims_in_use(random, name, slices, placed)
    made.objects += _probe(name)
    class_names = [each["metadata"]["name"] for each in classes]
    for number in range(random.randint(6, 16)):
        own_name = f"{name}-pod-{number}"
        if class_names and random.random() < 0.4:
            # A pod that only its claim keeps from any node.
            waiting = pods.undemanding(random, own_name)
            made.waiting.append(claim_of(random, waiting, class_names))
        else:
            waiting = pods.waiting(random, own_name, names, class_names if counted else [])
        if class_names and "resourceClaims" not in waiting["spec"] and random.random() < 0.3:
            made.waiting.append(claim_of(random, waiting, class_names))
        made.waiting.append(waiting)
    return made


def probe_pod(name: str, number: int) -> Json:
    """Return a pod that is only placed once the scheduler has seen the last object of each kind."""
    fields: Json = {"key": "metadata.name", "operator": "In", "values": [f"{name}-{PROBE}"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [fields]}]}
    pod = pods.pod(f"{name}-{PROBE}-{number}", "ml", {})
    pod["spec"] |= {
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {pods.REQUIRED: terms}},
        "resourceClaims": [{"name": "claim", "resourceClaimName": f"{name}-{PROBE}"}],
    }
    return pod


def probe_claim(name: str) -> Json:
    """Return a claim for a device of the probe's node."""
    probe = f"{name}-{PROBE}"
    exactly: Json = {"deviceClassName": probe, "allocationMode": "ExactCount", "count": 1}
    return dra("ResourceClaim", probe, {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}, "ml")


def _node(random: Random, name: str) -> Json:
    labels = {"kubernetes.io/hostname": name, "zone": random.choice("abc"), "gpus": random.choice("0248")}
    for key in ("disk", "pool"):
        if random.random() < 0.6:
            labels[key] = random.choice(("ssd", "hdd", "8"))
    taints = [
        {"key": key, "value": random.choice(("", "a", "7")), "effect": effect}
        for key in ("gpu", "team")
        for effect in ("NoSchedule", "PreferNoSchedule", "NoExecute")
        if random.random() < 0.04
    ]
    allocatable = {
        "cpu": random.choice(("1", "4", "3900m", "64")),
        "memory": random.choice(("1Gi", "8Gi", "512Mi", "16777216Ki")),
        "pods": random.choice(("2", "5", "110")),
        **({"ephemeral-storage": random.choice(("10Gi", "1G"))} if random.random() < 0.8 else {}),
        **{key: str(value) for key, value in random.choice(LAYOUTS).items()},
    }
    spec: Json = {"taints": taints}
    if random.random() < 0.08:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"allocatable": allocatable, "capacity": allocatable},
    }


def _classes(random: Random, name: str) -> list[Json]:
    resources = ["example.com/gpu", "nvidia.com/gpu", "example.com/mig"]
    random.shuffle(resources)
    found = []
    for number, resource in enumerate(resources[: random.randint(1, 3)]):
        spec: Json = {"selectors": cel(random, 0.03)}
        if random.random() < 0.5:
            spec["extendedResourceName"] = resource
        found.append(dra("DeviceClass", f"{name}-class-{number}", spec))
    return found


def _device(random: Random, number: int) -> Json:
    mig = random.random() < 0.5
    attributes: Json = {
        "type": {"string": "mig" if mig else "gpu"},
        "index": {"int": number},
        "productName": {"string": random.choice(("NVIDIA H100 80GB", "NVIDIA A100"))},
        "driverVersion": {"version": random.choice(("570.86.15", "550.1.0", "570.0.0-rc.1"))},
    }
    if mig:
        attributes["profile"] = {"string": random.choice(("1g.10gb", "3g.40gb"))}
    if random.random() < 0.3:
        attributes["other.example.com/rack"] = {"string": "r1"}
    device: Json = {
        "name": f"gpu-{number}",
        "attributes": attributes,
        "capacity": {"memory": {"value": random.choice(("10Gi", "40Gi", "80Gi"))}},
    }
    if random.random() < 0.1:
        effect = random.choice(("NoSchedule", "NoExecute", "None"))
        device["taints"] = [{"key": "sick", "value": random.choice("xy"), "effect": effect}]
    return device


def _slices(random: Random, node: str) -> list[Json]:
    """Return the slices of a pool: mostly one, complete, of one node."""
    count = random.choice((1, 1, 1, 2))
    announced = count + (random.random() < 0.05)
    place: Json = {"nodeName": node}
    if random.random() < 0.05:
        requirement = {"key": "zone", "operator": "In", "values": [random.choice("abc")]}
        place = {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}
    elif random.random() < 0.03:
        place = {"allNodes": True}
    shared = random.random() < 0.3
    devices = [_device(random, each) for each in range(random.randint(1, 6 if shared else 4))]
    pool = {"name": node, "generation": 1, "resourceSliceCount": announced + shared}
    contents: list[Json] = [{"devices": devices[number::count]} for number in range(count)]
    if shared:
        # MIG devices of one GPU, which share its memory slices.
        counters = {"memory": {"value": random.choice(("4", "8"))}}
        contents.append({"sharedCounters": [{"name": "gpu", "counters": counters}]})
        for each in devices[random.randint(0, 1) :]:
            taken = {"memory": {"value": random.choice(("1", "2", "4"))}}
            each["consumesCounters"] = [{"counterSet": "gpu", "counters": taken}]
    return [
        dra("ResourceSlice", f"{node}-{number}", {"driver": DRIVER, "pool": pool, **content, **place})
        for number, content in enumerate(contents)
    ]


def _probe(name: str) -> list[Json]:
    """Return the last objects of each kind: one node, whose only device and pod are the probe's."""
    probe = f"{name}-{PROBE}"
    room = {"cpu": "1", "memory": "1Gi", "pods": "1"}
    node: Json = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": probe, "labels": {"kubernetes.io/hostname": probe}},
        "spec": {"taints": [{"key": PROBE, "effect": "NoSchedule"}]},
        "status": {"allocatable": room, "capacity": room},
    }
    selector = [{"cel": {"expression": f"device.driver == '{PROBE}.example.com'"}}]
    pool = {"name": probe, "generation": 1, "resourceSliceCount": 1}
    spec: Json = {
        "driver": f"{PROBE}.example.com",
        "pool": pool,
        "nodeName": probe,
        "devices": [{"name": "d"}],
    }
    return [
        node,
        dra("DeviceClass", probe, {"selectors": selector}),
        dra("ResourceSlice", probe, spec),
        probe_claim(name),
    ]
