"""Texts of sharing systems in a recording: what is masked, and what is left out."""

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.commands.record import scenario as recorded_from
from exporter.commands.record.checkpoints import CLAIM_SYSTEMS, checkpoints
from exporter.commands.record.mask import Mask
from exporter.commands.record.pods import notes
from exporter.demo.scenario import catalog
from exporter.demo.scenario.catalog import dump, parse
from exporter.model import (
    Allocation,
    Allocations,
    ContainerRef,
    ContainerSpec,
    NodeObject,
    PodDetails,
    PodIdentity,
    Workloads,
)
from exporter.model.poll_result import PollResult
from exporter.sharing import SYSTEMS, resolve_holdings
from exporter.sharing.base.view import NodeFacts
from exporter.sharing.dra.checkpoint import Checkpoint, Prepared, decode
from exporter.sharing.dra.claims import ClaimSystem
from tests.core.commands.program import TIMEOUT
from tests.core.poller.bench import polled

GPU = "GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"
MIG = "MIG-5e2d0a1b-8c74-5f3e-a1b2-0c9d8e7f6a5b"
UID, MORE_UID = (f"6a1f3c8e-0000-4000-8000-00000000000{n}" for n in (7, 8))
FIRST, SECOND = (f"00000000-0000-4000-8000-00000000000{n}" for n in (1, 2))
NAMES = ("trainer", "side")
DEVICES = (
    '{"gpu":[{"minor":1,"resources":{"koordinator.sh/gpu-memory":"11514Mi"}}],"rdma":[{"id":"0000:af:00.0"}]}'
)


@pytest.mark.parametrize(
    ("original", "masked"),
    [
        (f"{GPU},NVIDIA,3000,30:;", f"GPU-{FIRST},word1,3000,30:;"),
        (f"{GPU}[0-0],NVIDIA,40192,0:;", f"GPU-{FIRST}[0-0],word1,40192,0:;"),
        (
            f"trainer[0_{GPU}_40_8192];side[1_{GPU}_0_2048]",
            f"container-1[0_GPU-{FIRST}_40_8192];container-2[1_GPU-{FIRST}_0_2048]",
        ),
        (
            f'[{{"containerIndex":0,"gpuUUID":"{GPU}","profile":"3g.20gb","migUUID":"{MIG}"}}]',
            f'[{{"containerIndex":0,"gpuUUID":"GPU-{FIRST}","profile":"3g.20gb","migUUID":"MIG-{SECOND}"}}]',
        ),
        (DEVICES, DEVICES),
        ("0000-9a-00-1-0x56c0", "0000-9a-00-1-0x56c0"),
        ("gpu-0-spx-nps4", "gpu-0-spx-nps4"),
        ("vgpu-2", "vgpu-2"),
        ('{"0":{"1":8}}', '{"0":{"1":8}}'),
        ("paris-7-cambricon-mlu-0,MLU,6144,25:;", "node-1-cambricon-mlu-0,word1,6144,25:;"),
        ("0.25", "0.25"),
        ("trainer", "container-1"),
        # A group with a name of a user, and a text that no scheduler wrote.
        ("team-anna", "word1-word2"),
        ("hunter2 is the pässword", "word1 word2 word3 word4"),
    ],
)
def test_uuids_names_and_unknown_words_of_a_text_are_masked(original: str, masked: str):
    mask = Mask()
    assert mask.text(original, NAMES, "paris-7") == masked
    assert mask.text(original, NAMES, "paris-7") == masked
    assert Mask(on=False).text(original, NAMES, "paris-7") == original


@pytest.mark.parametrize(
    ("original", "masked"),
    [
        (f"{GPU}-_-3", f"GPU-{FIRST}-_-3"),
        (f"{GPU}::10::0", f"GPU-{FIRST}::10::0"),
        (f"{GPU}__3", f"GPU-{FIRST}__3"),
        ("card0-3", "card0-3"),
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("0-00", "0-00"),
        (f"{GPU}-anna", f"GPU-{FIRST}-word1"),
        ("GPU-anna", "GPU-word1"),
    ],
)
def test_the_form_of_a_device_id_stays(original: str, masked: str):
    assert Mask().text(original) == masked


def test_what_is_in_base64_is_masked_inside():
    """As in run:ai's mapping of MIG devices."""
    original = base64.b64encode(json.dumps({"0": [{"position": 4, "device_uuid": MIG}]}).encode()).decode()
    mapping = json.loads(base64.b64decode(Mask().text(original)))
    assert mapping == {"0": [{"position": 4, "device_uuid": f"MIG-{FIRST}"}]}


def test_the_beginning_of_a_container_id_is_masked_as_the_id():
    mask, whole = Mask(), "0f2a6d1e51e6" + "ab" * 26
    assert mask.container_id(whole)[:12] == mask.container_id(whole[:12])
    assert len(mask.container_id(whole)) == len(whole)
    assert mask.container_id("ffffffffffff") != mask.container_id(whole[:12])
    assert mask.container_id("") == ""


def test_names_in_keys_are_masked_and_other_keys_left_out():
    mask = Mask()
    texts = {
        "elasticgpu.io/container-trainer": "0",
        "vke.volcengine.com/gpu-index-container-1": "1",
        "runai-gpu-group/team-anna": "team-anna",
        "hami.io/vgpu-devices-allocated": "",
        "kubectl.kubernetes.io/last-applied-configuration": "secret",
        "anna.example/hami.io/vgpu-devices-allocated": "secret",
    }
    assert notes(texts, lambda text: mask.text(text, NAMES)) == {
        "elasticgpu.io/container-container-1": "0",
        "vke.volcengine.com/gpu-index-container-1": "1",
        "runai-gpu-group/word1-word2": "word1-word2",
        "hami.io/vgpu-devices-allocated": "",
    }


