"""HAMi's containers hold what their annotations say, and use what their caches say."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import (
    Allocation,
    ContainerFile,
    DeviceKey,
    DeviceUse,
    Meter,
    NodeObject,
    OfferedDevice,
    SliceCount,
    SystemFiles,
)
from exporter.sharing import read_files
from exporter.sharing.base.view import Objections
from tests.core.attribution.build import GIB, MIG, UUID, gpu, held, mig, mig_gpu
from tests.core.sharing.build import (
    OTHER_UUID,
    by,
    container,
    numbered,
    only,
    pod,
    pods,
    resolve,
    roots_at,
    rows,
    where,
)
from tests.core.sharing.cases import Case

KEY = "hami.io/vgpu-devices-allocated"
MIG_KEY = "hami.io/vgpu-mig-allocations"
MIB = 1 << 20
GPUS = [gpu(), numbered(1, 1)]
OTHER_MIG = "MIG-00000000-0000-0000-0000-00000000000c"


def slices(uuid=UUID, count=10, resource="nvidia.com/gpu"):
    """Return what HAMi offers of a GPU."""
    return [OfferedDevice(resource, f"{uuid}-{place}") for place in range(count)]


CASE = Case(
    name="hami",
    isolation="soft",
    reason="hami_annotation",
    annotate=lambda text: {KEY: text},
    here=f"{OTHER_UUID},NVIDIA,12288,60:;",
    gone="GPU-gone,NVIDIA,3000,30:;",
    entitled=(12 * GIB, 0.6),
    amounts={"nvidia.com/gpu": 1},
    # The ids name another GPU than the scheduler chose.
    ids=lambda name: held(name, f"{UUID}-4"),
    offered=(*slices(), *slices(OTHER_UUID)),
    slices=SliceCount("nvidia.com/gpu", 10, 1),
)


def cache(name, *uses, of="main"):
    """Return the cache of one container among the files of a node."""
    return {
        "hami": SystemFiles(containers=(ContainerFile(pod_uid=f"uid-{name}", container=of, devices=uses),))
    }


def test_a_limit_of_zero_is_no_entitlement():
    """HAMi gives all that is free for 0 percent or 0 MiB."""
    annotated = pod("train", {KEY: f"{UUID},NVIDIA,0,0:;"})
    holding = only(resolve(GPUS, held("train", f"{UUID}-0"), slices(), pods=pods(annotated)))
    assert (holding.memory_entitled, holding.compute_entitled) == (None, None)


def test_resources_may_have_any_name():
    annotated = pod("train", {KEY: f"{UUID},NVIDIA,3000,30:;"})
    holdings = resolve(
        GPUS,
        held("train", f"{UUID}-4", resource="acme.io/x"),
        slices(resource="acme.io/x"),
        pods=pods(annotated),
    )
    assert only(holdings).resource == "acme.io/x"
    assert only(holdings).memory_entitled == 3000 * MIB


def test_a_container_may_have_several_devices():
    annotated = pod("train", {KEY: f"{UUID},NVIDIA,1000,30:{OTHER_UUID},NVIDIA,2000,0:;"})
    holdings = resolve(GPUS, held("train", f"{UUID}-4", f"{UUID}-5"), slices(), pods=pods(annotated))
    by_device = by(holdings, "device.uuid", "memory_entitled", "compute_entitled")
    assert by_device == {UUID: (1000 * MIB, 0.3), OTHER_UUID: (2000 * MIB, None)}


def test_the_same_device_twice_is_one_holding():
    annotated = pod("train", {KEY: f"{UUID},NVIDIA,1000,30:{UUID},NVIDIA,2000,20:;"})
    holding = only(resolve(GPUS, held("train", f"{UUID}-4", f"{UUID}-5"), slices(), pods=pods(annotated)))
    assert (holding.slices, holding.memory_entitled, holding.compute_entitled) == (2, 3000 * MIB, 0.5)


def test_the_ancestor_has_keys_of_its_own():
    """4paradigm's scheduler wrote the same under another key, with nothing behind the last container."""
    annotated = pod("train", {"4pd.io/vgpu-ids-new": f"{OTHER_UUID},NVIDIA,3000,30:"})
    holding = only(resolve(GPUS, held("train", f"{UUID}-4"), slices(), pods=pods(annotated)))
    assert (holding.device, holding.memory_entitled) == (DeviceKey(OTHER_UUID), 3000 * MIB)
    assert holding.sharing == "hami"


