"""Claims of the DRA drivers of vgpu-manager, AMD and Intel, with the checkpoints that these write."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.model import (
    ClaimedDevice,
    DeviceKey,
    GpuIdentity,
    GpuReading,
    Holdings,
    NamedRequest,
    PodIdentity,
    SliceCount,
    SystemFiles,
)
from exporter.sharing import read_files
from exporter.sharing.dra.cdi import claim_uid, is_health_of
from tests.core.attribution.build import GIB, MIG, UUID, gpu, mig, mig_gpu
from tests.core.sharing.build import (
    OTHER_UUID,
    container,
    numbered,
    only,
    pod,
    pods,
    resolve,
    roots_at,
    where,
)

VGPU_MANAGER, AMD, INTEL = "manager.nvidia.com", "gpu.amd.com", "gpu.intel.com"
UIDS = [f"11111111-2222-3333-4444-{number:012}" for number in range(9)]
SHARES = [f"99999999-2222-3333-4444-{number:012}" for number in range(9)]
Files = dict[str, SystemFiles]


def written(tmp_path: Path, driver: str, document: Any, name="checkpoint.json") -> Files:
    """Return the files of a node whose driver has written a checkpoint."""
    folder = tmp_path / "plugins" / driver
    folder.mkdir(parents=True)
    (folder / name).write_text(json.dumps(document))
    return read_files(roots_at(kubelet=tmp_path))


def claimed(
    driver: str, name: str, device: str, cdi=(), *, claim="", of="main", share_id=""
) -> ClaimedDevice:
    """Return a device that a container has by a claim, which is its own when not named."""
    return ClaimedDevice(
        holder=container(name, of),
        driver=driver,
        pool="node-1",
        device=device,
        claim_namespace="ml",
        claim=claim or f"of-{name}",
        cdi=tuple(cdi),
        share_id=share_id,
    )


def shown(found: Holdings) -> dict[str, tuple[int | None, float | None, str, str]]:
    """Return what each container is entitled to, and how it shares."""
    return {
        f"{held.holder.pod}/{held.holder.container}": (
            held.memory_entitled,
            held.compute_entitled,
            held.sharing,
            held.isolation,
        )
        for held in found.holdings
    }


def job(*named, claim="job-gpus") -> dict[str, PodIdentity]:
    """Return the pod whose containers name these requests."""
    made = pod("job", containers=("train", "eval"))
    requests = tuple(NamedRequest(of, claim, request) for of, request in named)
    return pods(replace(made, details=replace(made.details, requests=requests)))


# coldzerofear/vgpu-manager v0.4.1: pkg/kubeletplugin, vgpu.go, prepared.go, checkpointv.go, device_state.go


def vgpu_cdi(uid: str, share: str, device="vgpu-2", request="one") -> str:
    """Return the CDI name of a share (device_state.go buildCDIDeviceID)."""
    return f"k8s.manager.nvidia.com/claim={uid}-{request}-{device}-share-{share}"


def vgpu(name: str, number: int, device="vgpu-2", **more) -> ClaimedDevice:
    """Return a share of a GPU by a claim of its own."""
    return claimed(VGPU_MANAGER, name, device, [vgpu_cdi(UIDS[number], SHARES[number], device)], **more)


def vgpu_claim(*shares: tuple[str, str, dict[str, str]], uuid=OTHER_UUID, device="vgpu-2") -> dict[str, Any]:
    """Return a claim of (request, share, consumed capacity) in the checkpoint."""
    results = [
        {
            "request": request,
            "driver": VGPU_MANAGER,
            "pool": "node-1",
            "device": device,
            "shareID": share,
            "consumedCapacity": consumed,
        }
        for request, share, consumed in shares
    ]
    prepared = [
        {
            "request": request,
            "cdiDeviceID": f"{request}-{device}-share-{share}",
            "vgpu": {
                "info": {"uuid": uuid},
                "device": {
                    "Requests": [request],
                    "PoolName": "node-1",
                    "DeviceName": device,
                    "CDIDeviceIDs": [f"x={request}"],
                    "ShareID": share,
                },
            },
            "gpu": None,
            "mig": None,
        }
        for request, share, _ in shares
    ]
    return {
        "checkpointState": "PrepareCompleted",
        "status": {"allocation": {"devices": {"results": results}}},
        "preparedDevices": [{"devices": prepared, "configState": {}}],
    }


def vgpu_checkpoint(tmp_path: Path, *claims: dict[str, Any]) -> Files:
    """Return the checkpoint of these claims."""
    by_uid = dict(zip(UIDS, claims, strict=False))
    return written(tmp_path, VGPU_MANAGER, {"checksum": 1, "v2": {"checksum": 2, "preparedClaims": by_uid}})


def two_gpus() -> list[GpuReading]:
    """Return GPUs with the minors 0 and 2."""
    return [numbered(1, 0, UUID), numbered(0, 2)]


def test_a_share_of_a_gpu_has_the_memory_and_cores_of_its_claim(tmp_path) -> None:
    """The library of vgpu-manager limits each of the containers on a GPU."""
    taken = {"cores": "50", "memory": "6Gi"}
    claims = [vgpu_claim(("one", SHARES[0], taken)), vgpu_claim(("one", SHARES[1], {"memory": "4Gi"}))]
    files = vgpu_checkpoint(tmp_path, *claims)
    found = resolve(two_gpus(), claims=[vgpu("train", 0), vgpu("eval", 1)], files=files)

    assert where(found) == {"train": [DeviceKey(OTHER_UUID)], "eval": [DeviceKey(OTHER_UUID)]}
    assert shown(found) == {
        "train/main": (6 * GIB, 0.5, "vgpu-manager-dra", "soft"),
        "eval/main": (4 * GIB, None, "vgpu-manager-dra", "soft"),
    }
    assert [held.claims[0].request for held in found.holdings] == ["one", "one"]
    device = found.devices[DeviceKey(OTHER_UUID)]
    assert (device.exclusive, device.slices) == (False, (SliceCount(VGPU_MANAGER, None, 2),))
    assert (found.unresolved, found.unplaced) == ({}, frozenset())


def test_a_share_without_a_checkpoint_has_a_holder_and_no_more() -> None:
    """Its size is in the claim only, and others may have shares too."""
    found = resolve(two_gpus(), claims=[vgpu("train", 0)])
    assert shown(found) == {"train/main": (None, None, "vgpu-manager-dra", "soft")}
    assert not found.devices[DeviceKey(OTHER_UUID)].exclusive


def test_shares_of_one_claim_belong_to_the_requests_that_containers_name(tmp_path) -> None:
    """Both are of one device, which the kubelet lists for both containers."""
    shares = ("one", SHARES[0], {"cores": "20", "memory": "2Gi"}), ("two", SHARES[1], {"memory": "4Gi"})
    files = vgpu_checkpoint(tmp_path, vgpu_claim(*shares))
    cdi = [vgpu_cdi(UIDS[0], SHARES[0]), vgpu_cdi(UIDS[0], SHARES[1], request="two")]
    listed = [
        claimed(VGPU_MANAGER, "job", "vgpu-2", cdi, claim="job-gpus", of=of, share_id=share)
        for of in ("train", "eval")
        for share in SHARES[:2]
    ]
    known = resolve(two_gpus(), claims=listed, files=files, pods=job(("train", "one"), ("eval", "two")))
    assert shown(known) == {
        "job/train": (2 * GIB, 0.2, "vgpu-manager-dra", "soft"),
        "job/eval": (4 * GIB, None, "vgpu-manager-dra", "soft"),
    }
    without_ids = [replace(claim, share_id="") for claim in listed]
    for claims in (listed, without_ids):
        hidden = resolve(two_gpus(), claims=claims, files=files)
        assert (shown(hidden), hidden.unresolved) == ({}, {VGPU_MANAGER: 2})
        assert hidden.unplaced == {DeviceKey(OTHER_UUID)}


def test_the_other_devices_of_vgpu_manager_are_those_of_nvidias_driver() -> None:
    gpus = [mig_gpu([mig(gi_profile=19, gi_start=4, gi_size=1)]), numbered(0, 2)]
    claims = [
        claimed(VGPU_MANAGER, "part", "gpu-0-mig-19-4-1"),
        claimed(VGPU_MANAGER, "whole", "gpu-2"),
        claimed(VGPU_MANAGER, "vm", "gpu-vfio-0"),
    ]
    gpus[0] = replace(gpus[0], identity=GpuIdentity(uuid=UUID, index=0, minor=0))
    found = resolve(gpus, claims=claims)
    assert where(found) == {"part": [DeviceKey(UUID, MIG)], "whole": [DeviceKey(OTHER_UUID)]}
    assert shown(found)["whole/main"] == (16 * GIB, 1.0, "exclusive", "hard")
    assert (found.unresolved, found.unplaced) == ({VGPU_MANAGER: 1}, frozenset())


def test_a_share_of_a_gpu_that_is_not_here_makes_nothing_doubtful() -> None:
    assert resolve(two_gpus(), claims=[vgpu("a", 0, "vgpu-1")]).unplaced == frozenset()
    cut = replace(mig_gpu([mig()]), identity=GpuIdentity(uuid=UUID, index=0, minor=1))
    assert resolve([cut], claims=[vgpu("a", 0, "vgpu-1")]).unplaced == {DeviceKey(UUID, MIG)}


def test_a_share_of_a_claim_that_the_kubelet_does_not_list(tmp_path) -> None:
    files = vgpu_checkpoint(tmp_path, vgpu_claim(("one", SHARES[0], {})))
    found = resolve(two_gpus(), files=files)
    assert (found.unplaced, found.devices[DeviceKey(OTHER_UUID)].sharing) == (
        {DeviceKey(OTHER_UUID)},
        "vgpu-manager-dra",
    )


@pytest.mark.parametrize(
    ("driver", "device", "name", "uid"),
    [
        pytest.param(VGPU_MANAGER, "vgpu-2", f"{UIDS[0]}-a-b-vgpu-2-share-{SHARES[0]}", UIDS[0], id="share"),
        pytest.param(
            VGPU_MANAGER, "vgpu-2", f"{UIDS[0]}-one-vgpu-2-share-{SHARES[1]}", "", id="another share"
        ),
        pytest.param(VGPU_MANAGER, "vgpu-2", f"{UIDS[0]}-one-vgpu-2-0", UIDS[0], id="number"),
        pytest.param(VGPU_MANAGER, "vgpu-2", f"{UIDS[0]}-one-vgpu-21-0", "", id="another vgpu"),
        pytest.param(VGPU_MANAGER, "gpu-2", f"{UIDS[0]}-gpu-2", UIDS[0], id="whole gpu"),
        pytest.param(VGPU_MANAGER, "gpu-2", f"{UIDS[0]}-gpu-2-mig-1g6gb-14-0", "", id="part of it"),
        pytest.param(AMD, "gpu-0-cpx-nps4", f"{UIDS[0]}-gpu-0-cpx-nps4-3", UIDS[0], id="partition"),
        pytest.param(AMD, "gpu-1-128", f"{UIDS[0]}-gpu-1-128", UIDS[0], id="gpu"),
        pytest.param(AMD, "gpu-1-128", f"{UIDS[0]}-gpu-1-1281", "", id="another gpu"),
    ],
)
def test_the_uid_of_a_claim_is_in_its_cdi_names(driver: str, device: str, name: str, uid: str) -> None:
    kind = "gpu" if driver == AMD else "claim"
    cdi = f"k8s.{driver}/{kind}={name}"
    claim = claimed(driver, "a", device, [cdi], share_id=SHARES[0] if driver == VGPU_MANAGER else "")
    assert claim_uid(claim) == uid
    assert is_health_of(claim, cdi) is bool(uid)


# ROCm/k8s-gpu-dra-driver 1.0: cmd/gpu-kubeletplugin, deviceinfo.go, state.go, partition.go, checkpoint.go


def amd_device(device: str, render: int, *, request="gpu", share="", uid=UIDS[0]) -> dict[str, Any]:
    """Return a prepared device in the checkpoint."""
    nodes = [f"/dev/{name}" for name in ("kfd", "dri/card3", f"dri/renderD{render}")]
    return {
        "request_names": [request],
        "pool_name": "node-1",
        "device_name": device,
        "cdi_device_ids": ["k8s.gpu.amd.com/gpu=common", f"k8s.gpu.amd.com/gpu={uid}-{device}"],
        "ContainerEdits": {"deviceNodes": [{"path": node, "hostPath": node, "type": "c"} for node in nodes]},
        "shareKey": f"{uid}/{request}/{device}/{share}",
    }


def amd_checkpoint(tmp_path: Path, **more: Any) -> Files:
    """Return the checkpoint of these claims, each a list of devices."""
    return written(tmp_path, AMD, {"checksum": 1, "v1": {"preparedClaims": more}})


def amd(name: str, device: str, number=0, **more) -> ClaimedDevice:
    """Return a device of AMD's by a claim."""
    return claimed(AMD, name, device, [f"k8s.gpu.amd.com/gpu={UIDS[number]}-{device}"], **more)


