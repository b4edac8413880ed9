"""Resource claims (DRA): devices by name, sole and shared holders, entitlements."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import (
    ClaimedDevice,
    ContainerFile,
    DeviceKey,
    DeviceUse,
    GpuIdentity,
    GpuReading,
    Holdings,
    Meter,
    PodIdentity,
    SliceCount,
    SystemFiles,
)
from exporter.sharing.base.view import Objections
from exporter.sharing.dra import HAMI_DRIVER as HAMI
from exporter.sharing.dra import NVIDIA_DRIVER, DeviceName, parse_name
from exporter.sharing.dra.amd import AMD_DRIVER as AMD
from exporter.sharing.dra.cdi import claim_uid
from exporter.sharing.dra.checkpoint import Checkpoint, Prepared
from tests.core.attribution.build import GIB, MIG, UUID, gpu, memory, mig, mig_gpu, process
from tests.core.sharing.build import OTHER_UUID, by, container, only, resolve, rows, where

UID = "11111111-2222-3333-4444-555555555555"
OTHER_UID = "11111111-2222-3333-4444-666666666666"
OTHER_MIG = "MIG-00000000-0000-0000-0000-00000000000c"


def numbered(minor=0, uuid=UUID, **more) -> GpuReading:
    """Return a whole GPU of a minor, which is not its index."""
    return gpu(uuid=uuid, identity=GpuIdentity(uuid=uuid, index=7 - minor, minor=minor), **more)


def partitioned(*instances, minor=0) -> GpuReading:
    """Return a GPU of a minor that is cut."""
    return mig_gpu(instances, identity=GpuIdentity(uuid=UUID, index=3, minor=minor))


def placed(profile, start, size, **more):
    """Return a MIG device with its place."""
    return mig(gi_profile=profile, gi_start=start, gi_size=size, **more)


def claimed(pod, device, *, claim="", uid=UID, driver=NVIDIA_DRIVER, name="main", **more) -> ClaimedDevice:
    """Return a device that a container has by a claim, which is its own when not named."""
    return ClaimedDevice(
        holder=container(pod, name),
        driver=driver,
        pool="node-1",
        device=device,
        claim_namespace="ml",
        claim=claim or f"of-{pod}",
        cdi=(f"k8s.{driver}/claim={uid}-{device}",),
        **more,
    )


def noted(*entries) -> Checkpoint:
    """Return a checkpoint of (uid, device, what is known)."""
    prepared_by_device: dict[tuple[str, str], tuple[Prepared, ...]] = {}
    for uid, device, prepared in entries:
        prepared_by_device[uid, device] = (*prepared_by_device.get((uid, device), ()), prepared)
    return Checkpoint(prepared=prepared_by_device)


def holders(found: Holdings) -> dict[str, tuple[int | None, float | None, str, str]]:
    """Return what each pod is entitled to, and how it shares."""
    return by(found, "holder.pod", "memory_entitled", "compute_entitled", "sharing", "isolation")


# Where not said otherwise: kubernetes-sigs/dra-driver-nvidia-gpu, at the place or release that is named.
NAMES = [
    pytest.param("gpu-0", DeviceName(0), id="device_state_test.go"),
    pytest.param("gpu-15", DeviceName(15), id="deviceinfo.go GpuInfo.CanonicalName"),
    pytest.param("gpu-1-mig-1g6gb-14-0", DeviceName(1, 14, 0), id="mig.go, A30"),
    pytest.param("gpu-2-mig-1g24gb-19-0", DeviceName(2, 19, 0), id="partitions.go"),
    pytest.param("gpu-1-mig-2g47gb-14-0", DeviceName(1, 14, 0), id="device_state.go"),
    pytest.param(
        "gpu-0-mig-1g12gb-me-20-6", DeviceName(0, 20, 6), id="mig.go toRFC1123Compliant of 1g.12gb+me"
    ),
    pytest.param("gpu-0-mig-1g12gb-me-all-21-6", DeviceName(0, 21, 6), id="a profile of more words"),
    pytest.param("gpu-1-mig-19-4-1", DeviceName(1, 19, 4, 1), id="demo/specs/extended-resources, v25.8.1"),
    pytest.param("gpu-0-mig-9-4-4", DeviceName(0, 9, 4, 4), id="v25.3.0 deviceinfo.go"),
    pytest.param("gpu-vfio-0", None, id="deviceinfo.go VfioDeviceInfo"),
    pytest.param("gpu-0-mig-1g.5gb-0", None, id="no name of a release"),
    pytest.param("gpu-٣", None, id="other digits"),
    pytest.param("gpu-1234567890", None, id="too long"),
]


@pytest.mark.parametrize(("name", "place"), NAMES)
def test_names(name, place):
    """A name has the minor and the place of a MIG device, in two forms."""
    assert parse_name(name) == place


@given(st.text(max_size=60) | st.from_regex(r"gpu-[0-9]+(-mig-[0-9a-z.-]*)?", fullmatch=True))
def test_any_name_is_a_place_or_unresolved(name):
    objections = Objections()
    holdings = resolve(numbered(), claims=[claimed("a", name)], objections=objections)
    assert len(holdings.holdings) + holdings.unresolved.get(NVIDIA_DRIVER, 0) == 1


def test_a_whole_gpu():
    gpus = [numbered(0), numbered(1, OTHER_UUID)]
    holdings = resolve(gpus, claims=[claimed("a", "gpu-1")])
    held = only(holdings)
    assert (held.device, held.resource, held.slices) == (DeviceKey(OTHER_UUID), NVIDIA_DRIVER, 1)
    assert holders(holdings) == {"a": (16 * GIB, 1.0, "exclusive", "hard")}
    device = holdings.devices[DeviceKey(OTHER_UUID)]
    assert (device.sharing, device.exclusive) == ("exclusive", True)
    assert device.slices == (SliceCount(NVIDIA_DRIVER, None, 1),)
    assert holdings.devices[DeviceKey(UUID)].sharing == "none"


@pytest.mark.parametrize("name", ["gpu-0-mig-3g20gb-9-4", "gpu-0-mig-9-4-4"])
def test_a_mig_device(name):
    here = placed(9, 4, 4, uuid=OTHER_MIG, gi=1)
    holdings = resolve(partitioned(placed(9, 0, 4, uuid=MIG, gi=2), here), claims=[claimed("a", name)])
    assert where(holdings) == {"a": [DeviceKey(UUID, OTHER_MIG)]}
    assert holders(holdings) == {"a": (5 * GIB, 3 / 7, "mig", "hard")}


def test_a_name_of_the_old_form_is_not_misread():
    """In gpu-0-mig-19-4-1 the profile is 19 and the place 4: profile 4 at 1 is another device."""
    other = placed(4, 1, 1, uuid=OTHER_MIG, gi=2)
    holdings = resolve(partitioned(placed(19, 4, 1), other), claims=[claimed("a", "gpu-0-mig-19-4-1")])
    assert where(holdings) == {"a": [DeviceKey(UUID, MIG)]}


@pytest.mark.parametrize(
    "device", [placed(9, 0, 4), placed(19, 4, 1), placed(None, None, None), placed(9, 4, 2, uuid=OTHER_MIG)]
)
def test_a_mig_device_elsewhere_is_unresolved(device):
    holdings = resolve(partitioned(device), claims=[claimed("a", "gpu-0-mig-9-4-4")])
    assert (holdings.holdings, holdings.unresolved) == ((), {NVIDIA_DRIVER: 1})
    assert holdings.unresolved_holders == {container("a")}


def test_the_checkpoint_distinguishes_compute_instances_in_one_place():
    halves = [placed(9, 4, 4, uuid=uuid, ci=ci) for ci, uuid in enumerate([MIG, OTHER_MIG])]
    name = "gpu-0-mig-3g20gb-9-4"
    assert resolve(partitioned(*halves), claims=[claimed("a", name)]).holdings == ()
    files = {"dra": noted((UID, name, Prepared(uuid=OTHER_MIG)))}
    holdings = resolve(partitioned(*halves), claims=[claimed("a", name)], files=files)
    assert where(holdings) == {"a": [DeviceKey(UUID, OTHER_MIG)]}


def test_the_checkpoint_names_devices_without_a_minor_or_place():
    name = "gpu-0-mig-1g5gb-19-4"
    files = {"dra": noted((UID, name, Prepared(uuid=MIG)), (OTHER_UID, name, Prepared(uuid=OTHER_MIG)))}
    holdings = resolve(partitioned(mig()), claims=[claimed("a", name)], files=files)
    assert where(holdings) == {"a": [DeviceKey(UUID, MIG)]}
    unnumbered = gpu(identity=GpuIdentity(uuid=UUID, index=0))
    files = {"dra": noted((UID, "gpu-5", Prepared(uuid=UUID)))}
    assert where(resolve(unnumbered, claims=[claimed("a", "gpu-5")], files=files)) == {"a": [DeviceKey(UUID)]}


def test_nvml_is_newer_than_the_checkpoint():
    """A recreated MIG device has another uuid in the same place."""
    name = "gpu-0-mig-1g5gb-19-4"
    files = {"dra": noted((UID, name, Prepared(uuid="MIG-gone")))}
    holdings = resolve(partitioned(placed(19, 4, 1)), claims=[claimed("a", name)], files=files)
    assert where(holdings) == {"a": [DeviceKey(UUID, MIG)]}


def test_a_gpu_that_is_passed_through_is_unresolved_without_objection(objections):
    holdings = resolve(numbered(), claims=[claimed("vm", "gpu-vfio-1")], objections=objections)
    assert (holdings.holdings, holdings.unresolved) == ((), {NVIDIA_DRIVER: 1})
    assert not objections.counts


def test_an_invalid_name_is_unresolved_and_costs_only_itself(objections):
    claims = [claimed("a", "gpu-zero"), claimed("b", "gpu-0")]
    holdings = resolve(numbered(), claims=claims, objections=objections)
    assert (list(where(holdings)), holdings.unresolved) == (["b"], {NVIDIA_DRIVER: 1})
    assert objections.counts == {"dra_id": 1}


@pytest.mark.parametrize("driver", ["compute-domain.nvidia.com", "dra.net", ""])
def test_claims_of_other_drivers(driver):
    holdings = resolve(numbered(), claims=[claimed("a", "gpu-0", driver=driver)])
    assert (holdings.holdings, holdings.unresolved) == ((), {})


def test_several_devices_of_one_claim():
    gpus = [numbered(0), numbered(1, OTHER_UUID)]
    holdings = resolve(gpus, claims=[claimed("a", f"gpu-{minor}") for minor in (0, 1, 9)])
    assert where(holdings) == {"a": [DeviceKey(UUID), DeviceKey(OTHER_UUID)]}
    assert holdings.unresolved == {NVIDIA_DRIVER: 1}


def test_one_claim_of_two_pods():
    claims = [claimed(pod, "gpu-0", claim="shared") for pod in ("a", "b")]
    holdings = resolve(numbered(), claims=claims)
    half = (8 * GIB, 0.5, "dra", "none")
    assert holders(holdings) == {"a": half, "b": half}
    device = holdings.devices[DeviceKey(UUID)]
    assert (device.sharing, device.isolation, device.exclusive) == ("dra", "none", False)
    assert device.slices == (SliceCount(NVIDIA_DRIVER, None, 2),)


def test_one_claim_of_two_containers():
    claims = [claimed("a", "gpu-0-mig-3g20gb-9-4", name=name) for name in ("main", "aside", "third")]
    holdings = resolve(partitioned(placed(9, 4, 4)), claims=claims)
    assert rows(holdings, "memory_entitled", "compute_entitled") == [(5 * GIB // 3, 1 / 7)] * 3


def test_containers_of_one_claim_are_entitled_to_one_device_together():
    for count in range(1, 9):
        claims = [claimed(f"p{n}", "gpu-0", claim="shared") for n in range(count)]
        held = resolve(numbered(memory=memory(0, 16 * GIB + 7)), claims=claims).holdings
        assert len(held) == count
        assert sum(holding.memory_entitled for holding in held) <= 16 * GIB + 7
        assert sum(holding.compute_entitled for holding in held) == pytest.approx(1)


@pytest.mark.parametrize(
    "state",
    [{"compute_mode": "exclusive_process"}, {"processes": (process(5, kind="mps"),)}],
    ids=["compute mode", "clients"],
)
def test_mps_on_a_claim(state):
    """MPS shows in the compute mode and by its clients; one container with it has the device alone."""
    claims = [claimed(pod, "gpu-0", claim="shared") for pod in ("a", "b")]
    holdings = resolve(numbered(**state), claims=claims)
    assert holders(holdings)["a"] == (8 * GIB, 0.5, "mps", "soft")
    assert holders(resolve(numbered(**state), claims=claims[:1]))["a"][2] == "exclusive"


def test_mps_on_a_mig_device():
    """The compute mode of the GPU does not matter there."""
    claims = [claimed(pod, "gpu-0-mig-3g20gb-9-4", claim="shared") for pod in ("a", "b")]
    served = placed(9, 4, 4, processes=[process(5, kind="mps")])
    assert resolve(partitioned(served), claims=claims).devices[DeviceKey(UUID, MIG)].sharing == "mps"
    bare = resolve(partitioned(placed(9, 4, 4)), claims=claims)
    assert bare.devices[DeviceKey(UUID, MIG)].sharing == "dra"


def test_shares_without_amounts_leave_entitlements_unknown():
    claims = [claimed(pod, "gpu-0", share_id=pod) for pod in ("a", "b")]
    unknown = (None, None, "dra", "none")
    assert holders(resolve(numbered(), claims=claims)) == {"a": unknown, "b": unknown}
    alone = resolve(numbered(), claims=claims[:1])
    assert holders(alone) == {"a": unknown}
    assert not alone.devices[DeviceKey(UUID)].exclusive


def test_shares_entitle_to_the_memory_in_the_checkpoint():
    claims = [
        claimed("a", "gpu-0", share_id="a"),
        claimed("b", "gpu-0", share_id="b", claim="shared", uid=OTHER_UID),
        claimed("c", "gpu-0", share_id="b", claim="shared", uid=OTHER_UID),
    ]
    files = {
        "dra": noted(
            (UID, "gpu-0", Prepared(share_id="a", memory=10 * GIB)),
            (OTHER_UID, "gpu-0", Prepared(share_id="b", memory=12 * GIB)),
        )
    }
    found = holders(resolve(numbered(), claims=claims, files=files))
    assert {pod: each[:2] for pod, each in found.items()} == {
        "a": (10 * GIB, None),
        "b": (6 * GIB, None),
        "c": (6 * GIB, None),
    }


def test_several_shares_of_one_container():
    claims = [claimed("a", "gpu-0", share_id=share) for share in ("x", "y")]
    entries = [(UID, "gpu-0", Prepared(share_id=share, memory=GIB)) for share in ("x", "y")]
    held = only(resolve(numbered(), claims=claims, files={"dra": noted(*entries)}))
    assert (held.slices, held.memory_entitled) == (2, 2 * GIB)
    held = only(resolve(numbered(), claims=claims, files={"dra": noted(entries[0])}))
    assert held.memory_entitled is None


def test_shares_that_only_the_checkpoint_has():
    """NVIDIA's driver does not report its shares to the kubelet."""
    notes = [
        (UID, "gpu-0", Prepared(share_id="a", memory=4 * GIB)),
        (OTHER_UID, "gpu-0", Prepared(share_id="b", memory=6 * GIB)),
    ]
    alone = claimed("a", "gpu-0")
    holdings = resolve(numbered(), claims=[alone], files={"dra": noted(*notes)})
    assert holders(holdings) == {"a": (4 * GIB, None, "dra", "none")}
    assert not holdings.devices[DeviceKey(UUID)].exclusive
    both = resolve(
        numbered(), claims=[alone, claimed("b", "gpu-0", uid=OTHER_UID)], files={"dra": noted(*notes)}
    )
    assert {pod: each[0] for pod, each in holders(both).items()} == {"a": 4 * GIB, "b": 6 * GIB}


