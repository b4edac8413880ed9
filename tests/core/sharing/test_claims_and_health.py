"""Which claims a container holds a device by, and which health the kubelet reports of it."""

from dataclasses import replace

import pytest

from exporter.model import Allocation, HeldClaim, OfferedDevice, PodIdentity, ResourceHealth
from exporter.sharing.dra.checkpoint import Checkpoint, Prepared
from tests.core.attribution.build import UUID, gpu
from tests.core.sharing.build import container, only, pod, pods, resolve
from tests.core.sharing.test_dra import OTHER_UID, UID, claimed, noted, numbered

RESOURCE = "nvidia.com/gpu"
IDS = (f"{UUID}::0", f"{UUID}::1")
CDI = f"k8s.gpu.nvidia.com/claim={UID}-gpu-0"


def with_health(*health: ResourceHealth) -> dict[str, PodIdentity]:
    """Return the pod ``a`` with what the kubelet reports of its devices."""
    plain = pod("a")
    return pods(replace(plain, details=replace(plain.details, health=health)))


def health_by_ids(*health: ResourceHealth) -> str:
    """Return the health of a GPU of which the container has two slices."""
    allocated = [Allocation(container("a"), RESOURCE, device_id) for device_id in IDS]
    offered = [OfferedDevice(RESOURCE, device_id) for device_id in IDS]
    return only(resolve(gpu(), allocated, offered, pods=with_health(*health))).health


def health_by_claim(resource_id: str) -> str:
    """Return the health of gpu-0, if the kubelet reports a device by this id."""
    reported = ResourceHealth("main", "claim:gpu", resource_id, "Unhealthy")
    return only(resolve(numbered(), claims=[claimed("a", "gpu-0")], pods=with_health(reported))).health


def test_a_claim_has_the_name_of_its_request_from_the_checkpoint() -> None:
    """The kubelet's list has all of a claim but the request; without a checkpoint that is unknown."""
    claim = claimed("a", "gpu-0")
    bare = only(resolve(numbered(), claims=[claim]))
    notes = {"dra": noted((UID, "gpu-0", Prepared(request="big")))}
    reported = only(resolve(numbered(), claims=[claim], files=notes))
    expected = HeldClaim("ml", "of-a", "", "gpu.nvidia.com", "node-1", "gpu-0")
    assert (bare.claims, reported.claims) == ((expected,), (expected._replace(request="big"),))


def test_two_shares_by_one_claim_are_one_claim() -> None:
    """Labels do not have the share, and a series must not come twice; a second claim is another one."""
    claims = [claimed("a", "gpu-0", share_id=share) for share in ("x", "y")]
    claims.append(claimed("a", "gpu-0", claim="more", uid=OTHER_UID, share_id="z"))
    held = only(resolve(numbered(), claims=claims, files={"dra": Checkpoint()}))
    assert (held.slices, [claim.name for claim in held.claims]) == (3, ["more", "of-a"])


def test_a_holder_by_ids_has_no_claim() -> None:
    """Its device comes from a device plugin."""
    held = only(resolve(gpu(), [Allocation(container("a"), RESOURCE, UUID)], [OfferedDevice(RESOURCE, UUID)]))
    assert (held.claims, held.health) == ((), "")


@pytest.mark.parametrize(
    ("healths", "expected"),
    [
        (("Healthy", "Healthy"), "Healthy"),
        (("Healthy", "Unknown"), "Unknown"),
        (("Unhealthy", "Unknown"), "Unhealthy"),
        (("PermanentlyUnhealthy", "Unknown"), "PermanentlyUnhealthy"),
        (("", "Healthy"), "Healthy"),
        (("", ""), ""),
        ((), ""),
    ],
)
def test_the_health_of_slices_is_that_of_the_worst(healths: tuple[str, ...], expected: str) -> None:
    """A device plugin may report one slice of a GPU unhealthy; a word of a later release is the worst."""
    reported = (ResourceHealth("main", RESOURCE, *pair) for pair in zip(IDS, healths, strict=False))
    assert health_by_ids(*reported) == expected


@pytest.mark.parametrize(
    "other",
    [
        ResourceHealth("side", RESOURCE, IDS[0], "Unhealthy"),
        ResourceHealth("main", "nvidia.com/other", IDS[0], "Unhealthy"),
        ResourceHealth("main", RESOURCE, "GPU-other", "Unhealthy"),
    ],
    ids=["container", "resource", "device"],
)
def test_the_health_of_another_container_resource_or_device_does_not_count(other: ResourceHealth) -> None:
    assert health_by_ids(other) == ""


def test_a_device_of_a_claim_is_found_by_each_of_its_names() -> None:
    """The kubelet writes its first CDI name; a device without one by driver, pool and name."""
    assert health_by_claim(CDI) == "Unhealthy"
    assert health_by_claim("gpu.nvidia.com/node-1/gpu-0") == "Unhealthy"
    assert health_by_claim("gpu.nvidia.com/node-2/gpu-0") == ""
    assert health_by_claim(CDI.replace("gpu-0", "gpu-10")) == ""


def test_a_cdi_name_that_is_listed_with_another_device_is_not_this_device() -> None:
    """The kubelet lists the names of a claim's earlier devices again with each later one."""
    first, second = claimed("a", "gpu-0"), claimed("a", "gpu-1")
    second = replace(second, cdi=(*first.cdi, *second.cdi))
    reported = with_health(ResourceHealth("main", "claim:gpu", CDI, "Unhealthy"))
    gpus = [numbered(), numbered(minor=1, uuid="GPU-00000000-0000-0000-0000-0000000000ee")]
    held = resolve(gpus, claims=[first, second], pods=reported).holdings
    assert {holding.claims[0].device: holding.health for holding in held} == {
        "gpu-0": "Unhealthy",
        "gpu-1": "",
    }