def amd_node() -> list[GpuReading]:
    """Return a whole GPU, and one in two partitions of the mode CPX."""
    whole = GpuIdentity(uuid="GPU-1", index=0, vendor="amd", render_minor=128)
    parted = GpuIdentity(uuid="GPU-2", index=1, vendor="amd", render_minor=136)
    parts = [
        mig(uuid=uuid, slices=1, gi=gi, profile="cpx_nps4", render_minor=136 + gi)
        for gi, uuid in enumerate(["0000:19:00.0", "amdgpu_xcp_1"])
    ]
    cut = replace(mig_gpu(parts, identity=parted), mig_slices=2)
    return [gpu(uuid="GPU-1", identity=whole, mig_enabled=False), cut]


FIRST, SECOND = DeviceKey("GPU-2", "0000:19:00.0"), DeviceKey("GPU-2", "amdgpu_xcp_1")


def test_amds_checkpoint_has_the_request_of_each_device(tmp_path) -> None:
    """So that containers of a pod with one claim have what they name, and not half of everything."""
    prepared = [amd_device("gpu-1-128", 128, request="one"), amd_device("gpu-2-136", 136, request="two")]
    listed = [
        amd("job", device, claim="job-gpus", of=of)
        for of in ("train", "eval")
        for device in ("gpu-1-128", "gpu-2-136")
    ]
    named = job(("train", "one"), ("eval", "two"))
    found = resolve(
        amd_node(), claims=listed, pods=named, files=amd_checkpoint(tmp_path, **{UIDS[0]: prepared})
    )
    assert shown(found) == {
        "job/train": (16 * GIB, 1.0, "exclusive", "hard"),
        "job/eval": (5 * GIB, 0.5, "amd-partition", "hard"),
    }
    assert {held.claims[0].request for held in found.holdings} == {"one", "two"}