def test_without_annotations_ids_are_the_next_best():
    bare = pod("train", details=None)
    holdings = resolve(GPUS, held("train", f"{UUID}-4", f"{UUID}-5"), slices(), pods=pods(bare))
    holding = only(holdings)
    assert (holding.device, holding.slices) == (DeviceKey(UUID), 2)
    assert (holding.memory_entitled, holding.compute_entitled) == (None, None)
    assert (holding.sharing, holding.isolation) == ("hami", "soft")
    assert set(holdings.blind) == {"hami"}
    assert resolve(GPUS, held("train", f"{UUID}-4"), slices()).blind == holdings.blind


def test_without_hami_nothing_is_blind():
    holdings = resolve(GPUS, held("train", UUID), [OfferedDevice("nvidia.com/gpu", UUID)])
    assert not holdings.blind
    assert only(holdings).sharing == "exclusive"


def test_a_bad_annotation_costs_only_itself(objections):
    annotated = pods(
        pod("bad", {KEY: "uuid,type,100:;"}), pod("good", {KEY: f"{OTHER_UUID},NVIDIA,3000,30:;"})
    )
    ids = held("bad", f"{UUID}-4") + held("good", f"{UUID}-5")
    for _ in range(2):
        holdings = resolve(GPUS, ids, slices(), objections, pods=annotated)
    assert where(holdings) == {"bad": [DeviceKey(UUID)], "good": [DeviceKey(OTHER_UUID)]}
    assert objections.counts == {"hami_annotation": 1}


def test_an_annotation_for_more_or_fewer_devices_than_ids_does_not_count(objections):
    """The plugin gives as many devices as ids."""
    annotated = pods(
        pod("more", {KEY: f"{OTHER_UUID},NVIDIA,1,1:" * 9000 + ";"}),
        pod("fewer", {KEY: f"{OTHER_UUID},NVIDIA,3000,30:;"}),
    )
    ids = held("more", f"{UUID}-4") + held("fewer", f"{UUID}-5", f"{UUID}-6")
    holdings = resolve(GPUS, ids, slices(), objections, pods=annotated)
    assert where(holdings) == {"fewer": [DeviceKey(UUID)], "more": [DeviceKey(UUID)]}
    assert not holdings.unresolved
    assert objections.counts == {"hami_annotation": 2}


def test_the_cache_is_the_meter_of_its_gpu():
    annotated = pod("train", {KEY: f"{UUID},NVIDIA,1000,30:{OTHER_UUID},NVIDIA,1000,30:;"})
    files = cache("train", DeviceUse(device=UUID, memory_used=5 * MIB, compute_used=0.12))
    holdings = resolve(
        GPUS, held("train", f"{UUID}-0", f"{OTHER_UUID}-0"), slices(), pods=pods(annotated), files=files
    )
    meters = by(holdings, "device.uuid", "meter")
    assert meters == {UUID: Meter(source="hami", memory=5 * MIB, compute=0.12), OTHER_UUID: None}


def test_the_cache_of_another_container_is_not_its_own():
    annotated = pod(
        "train", {KEY: f"{UUID},NVIDIA,1000,30:;{UUID},NVIDIA,1000,30:;"}, containers=("main", "side")
    )
    files = cache("train", DeviceUse(device=UUID, memory_used=5 * MIB), of="side")
    ids = held("train", f"{UUID}-0") + held("train", f"{UUID}-1", container="side")
    holdings = resolve(GPUS, ids, slices(), pods=pods(annotated), files=files)
    meters = by(holdings, "holder.container", "meter")
    assert meters == {"main": None, "side": Meter(source="hami", memory=5 * MIB)}


