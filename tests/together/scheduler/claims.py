"""Random claims (DRA): of pods that wait, and in use by pods of a node."""

from random import Random
from typing import Any

from tests.together.scheduler.control_plane import Json

DRIVER = "gpu.example.com"
_OF = f"device.attributes['{DRIVER}']"
SELECTORS = (
    f"device.driver == '{DRIVER}'",
    f"{_OF}.type == 'mig'",
    f"{_OF}.type in ['gpu', 'vfio'] || {_OF}.type.startsWith('mi')",
    f"'profile' in {_OF} && {_OF}.profile == '3g.40gb'",
    f"!('profile' in {_OF})",
    f"has({_OF}.index) && {_OF}.index > 1",
    f"{_OF}.index <= 2 && {_OF}.driverVersion.isGreaterThan(semver('570.0.0'))",
    f"device.capacity['{DRIVER}'].memory.compareTo(quantity('30Gi')) >= 0",
    "'rack' in device.attributes['other.example.com']",
    f"{_OF}.index == '1'",
    f"{_OF}.productName.lowerAscii().contains('h100')",
)
DEVICE_TOLERATIONS: tuple[Json, ...] = (
    {"operator": "Exists"},
    {"key": "sick", "operator": "Equal", "value": "x"},
    {"key": "sick", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
)
# One that CEL fails on for whole GPUs, and one that is not simple.
DOUBTFUL_SELECTORS = (f"{_OF}.profile == '1g.10gb'", f"{_OF}.productName.matches('.*H100.*')")


def dra(kind: str, name: str, spec: Json, namespace: str | None = None) -> Json:
    """Return an object of the API group of DRA."""
    place = {} if namespace is None else {"namespace": namespace}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, **place},
        "spec": spec,
    }


def cel(random: Random, doubtful: float) -> list[Json]:
    """Return up to two selectors of devices, doubtful ones with this probability."""
    pool = DOUBTFUL_SELECTORS if random.random() < doubtful else SELECTORS
    return [{"cel": {"expression": random.choice(pool)}} for _ in range(random.randint(0, 2))]


def _request(random: Random, name: str, classes: list[str]) -> Json:
    chosen = "no-such-class" if random.random() < 0.02 else random.choice(classes)
    exactly: Json = {"deviceClassName": chosen, "selectors": cel(random, 0.05)}
    if random.random() < 0.2:
        exactly["tolerations"] = [random.choice(DEVICE_TOLERATIONS)]
    if random.random() < 0.15:
        exactly["allocationMode"] = "All"
    else:
        exactly |= {"allocationMode": "ExactCount", "count": random.choice((1, 1, 2, 3))}
    return {"name": name, "exactly": exactly}


def claim_of(random: Random, waiting: Json, classes: list[str]) -> Json:
    """Make a claim that a pod then asks for, and return it."""
    metadata = waiting["metadata"]
    requests = [_request(random, f"r{number}", classes) for number in range(random.choice((1, 2, 2)))]
    devices: Json = {"requests": requests}
    if random.random() < 0.05:
        devices["constraints"] = [{"matchAttribute": f"{DRIVER}/productName"}]
    waiting["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": metadata["name"]}]
    waiting["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    return dra("ResourceClaim", metadata["name"], {"devices": devices}, metadata["namespace"])


def claims_in_use(random: Random, name: str, slices: list[Json], placed: list[Json]) -> list[Json]:
    """Return claims that have a device each, most of them used by pods of the device's node."""
    claims: list[Json] = []
    often = random.choice((0.25, 0.9))
    for piece in slices:
        there = [each for each in placed if each["spec"]["nodeName"] == piece["spec"].get("nodeName")]
        for device in piece["spec"].get("devices", ()):
            if random.random() < often:
                users = random.sample(there, min(len(there), random.choice((0, 1, 1, 1, 2))))
                claims.append(
                    _claim_in_use(random, f"{name}-used-{len(claims)}", piece, device["name"], users)
                )
    return claims


def _claim_in_use(random: Random, name: str, piece: Json, device: str, users: list[Json]) -> Json:
    """Return a claim with a device; one with a single user may be generated for that pod."""
    request: Json = {"name": "r", "exactly": {"deviceClassName": "any"}}
    namespace = users[0]["metadata"]["namespace"] if users else "ml"
    names = [each["metadata"]["name"] for each in users if each["metadata"]["namespace"] == namespace]
    claim = dra("ResourceClaim", name, {"devices": {"requests": [request]}}, namespace)
    claim["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    if len(names) == 1 and random.random() < 0.5:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": names[0], "uid": names[0], "controller": True}
        claim["metadata"]["ownerReferences"] = [owner]
    claim["status"] = {
        "allocation": _allocation(piece, device),
        "reservedFor": [{"resource": "pods", "name": each, "uid": each} for each in names],
    }
    return claim


def _allocation(piece: Json, device: str) -> Json:
    spec: dict[str, Any] = piece["spec"]
    result = {"request": "r", "driver": spec["driver"], "pool": spec["pool"]["name"], "device": device}
    return {"devices": {"results": [result]}}