def test_partitions_that_amds_driver_makes_are_those_of_the_render_nodes(tmp_path) -> None:
    """The name is that of all partitions of the GPU; a claim may have several, each of which is a device."""
    device = "gpu-1-cpx-nps4"
    both = [amd_device(device, 136, share=SHARES[0]), amd_device(device, 137, share=SHARES[1])]
    files = amd_checkpoint(tmp_path, **{UIDS[0]: both})
    found = resolve(amd_node(), claims=[amd("a", device)], files=files)
    assert where(found) == {"a": [FIRST, SECOND]}
    assert {held.compute_entitled for held in found.holdings} == {0.5}
    assert {(held.sharing, held.isolation, held.slices) for held in found.holdings} == {
        ("amd-partition", "hard", 1)
    }


def test_a_partition_without_a_checkpoint_may_be_any_of_its_mode() -> None:
    """Of another mode it is none: such a GPU cannot have it."""
    assert resolve(amd_node(), claims=[amd("a", "gpu-1-cpx-nps4")]).unplaced == {FIRST, SECOND}
    assert resolve(amd_node(), claims=[amd("a", "gpu-0-spx-nps1")]).unplaced == {DeviceKey("GPU-1")}
    assert resolve(amd_node(), claims=[amd("a", "gpu-0-dpx-nps2")]).unplaced == frozenset()
    unread = [replace(amd_node()[0], mig_enabled=None)]
    assert resolve(unread, claims=[amd("a", "gpu-0-cpx-nps4")]).unplaced == {DeviceKey("GPU-1")}