@pytest.mark.parametrize(
    ("text", "others"),
    [
        (f"{UUID},NVIDIA,500,0:;", ()),
        (f";{UUID},NVIDIA,500,0:;", ()),
        (f";{UUID},NVIDIA,500,0:;;", ("late",)),
    ],
    ids=["2.5", "2.7", "2.6"],
)
def test_old_plugins_file_a_cache_under_the_wrong_name(text, others):
    """Up to 2.8 empty segments do not count: the folder has the name of the first container of the pod."""
    annotated = pod("train", {KEY: text}, containers=("proxy", "main", *others), limits={"main": {"x": 1}})
    files = cache("train", DeviceUse(device=UUID, memory_used=7 * MIB), of="proxy")
    holding = only(resolve(GPUS, held("train", f"{UUID}-0"), slices(), pods=pods(annotated), files=files))
    assert holding.holder == container("train")
    assert holding.meter == Meter(source="hami", memory=7 * MIB)


@pytest.mark.parametrize("known", [True, False], ids=["annotated", "only names are known"])
def test_a_cache_in_the_common_folder_meters_no_container(known):
    """Up to 2.8 every container's cache is under the name of the first."""
    text = f"{UUID},NVIDIA,1000,30:;{UUID},NVIDIA,1000,30:;"
    annotated = pod("train", {KEY: text}, containers=("main", "side"), **({} if known else {"details": None}))
    ids = held("train", f"{UUID}-0") + held("train", f"{UUID}-1", container="side")
    use = DeviceUse(device=UUID, memory_used=3 * GIB, compute_used=0.4)
    holdings = resolve(GPUS, ids, slices(), pods=pods(annotated), files=cache("train", use))
    assert rows(holdings, "meter") == [None, None]


def test_a_cache_is_that_of_its_container_if_every_container_has_a_folder():
    """So it is since 2.9; the second container has no cache yet."""
    text = f"{UUID},NVIDIA,1000,30:;{UUID},NVIDIA,1000,30:;"
    annotated = pod("train", {KEY: text}, containers=("main", "side"))
    ids = held("train", f"{UUID}-0") + held("train", f"{UUID}-1", container="side")
    own = ContainerFile(
        pod_uid="uid-train", container="main", devices=(DeviceUse(device=UUID, memory_used=GIB),)
    )
    empty = ContainerFile(pod_uid="uid-train", container="side", devices=())
    holdings = resolve(
        GPUS, ids, slices(), pods=pods(annotated), files={"hami": SystemFiles(containers=(own, empty))}
    )
    meters = by(holdings, "holder.container", "meter")
    assert meters == {"main": Meter(source="hami", memory=GIB), "side": None}


def test_a_cache_replaces_a_missing_annotation():
    bare = pod("train", details=None)
    files = cache(
        "train", DeviceUse(device=OTHER_UUID, memory_limit=3 * GIB, compute_limit=0.25, memory_used=GIB)
    )
    holding = only(resolve(GPUS, held("train", f"{UUID}-4"), slices(), pods=pods(bare), files=files))
    assert holding.device == DeviceKey(OTHER_UUID)
    assert (holding.memory_entitled, holding.compute_entitled) == (3 * GIB, 0.25)
    assert holding.meter == Meter(source="hami", memory=GIB)


def test_the_gpu_in_the_cache_outweighs_the_annotation():
    """A plugin that prefers the kubelet's choice gives the GPU of the id."""
    annotated = pod("train", {KEY: f"{OTHER_UUID},NVIDIA,3000,30:;"})
    files = cache("train", DeviceUse(device=UUID, memory_used=GIB))
    holding = only(resolve(GPUS, held("train", f"{UUID}-4"), slices(), pods=pods(annotated), files=files))
    assert (holding.device, holding.memory_entitled) == (DeviceKey(UUID), 3000 * MIB)
    assert holding.meter == Meter(source="hami", memory=GIB)


def partitioned(*instances):
    """Return an A100 with MIG devices and a whole GPU."""
    return [mig_gpu(instances), numbered(1, 1)]


def made(uuid=MIG, gi=4, place=0, of=0, **more):
    """Return what HAMi 2.10 writes of a MIG device that it made."""
    return {
        "containerIndex": of,
        "deviceIndex": place,
        "gpuUUID": UUID,
        "profile": "3g.20gb",
        "placement": {"start": 0, "size": 4},
        "migUUID": uuid,
        "gpuInstanceID": gi,
        "computeInstanceID": 0,
        **more,
    }