@pytest.mark.parametrize("reported", [1, 2], ids=["reported once", "reported for each request"])
def test_several_shares_that_only_the_checkpoint_has(reported):
    """Each share of the claim counts once, except those of an administrator."""
    notes = [(UID, "gpu-0", Prepared(share_id=share, memory=GIB)) for share in ("x", "y")]
    notes.append((UID, "gpu-0", Prepared(share_id="z", admin=True)))
    held = only(resolve(numbered(), claims=[claimed("a", "gpu-0")] * reported, files={"dra": noted(*notes)}))
    assert (held.slices, held.memory_entitled) == (2, 2 * GIB)


def test_devices_of_claims_that_the_kubelet_does_not_report_have_unknown_holders():
    gpus = [numbered(), numbered(1, uuid=OTHER_UUID)]
    files = {"dra": noted((UID, "gpu-0", Prepared(uuid=UUID)))}
    holdings = resolve(gpus, files=files)
    assert holdings.unplaced == {DeviceKey(UUID)}
    assert holdings.devices[DeviceKey(UUID)].sharing == "unknown"
    assert not holdings.holdings
    reported = resolve(gpus, files=files, claims=[claimed("a", "gpu-0")])
    assert not reported.unplaced
    assert set(holders(reported)) == {"a"}


def test_a_reported_claim_next_to_an_unreported_one_of_the_same_device():
    share = Prepared(uuid=UUID, share_id="s1", memory=GIB)
    files = {"dra": noted((UID, "gpu-0", share), (OTHER_UID, "gpu-0", replace(share, share_id="s2")))}
    holdings = resolve(numbered(), files=files, claims=[claimed("a", "gpu-0")])
    assert set(holders(holdings)) == {"a"}
    assert holdings.unplaced == {DeviceKey(UUID)}