@pytest.mark.parametrize("name", ["gpu-vfio-0", "gpu-7-300"])
def test_a_gpu_that_amds_kernel_driver_does_not_have_makes_nothing_doubtful(name: str) -> None:
    """It is given to a virtual machine, by its name or by the configuration of the claim."""
    found = resolve(amd_node(), claims=[amd("vm", name)])
    assert (found.holdings, found.unresolved, found.unplaced) == ((), {AMD: 1}, frozenset())


def test_a_render_node_that_is_not_known_may_be_that_of_a_name() -> None:
    unknown = replace(amd_node()[0], identity=GpuIdentity(uuid="GPU-1", index=0, vendor="amd"))
    found = resolve([unknown, *amd_node()[1:]], claims=[amd("a", "gpu-1-128")])
    assert found.unplaced == {DeviceKey("GPU-1")}


def test_a_claim_of_amds_that_the_kubelet_does_not_list(tmp_path) -> None:
    prepared = [amd_device("gpu-1-cpx-nps4", 137, share=SHARES[0])]
    found = resolve(amd_node(), files=amd_checkpoint(tmp_path, **{UIDS[0]: prepared}))
    assert found.unplaced == {SECOND}


def test_broken_claims_of_amds_checkpoint_cost_themselves(tmp_path) -> None:
    good, broken = [amd_device("gpu-1-128", 128)], [amd_device("gpu-1-128", 128) | {"request_names": "gpu"}]
    claims = {UIDS[0]: good, UIDS[1]: broken, UIDS[2]: {}, UIDS[3]: ["x"]}
    claims[UIDS[4]] = [amd_device("gpu-1-128", 128) | {"ContainerEdits": {"deviceNodes": [{"path": 1}]}}]
    files = amd_checkpoint(tmp_path, **claims)
    assert [key for key, _ in files["amd-dra"].prepared] == [UIDS[0]]
    assert len(files["amd-dra"].problems) == 4