def test_mig_devices_that_hami_makes_are_held():
    annotations = {
        KEY: f"{UUID},NVIDIA,19968,0:{UUID},NVIDIA,9728,0:;",
        MIG_KEY: json.dumps([made(), made("MIG-respelled", gi=5, place=1)]),
    }
    gpus = partitioned(mig(gi=4), mig(gi=5, uuid=OTHER_MIG, slices=2), mig(gi=6, uuid="MIG-free"))
    holdings = resolve(
        gpus, held("train", f"{UUID}-4", f"{UUID}-5"), slices(), pods=pods(pod("train", annotations))
    )
    by_device = {each.device.mig_uuid: each for each in holdings.holdings}
    assert set(by_device) == {MIG, OTHER_MIG}
    assert (by_device[MIG].memory_entitled, by_device[MIG].compute_entitled) == (5 * GIB, 3 / 7)
    assert (by_device[OTHER_MIG].memory_entitled, by_device[OTHER_MIG].compute_entitled) == (5 * GIB, 2 / 7)
    assert set(rows(holdings, "isolation")) == {"hard"}
    shared = holdings.devices[DeviceKey(UUID, MIG)]
    assert (shared.sharing, shared.isolation, shared.exclusive) == ("hami", "hard", True)
    # The ten slices are offered with the GPU; how many are this device is unknown.
    assert shared.slices == (SliceCount("nvidia.com/gpu", None, 1),)


def test_containers_are_counted_with_init_containers_first():
    """The container of a MIG device is its place among all, as in the other annotation."""
    annotations = {KEY: f";;{UUID},NVIDIA,19968,0:;", MIG_KEY: json.dumps([made(of=2)])}
    annotated = pod("train", annotations, init=("prepare",), containers=("proxy", "main"))
    holding = only(
        resolve(partitioned(mig(gi=4), mig(uuid="MIG-2")), held("train", f"{UUID}-4"), pods=pods(annotated))
    )
    assert (holding.holder, holding.device) == (container("train"), DeviceKey(UUID, MIG))


@pytest.mark.parametrize(
    ("init", "containers", "given"),
    [(("prepare",), ("a", "b"), {"a": MIG, "b": OTHER_MIG}), ((), ("proxy", "a"), {"a": MIG})],
    ids=["an init container", "a sidecar"],
)
def test_mig_devices_are_numbered_by_the_containers_with_segments(init, containers, given):
    """HAMi 2.10.0 (its issue 2899) has no segment for containers without devices."""
    found = [made(uuid, gi=gi, of=place) for place, (uuid, gi) in enumerate([(MIG, 4), (OTHER_MIG, 5)])]
    annotations = {KEY: f"{UUID},NVIDIA,19968,0:;" * len(given), MIG_KEY: json.dumps(found[: len(given)])}
    limits = {name: {"nvidia.com/gpu": 1} for name in given}
    annotated = pod("train", annotations, init=init, containers=containers, limits=limits)
    ids = [
        each for place, name in enumerate(given) for each in held("train", f"{UUID}-{place}", container=name)
    ]
    holdings = resolve(partitioned(mig(gi=4), mig(gi=5, uuid=OTHER_MIG)), ids, slices(), pods=pods(annotated))
    assert by(holdings, "holder.container", "device.mig_uuid") == given
    assert not holdings.unresolved


@pytest.mark.parametrize("others", [(), (mig(uuid=OTHER_MIG, gi=2),)], ids=["one", "several"])
def test_a_mig_device_that_does_not_exist_yet_is_unresolved(others):
    waiting = {name: made()[name] for name in ("containerIndex", "deviceIndex", "gpuUUID", "profile")}
    annotations = {KEY: f"{UUID},NVIDIA,19968,0:;", MIG_KEY: json.dumps([waiting])}
    holdings = resolve(
        partitioned(mig(), *others), held("train", f"{UUID}-4"), pods=pods(pod("train", annotations))
    )
    assert (holdings.holdings, holdings.unresolved) == ((), {"nvidia.com/gpu": 1})


def test_an_old_slot_is_known_only_with_one_mig_device():
    """Up to 2.9 a slot meant the driver's number of a MIG device, which the ids do not have."""
    annotated = pods(pod("train", {KEY: f"{UUID}[7-9],NVIDIA,19968,0:;"}))
    ids = held("train", f"{UUID}-4")
    assert only(resolve(partitioned(mig()), ids, pods=annotated)).device == DeviceKey(UUID, MIG)
    assert resolve(partitioned(mig(), mig(uuid=OTHER_MIG, gi=2)), ids, pods=annotated).unresolved == {
        "nvidia.com/gpu": 1
    }