@pytest.mark.parametrize(
    ("device", "uuid", "key"),
    [
        ("gpu-0-mig-1g.5gb-19-4", "", DeviceKey(UUID, MIG)),
        ("gpu-0-mig-1g.5gb-14-0", MIG, DeviceKey(UUID, MIG)),
        ("new-name", MIG, DeviceKey(UUID, MIG)),
        ("gpu-vfio-0", "", None),
    ],
)
def test_the_device_of_an_unreported_claim(device, uuid, key):
    files = {"dra": noted((UID, device, Prepared(uuid=uuid)))}
    holdings = resolve(partitioned(placed(19, 4, 1)), files=files)
    assert holdings.unplaced == ({key} if key else set())


def test_admin_access_and_our_own_claim_hold_nothing():
    files = {"dra": noted((UID, "gpu-0", Prepared(uuid=UUID, admin=True)))}
    assert not resolve(numbered(), files=files).unplaced
    files = {"dra": noted((UID, "gpu-0", Prepared(uuid=UUID)))}
    own = PodIdentity(uid="own", namespace="ml", name="exporter")
    claims = [claimed("exporter", "gpu-0")]
    assert not resolve(numbered(), files=files, claims=claims, pods={"own": own}, own_uid="own").unplaced


def test_the_checkpoint_of_a_missing_driver_holds_nothing():
    files = {"dra": replace(noted((UID, "gpu-0", Prepared(uuid=UUID))), missing=True)}
    assert not resolve(numbered(), files=files).unplaced