# intel/intel-resource-drivers-for-kubernetes gpu-v0.11.0: cmd/kubelet-gpu-plugin, pkg/gpu/device


def intel(name: str, device: str, **more) -> ClaimedDevice:
    """Return a GPU of Intel's by a claim; its CDI name has no claim."""
    return claimed(INTEL, name, device, [f"intel.com/gpu={device}"], **more)


def intel_checkpoint(tmp_path: Path, *claims: tuple[bool, list[str]]) -> Files:
    """Return the checkpoint of claims, each with admin access or without, of some devices."""
    prepared = {
        uid: {
            "PreparedDevices": [
                {
                    "AdminAccess": admin,
                    "KubeletpluginDevice": {
                        "Requests": ["gpu"],
                        "PoolName": "node-1",
                        "DeviceName": device,
                        "CDIDeviceIDs": [f"intel.com/gpu={device}"],
                        "ShareID": None,
                    },
                }
                for device in devices
            ]
        }
        for uid, (admin, devices) in zip(UIDS, claims, strict=False)
    }
    document = {
        "kind": "PreparedClaimsCheckpoint",
        "apiVersion": "checkpoint.gpu.intel.com/v1",
        "PreparedClaims": prepared,
    }
    return written(tmp_path, INTEL, document, "preparedClaims.json")


FLEX, OTHER_FLEX, VF = "0000-03-00-0-0x56c0", "0000-9a-00-0-0x56c0", "0000-03-00-1-0x56c0"


@pytest.mark.parametrize(("device", "index"), [(FLEX, -1), ("0000-00-02-0-0x7d67", -1), ("card1", 1)])
def test_a_gpu_of_intels_has_a_holder(device: str, index: int) -> None:
    found = resolve([gpu()], claims=[intel("a", device)])
    held = only(found)
    assert (held.device, held.resource, held.claims[0].driver) == (DeviceKey(device), INTEL, INTEL)
    assert shown(found) == {"a/main": (None, 1.0, "exclusive", "hard")}
    (card,) = found.unread
    assert (card.uuid, card.index, card.vendor) == (device, index, "intel")
    assert (found.unresolved, found.unplaced) == ({}, frozenset())


@pytest.mark.parametrize("name", [VF, "0000-03-01-0-0x56c0", "gpu-0", ""])
def test_a_virtual_function_of_intels_is_unresolved(name: str) -> None:
    """It is a part of a GPU that its name does not have. GPUs of other makers are not in question."""
    found = resolve([gpu()], claims=[intel("a", name)])
    assert (found.holdings, found.unresolved, found.unplaced) == ((), {INTEL: 1}, frozenset())


def test_monitors_of_intels_gpus_hold_nothing(tmp_path) -> None:
    """The checkpoint has no names of claims: a claim is the one with the same devices."""
    files = intel_checkpoint(tmp_path, (True, [FLEX, OTHER_FLEX]), (False, [FLEX]))
    claims = [intel("monitor", FLEX), intel("monitor", OTHER_FLEX), intel("a", FLEX)]
    found = resolve([], claims=claims, files=files)
    assert shown(found) == {"a/main": (None, 1.0, "exclusive", "hard")}
    assert found.unresolved == {}
    several = intel_checkpoint(tmp_path / "b", (True, [FLEX]), (True, [FLEX]))
    assert resolve([], claims=[intel("a", FLEX), intel("b", FLEX)], files=several).holdings == ()


def test_claims_of_intels_that_differ_in_access_only_are_not_told_apart(tmp_path) -> None:
    """On a node with one GPU a monitor has the same devices as its holder."""
    files = intel_checkpoint(tmp_path, (True, [FLEX]), (False, [FLEX]))
    found = resolve([], claims=[intel("monitor", FLEX), intel("a", FLEX)], files=files)
    unknown = (None, None, "dra", "none")
    assert shown(found) == {"monitor/main": unknown, "a/main": unknown}


def test_a_claim_with_the_management_engine_of_intels_gpu_is_a_monitor() -> None:
    """The driver gives it with admin access only, so that this shows without a checkpoint."""
    monitor = claimed(INTEL, "monitor", FLEX, [f"intel.com/gpu={FLEX}", "intel.com/gpu-mei=mei0"])
    found = resolve([], claims=[monitor, intel("a", FLEX)])
    assert shown(found) == {"a/main": (None, 1.0, "exclusive", "hard")}