def test_the_id_of_a_mig_device_outweighs_the_annotation():
    annotated = pods(pod("train", {KEY: f"{UUID}[7-9],NVIDIA,19968,0:;"}))
    holding = only(
        resolve(partitioned(mig(), mig(uuid=OTHER_MIG, gi=2)), held("train", OTHER_MIG), pods=annotated)
    )
    assert holding.device == DeviceKey(UUID, OTHER_MIG)
    assert (holding.memory_entitled, holding.compute_entitled) == (5 * GIB, 3 / 7)
    assert (holding.sharing, holding.isolation) == ("hami", "hard")


def test_a_container_may_hold_a_slice_and_a_mig_device():
    annotated = pods(pod("train", {KEY: f"{OTHER_UUID},NVIDIA,4096,30:;"}))
    ids = held("train", f"{OTHER_UUID}-0") + held("train", MIG, resource="nvidia.com/mig-3g.20gb")
    holdings = resolve(partitioned(mig()), ids, slices(OTHER_UUID), pods=annotated)
    by_resource = by(holdings, "resource", "device", "memory_entitled")
    assert by_resource == {
        "nvidia.com/gpu": (DeviceKey(OTHER_UUID), 4 * GIB),
        "nvidia.com/mig-3g.20gb": (DeviceKey(UUID, MIG), 5 * GIB),
    }
    assert not holdings.unresolved


def test_a_mig_device_that_shares_its_memory_entitles_to_none():
    annotated = pods(pod("train", {KEY: f"{UUID},NVIDIA,19968,0:;"}))
    gpus = [mig_gpu([mig(memory_shared=True)], identity=GPUS[0].identity)]
    unknown = [gpu(None, mig_enabled=True, mig_slices=None, mig=(mig(memory=None),))]
    assert only(resolve(gpus, held("train", MIG), pods=annotated)).memory_entitled is None
    assert only(resolve(unknown, held("train", MIG), pods=annotated)).compute_entitled is None


def test_a_bad_list_of_mig_devices_costs_only_itself(objections):
    annotated = pods(pod("train", {KEY: f"{OTHER_UUID},NVIDIA,3000,0:;", MIG_KEY: "[{"}))
    holdings = resolve(GPUS, held("train", f"{UUID}-4"), slices(), objections, pods=annotated)
    assert only(holdings).device == DeviceKey(OTHER_UUID)
    assert objections.counts == {"hami_annotation": 1}


def test_registered_sizes_are_not_entitlements():
    """Registered memory and cores are scaled."""
    node = NodeObject(annotations={"hami.io/node-nvidia-register": f"{UUID},10,32768,200,NVIDIA-T4,0,true:"})
    holding = only(resolve(GPUS, held("train", f"{UUID}-4"), slices(), node=node))
    assert (holding.memory_entitled, holding.compute_entitled) == (None, None)


@pytest.mark.parametrize(
    "text",
    [
        f'[{{"id":"{UUID}","count":10,"devmem":32768,"devcore":200,"type":"NVIDIA-T4","health":true}}]',
        f"{UUID},10,32768,200,NVIDIA-Tesla T4,0,true,0,hami-core:",
        f"{UUID},10,32768,200,NVIDIA-Tesla T4,0,true:",
    ],
    ids=[
        "since 2.5, docs/develop/protocol.md",
        "pkg/device/devices_test.go",
        "pkg/device/devices_test.go, older",
    ],
)
def test_the_register_has_the_number_of_slices_if_the_kubelet_does_not(text: str):
    node = NodeObject(annotations={"hami.io/node-nvidia-register": text})
    for offered, count in ((None, 10), (slices(count=4), 4)):
        holdings = resolve(gpu(), held("a", f"{UUID}-0"), offered, node=node)
        assert [each.offered for each in holdings.devices[DeviceKey(UUID)].slices] == [count]
        assert only(holdings).memory_entitled is None