def test_no_word_of_a_user_is_recorded():
    """Other annotations, labels and limits are left out; invalid ones keep no word."""
    holder = ContainerRef("anna-space", "anna-pod", "anna-main")
    details = PodDetails(
        labels={"owner": "anna-label", "runai-gpu-group": "anna-group"},
        annotations={
            "acme.example/token": "anna-token",
            "hami.io/vgpu-devices-allocated": f"anna-password,{GPU},oops",
            "gpu-fraction-container-name": "anna-main",
        },
        containers=(
            ContainerSpec(name="anna-main", limits={"acme.example/anna-hsm": 1, "nvidia.com/gpu": 1}),
        ),
        phase="Running",
    )
    uid = "0f2a6d1e-51e6-4b3f-9f43-0a4cf2d0a111"
    pod = PodIdentity(uid=uid, namespace=holder.namespace, name=holder.pod, details=details)
    evidence = PollResult(
        allocations=Allocations(
            allocated=(Allocation(holder, "nvidia.com/gpu", f"{GPU}-0"),),
            offered=(),
            api_version="v1",
            read_at=0.0,
        ),
        workloads=Workloads(places={}, pods={uid: pod}, process_view=True),
        node=NodeObject(
            labels={"anna.example/rack": "anna-rack", "nvidia.com/gpu.replicas": "4"},
            annotations={"volcano.sh/node-vgpu-register": f"{GPU},10,15360,100,NVIDIA-anna,0,true:"},
        ),
    )

    text = dump(recorded_from(evidence, "anna-node", Mask()))

    assert "anna" not in text
    recorded = parse(text)
    (container,) = recorded.pods[0].containers
    assert container.limits == {"nvidia.com/gpu": 1}
    assert recorded.pods[0].annotations["gpu-fraction-container-name"] == container.name
    assert recorded.node.labels == {"nvidia.com/gpu.replicas": "4"}
    (register,) = recorded.node.annotations.values()
    assert register == f"GPU-{FIRST},10,15360,100,word1-word2,0,true:"


class Watched(Mapping[str, str]):
    """Annotations or labels that note the keys that are looked up."""

    def __init__(self, texts: Mapping[str, str], seen: set[str]) -> None:
        self._texts, self._seen = texts, seen

    def __getitem__(self, key: str) -> str:
        text = self._texts[key]
        self._seen.add(key)
        return text

    def items(self):
        """Return all; an iteration is not a look at a key."""
        return self._texts.items()

    def __iter__(self):
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


async def assert_all_is_recorded(name: str) -> None:
    """Assert that systems look only at annotations, labels and limits that they declare to read."""
    async with polled(catalog.load(name), deadline=TIMEOUT) as (_, poller):
        await poller.poll()
        evidence, seen = poller.evidence, set()
    pods = {uid: watched(pod, seen) for uid, pod in (evidence.workloads.pods or {}).items()}
    resolve_holdings(evidence.gpus, evidence.allocations, NodeFacts(pods=pods, files=evidence.files))
    resources = {allocation.resource for allocation in evidence.allocations.allocated}
    assert {key for key in seen - resources if not any(system.reads(key) for system in SYSTEMS)} == set()


@pytest.mark.parametrize("name", ["a100-mig-mixed", "hami", "t4-timeslicing"])
async def test_what_a_system_looks_at_is_recorded(name: str):
    await assert_all_is_recorded(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", catalog.names())
async def test_what_any_system_looks_at_is_recorded(name: str):
    await assert_all_is_recorded(name)


def watched(pod: PodIdentity, seen: set[str]) -> PodIdentity:
    """Return the pod with texts that note the keys that are looked up."""
    details = pod.details
    if details is None:
        return pod
    specs = (
        ContainerSpec(name=each.name, init=each.init, limits=Watched(each.limits, seen))
        for each in details.containers
    )
    watched_details = replace(
        details,
        labels=Watched(details.labels, seen),
        annotations=Watched(details.annotations, seen),
        containers=tuple(specs),
    )
    return replace(pod, details=watched_details)


NOTED = {
    "amd-dra": Prepared(request="paris/small", share_id=UID, render_minor=137),
    "intel-dra": Prepared(request="paris/small", admin=True),
}
USUAL = Prepared(request="paris/small", share_id=UID, uuid=GPU, memory=1 << 30, compute=0.3, admin=True)


@pytest.mark.parametrize("system", CLAIM_SYSTEMS, ids=[system.name for system in CLAIM_SYSTEMS])
def test_the_checkpoint_of_a_driver_is_written_as_the_driver_does(system: type[ClaimSystem]) -> None:
    """What the decoder reads of it is the same as before, but for names."""
    noted = NOTED.get(system.name, USUAL)
    files = {system.name: Checkpoint(prepared={(MORE_UID, "gpu-vfio-1"): (noted,)})}
    [(path, text)] = checkpoints(files, Mask())
    assert path.startswith(f"var/lib/kubelet/plugins/{system.driver}/")
    assert not any(name in text for name in ("paris", UID, MORE_UID, GPU))
    [((_, device), [share])] = decode(text.encode(), system.driver, Path(path), system.form).prepared.items()
    masked = {"request": "request-1/request-2", "uuid": share.uuid, "share_id": share.share_id}
    assert (device, share) == ("gpu-vfio-1", replace(noted, **masked))
    assert (bool(share.uuid), bool(share.share_id)) == (bool(noted.uuid), bool(noted.share_id))