def test_our_own_claim_holds_nothing():
    claims = [claimed("exporter", "gpu-0"), claimed("a", "gpu-0"), claimed("exporter", "gpu-9")]
    # A source that knows only names: no containers, no object of the pod.
    own = {"uid-own": PodIdentity(uid="uid-own", namespace="ml", name="exporter")}
    holdings = resolve(numbered(), claims=claims, pods=own, own_uid="uid-own")
    assert holders(holdings) == {"a": (16 * GIB, 1.0, "exclusive", "hard")}
    assert holdings.unresolved == {}
    elsewhere = {"uid-own": replace(own["uid-own"], namespace="monitoring")}
    assert "exporter" in holders(resolve(numbered(), claims=claims, pods=elsewhere, own_uid="uid-own"))


def test_another_monitor_with_admin_access_holds_nothing():
    claims = [claimed("dcgm", "gpu-0", uid=OTHER_UID), claimed("a", "gpu-0")]
    for share in ("", "made-for-it"):
        monitor = (OTHER_UID, "gpu-0", Prepared(share_id=share, admin=True))
        holdings = resolve(
            numbered(), claims=claims, files={"dra": noted(monitor, (UID, "gpu-0", Prepared(uuid=UUID)))}
        )
        assert holders(holdings) == {"a": (16 * GIB, 1.0, "exclusive", "hard")}