@pytest.mark.parametrize("text", ["[", "[1", "nothing", '{"id":1}'])
def test_a_register_that_cannot_be_read_is_counted(text: str, objections):
    node = NodeObject(annotations={"hami.io/node-nvidia-register": text})
    holdings = resolve(gpu(), held("a", f"{UUID}-0"), None, node=node, objections=objections)
    assert [each.offered for each in holdings.devices[DeviceKey(UUID)].slices] == [None]
    assert objections.counts == {"hami_node": 1}


def test_an_annotation_counts_once_if_ids_have_two_resources():
    ids = held("a", f"{UUID}-0", resource="nvidia.com/gpu") + held("a", f"{UUID}-1", resource="x.io/vgpu")
    text = f"{UUID},NVIDIA,1000,30:{UUID},NVIDIA,1000,30:;"
    holding = only(resolve(gpu(), ids, slices(), pods=pods(pod("a", {KEY: text}))))
    assert (holding.memory_entitled, holding.compute_entitled) == (2000 << 20, 0.6)


def test_caches_are_read_where_hami_keeps_them(tmp_path):
    """The system reads the folder of HAMi's plugin."""
    folder = tmp_path / "containers" / "uid-train_main"
    folder.mkdir(parents=True)
    (folder / "x.cache").write_bytes(b"short")
    files = read_files(roots_at(hami=tmp_path))
    assert [Path(problem.about).name for problem in files["hami"].problems] == ["x.cache"]


IDS = st.builds(
    "{}-{}".format, st.sampled_from([UUID, OTHER_UUID, "GPU-gone", MIG, "nonsense"]), st.sampled_from("0123x")
)
ALLOCATED = st.lists(
    st.builds(
        Allocation,
        st.builds(container, st.sampled_from(["a", "b"]), st.sampled_from(["main", "side", "prepare"])),
        st.sampled_from(["nvidia.com/gpu", "acme.io/x", "volcano.sh/vgpu-number"]),
        st.one_of(IDS, st.just(MIG)),
    )
)
DEVICES = st.builds(
    "{},NVIDIA,{},{}".format,
    st.sampled_from([UUID, OTHER_UUID, "GPU-gone", f"{UUID}[1-2]", ""]),
    st.integers(-1, 1 << 33),
    st.integers(0, 300),
)
TEXTS = st.one_of(
    st.text(max_size=20), st.lists(st.one_of(DEVICES, st.sampled_from(":;")), max_size=6).map(":".join)
)
MIGS = st.one_of(
    st.text(max_size=20),
    st.lists(st.builds(made, st.sampled_from([MIG, "MIG-x", ""]), st.integers(-1, 9)), max_size=2).map(
        json.dumps
    ),
)
ANNOTATIONS = st.dictionaries(
    st.sampled_from([KEY, "4pd.io/vgpu-ids-new", "volcano.sh/vgpu-ids-new", MIG_KEY]), st.one_of(TEXTS, MIGS)
)
USES = st.lists(
    st.builds(
        DeviceUse,
        device=st.sampled_from([UUID, OTHER_UUID, MIG, "x"]),
        memory_limit=st.sampled_from([None, GIB]),
        memory_used=st.sampled_from([None, 0, GIB]),
    ),
    max_size=3,
)


@given(ALLOCATED, ANNOTATIONS, ANNOTATIONS, USES, st.booleans())
def test_any_annotations_and_caches_give_sound_holdings(allocated, of_a, of_b, uses, is_cut):
    objections = Objections()
    annotated = pods(
        pod("a", of_a, init=("prepare",), containers=("main", "side")), pod("b", of_b, containers=("main",))
    )
    gpus = partitioned(mig(gi=4), mig(uuid=OTHER_MIG, gi=5)) if is_cut else GPUS
    holdings = resolve(gpus, allocated, slices(), objections, pods=annotated, files=cache("a", *uses))
    places = rows(holdings, "device", "holder", "resource")
    assert len(places) == len(set(places))
    assert all(each.memory_entitled is None or each.memory_entitled > 0 for each in holdings.holdings)
    reasons = {"hami_annotation", "volcano_vgpu_annotation", "device_contested"}
    assert set(objections.counts) <= reasons
    assert set(rows(holdings, "holder")) <= {each.holder for each in allocated}