def test_another_monitor_without_a_checkpoint_leaves_entitlements_unknown():
    """One of two claims of a whole device must be the administrator's."""
    holdings = resolve(numbered(), claims=[claimed("dcgm", "gpu-0"), claimed("a", "gpu-0")])
    unknown = (None, None, "dra", "none")
    assert holders(holdings) == {"dcgm": unknown, "a": unknown}


@pytest.mark.parametrize(
    ("names", "uid"),
    [
        pytest.param([f"k8s.gpu.nvidia.com/claim={UID}-gpu-0"], UID, id="cdi.go GetClaimDeviceName"),
        pytest.param(
            [f"k8s.gpu.nvidia.com/claim={OTHER_UID}-gpu-1", f"k8s.gpu.nvidia.com/claim={UID}-gpu-0"],
            UID,
            id="the kubelet adds the names of other devices",
        ),
        pytest.param(
            [f"k8s.gpu.nvidia.com/claim={OTHER_UID}-gpu-0", f"k8s.gpu.nvidia.com/claim={UID}-gpu-0"],
            "",
            id="two claims",
        ),
        pytest.param([f"k8s.other/claim={UID}-gpu-0"], "", id="another driver"),
        pytest.param([f"k8s.gpu.nvidia.com/claim={UID}-hami-gpu-0"], "", id="the end of another name"),
        pytest.param(["k8s.gpu.nvidia.com/claim=x-gpu-0", "", "gpu-0"], "", id="no uid"),
        pytest.param([], "", id="none"),
    ],
)
def test_the_uid_of_a_claim(names, uid):
    assert claim_uid(replace(claimed("a", "gpu-0"), cdi=tuple(names))) == uid


def test_hami_by_the_checkpoint_of_its_driver():
    files = {
        "hami-dra": noted((UID, "hami-gpu-1", Prepared(share_id="x", memory=4 * GIB, compute=0.3))),
        "hami": SystemFiles(
            containers=(
                ContainerFile(
                    claim_uid=UID,
                    devices=(
                        DeviceUse(
                            device=OTHER_UUID,
                            memory_limit=4 * GIB,
                            compute_limit=0.3,
                            memory_used=GIB,
                            compute_used=0.2,
                        ),
                    ),
                ),
            )
        ),
    }
    claims = [claimed("a", "hami-gpu-1", driver=HAMI, share_id="x")]
    gpus = [numbered(0), numbered(1, OTHER_UUID)]
    holdings = resolve(gpus, claims=claims, files=files)
    held = only(holdings)
    assert (held.device, held.resource) == (DeviceKey(OTHER_UUID), HAMI)
    assert (held.memory_entitled, held.compute_entitled) == (4 * GIB, 0.3)
    assert held.meter == Meter(source="hami", memory=GIB, compute=0.2)
    device = holdings.devices[DeviceKey(OTHER_UUID)]
    assert (device.sharing, device.isolation, device.exclusive) == ("hami-dra", "soft", False)
    # Without the driver's notes, the limits in the cache count.
    again = only(resolve(gpus, claims=claims, files={"hami": files["hami"]}))
    assert (again.memory_entitled, again.compute_entitled) == (4 * GIB, 0.3)
    # Without either the holder is known, and no more.
    bare = only(resolve(gpus, claims=claims))
    assert (bare.memory_entitled, bare.compute_entitled, bare.meter) == (None, None, None)


@pytest.mark.parametrize(("shares", "limit"), [(("x",), 4 * GIB), (("x", "y"), None)])
def test_the_limit_of_a_hami_cache_is_not_that_of_each_share(shares, limit):
    use = DeviceUse(device=UUID, memory_limit=4 * GIB)
    files = {
        "hami": SystemFiles(containers=(ContainerFile(claim_uid=UID, devices=(use,)),)),
        "hami-dra": noted(*((UID, "hami-gpu-0", Prepared(share_id=share)) for share in shares)),
    }
    held = only(resolve(numbered(), claims=[claimed("a", "hami-gpu-0", driver=HAMI)], files=files))
    assert (held.slices, held.memory_entitled) == (len(shares), limit)


def test_a_hami_claim_of_two_containers():
    use = DeviceUse(device=UUID, memory_limit=4 * GIB, memory_used=GIB, compute_used=0.2)
    files = {"hami": SystemFiles(containers=(ContainerFile(claim_uid=UID, devices=(use,)),))}
    claims = [claimed(pod, "hami-gpu-0", driver=HAMI, claim="shared") for pod in ("a", "b")]
    holdings = resolve(numbered(), claims=claims, files=files)
    assert rows(holdings, "memory_entitled", "compute_entitled", "meter") == [(2 * GIB, None, None)] * 2


def test_hami_claims_over_commit():
    uids = {"a": UID, "b": OTHER_UID}
    claims = [claimed(pod, "hami-gpu-0", driver=HAMI, uid=uid) for pod, uid in uids.items()]
    entries = [(uid, "hami-gpu-0", Prepared(memory=12 * GIB)) for uid in uids.values()]
    holdings = resolve(numbered(), claims=claims, files={"hami-dra": noted(*entries)})
    assert sum(each.memory_entitled for each in holdings.holdings) == 24 * GIB


@pytest.mark.parametrize("name", ["gpu-0", "hami-gpu-0-1", "hami-gpu-", "hami-gpu-7"])
def test_invalid_names_of_hami_are_unresolved(name, objections):
    holdings = resolve(numbered(), claims=[claimed("a", name, driver=HAMI)], objections=objections)
    assert (holdings.holdings, holdings.unresolved) == ((), {HAMI: 1})
    assert objections.counts == ({} if name == "hami-gpu-7" else {"hami_dra_id": 1})


def amd_node() -> list[GpuReading]:
    """Return a whole GPU of AMD and one in partitions."""
    whole = GpuIdentity(uuid="GPU-1", index=0, vendor="amd", render_minor=128)
    parted = GpuIdentity(uuid="GPU-2", index=1, vendor="amd", render_minor=136)
    parts = [
        mig(uuid=uuid, slices=1, gi=gi, render_minor=136 + gi)
        for gi, uuid in enumerate(["0000:19:00.0", "amdgpu_xcp_1"])
    ]
    return [gpu(uuid="GPU-1", identity=whole), replace(mig_gpu(parts, identity=parted), mig_slices=2)]


def test_amd_by_the_render_node():
    """ROCm/k8s-gpu-dra-driver names devices by card and render node; partitions have some of their own."""
    claims = [
        claimed("whole", "gpu-1-128", driver=AMD),
        claimed("first", "gpu-2-136", driver=AMD),
        claimed("second", "gpu-10-137", driver=AMD),
        claimed("gone", "gpu-11-138", driver=AMD),
    ]
    holdings = resolve(amd_node(), claims=claims)
    assert where(holdings) == {
        "whole": [DeviceKey("GPU-1")],
        "first": [DeviceKey("GPU-2", "0000:19:00.0")],
        "second": [DeviceKey("GPU-2", "amdgpu_xcp_1")],
    }
    assert holders(holdings) == {
        "whole": (16 * GIB, 1.0, "exclusive", "hard"),
        "first": (5 * GIB, 0.5, "amd-partition", "hard"),
        "second": (5 * GIB, 0.5, "amd-partition", "hard"),
    }
    assert holdings.unresolved == {AMD: 1}


def test_an_amd_claim_of_two_pods():
    """example/example-multiple-pod-share.yaml: both have the GPU, and nothing keeps them apart."""
    claims = [claimed(pod, "gpu-1-128", driver=AMD, claim="shared") for pod in ("a", "b")]
    half = (8 * GIB, 0.5, "dra", "none")
    assert holders(resolve(amd_node(), claims=claims)) == {"a": half, "b": half}
