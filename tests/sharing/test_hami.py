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
from tests.attribution.build import GIB, MIG, UUID, gpu, held, mig, mig_gpu
from tests.sharing.build import OTHER_UUID, container, numbered, only, pod, pods, resolve, roots_at, where
from tests.sharing.cases import Case

KEY = "hami.io/vgpu-devices-allocated"
MIG_KEY = "hami.io/vgpu-mig-allocations"
MIB = 1 << 20
GPUS = [gpu(), numbered(1, 1)]
OTHER_MIG = "MIG-00000000-0000-0000-0000-00000000000c"


def slices(uuid=UUID, count=10, resource="nvidia.com/gpu"):
    """Return what HAMi offers of a GPU."""
    return [OfferedDevice(resource, f"{uuid}-{place}") for place in range(count)]


def cache(name, *uses, of="main"):
    """Return the cache of one container among the files of a node."""
    return {
        "hami": SystemFiles(containers=(ContainerFile(pod_uid=f"uid-{name}", container=of, devices=uses),))
    }


CASE = Case(
    name="hami",
    isolation="soft",
    reason="hami_annotation",
    annotate=lambda text: {KEY: text},
    here=f"{OTHER_UUID},NVIDIA,12288,60:;",
    gone="GPU-gone,NVIDIA,3000,30:;",
    entitled=(12 * GIB, 0.6),
    amounts={"nvidia.com/gpu": 1},
    ids=lambda name: held(name, f"{UUID}-4"),
)


def test_an_annotation_beats_the_ids_of_the_kubelet():
    """The container has what the scheduler chose, though its id names another GPU."""
    told = pod("train", {KEY: f"{OTHER_UUID},NVIDIA,3000,30:;"})

    holdings = resolve(GPUS, held("train", f"{UUID}-4"), slices() + slices(OTHER_UUID), pods=pods(told))

    holding = only(holdings)
    assert holding.device == DeviceKey(OTHER_UUID)
    assert (holding.resource, holding.slices) == ("nvidia.com/gpu", 1)
    assert (holding.memory_entitled, holding.compute_entitled) == (3000 * MIB, 0.3)
    assert (holding.sharing, holding.isolation, holding.meter) == ("hami", "soft", None)
    shared = holdings.devices[DeviceKey(OTHER_UUID)]
    assert (shared.sharing, shared.isolation, shared.exclusive) == ("hami", "soft", False)
    assert shared.slices == (SliceCount("nvidia.com/gpu", 10, 1),)
    assert holdings.devices[DeviceKey(UUID)].slices == (SliceCount("nvidia.com/gpu", 10, 0),)
    assert not holdings.unresolved
    assert not holdings.blind


def test_no_limit_is_none():
    """0 percent means all that is free, and 0 MiB likewise: neither is an entitlement."""
    told = pod("train", {KEY: f"{UUID},NVIDIA,0,0:;"})

    holding = only(resolve(GPUS, held("train", f"{UUID}-0"), slices(), pods=pods(told)))

    assert (holding.memory_entitled, holding.compute_entitled) == (None, None)


def test_resources_may_have_any_name():
    """HAMi's resources can be renamed: annotations and ids tell its slices."""
    told = pod("train", {KEY: f"{UUID},NVIDIA,3000,30:;"})

    holdings = resolve(
        GPUS, held("train", f"{UUID}-4", resource="acme.io/x"), slices(resource="acme.io/x"), pods=pods(told)
    )

    assert only(holdings).resource == "acme.io/x"
    assert only(holdings).memory_entitled == 3000 * MIB


def test_a_container_may_have_several_devices():
    """Each device of a container is a holding of its own."""
    told = pod("train", {KEY: f"{UUID},NVIDIA,1000,30:{OTHER_UUID},NVIDIA,2000,0:;"})

    holdings = resolve(GPUS, held("train", f"{UUID}-4", f"{UUID}-5"), slices(), pods=pods(told))

    found = {each.device.uuid: (each.memory_entitled, each.compute_entitled) for each in holdings.holdings}
    assert found == {UUID: (1000 * MIB, 0.3), OTHER_UUID: (2000 * MIB, None)}


def test_the_same_device_twice_is_one_holding():
    """Two parts of one GPU are added up."""
    told = pod("train", {KEY: f"{UUID},NVIDIA,1000,30:{UUID},NVIDIA,2000,20:;"})

    holding = only(resolve(GPUS, held("train", f"{UUID}-4", f"{UUID}-5"), slices(), pods=pods(told)))

    assert (holding.slices, holding.memory_entitled, holding.compute_entitled) == (2, 3000 * MIB, 0.5)


def test_each_container_has_its_own_part():
    """Init containers stand first in the annotation; one that is done is not listed and holds nothing."""
    annotation = f"{UUID},NVIDIA,500,0:;;{OTHER_UUID},NVIDIA,700,0:;"
    told = pod("train", {KEY: annotation}, init=("prepare",), containers=("proxy", "main"))

    holdings = resolve(GPUS, held("train", f"{UUID}-0"), slices(), pods=pods(told))

    assert only(holdings).holder == container("train")
    assert only(holdings).device == DeviceKey(OTHER_UUID)
    assert only(holdings).memory_entitled == 700 * MIB


def test_old_annotations_leave_out_containers_that_ask_for_nothing():
    """HAMi 2.4 wrote no segment in front: the limits and the kubelet tell who asks."""
    told = pod("train", {KEY: f"{UUID},NVIDIA,500,0:;"}, containers=("proxy", "main"))
    more = pod(
        "later",
        {KEY: f"{UUID},NVIDIA,500,0:;{UUID},NVIDIA,600,0:;"},
        containers=("proxy", "first", "second"),
        limits={"first": {"nvidia.com/gpu": 1}},
    )
    ids = held("train", f"{UUID}-0") + held("later", f"{UUID}-1", container="second")

    holdings = resolve(GPUS, ids, slices(), pods=pods(told, more))

    found = {each.holder: each.memory_entitled for each in holdings.holdings}
    assert found == {container("train"): 500 * MIB, container("later", "second"): 600 * MIB}


def test_the_ancestor_has_keys_of_its_own():
    """4paradigm's scheduler wrote the same under another key, with nothing behind the last container."""
    told = pod("train", {"4pd.io/vgpu-ids-new": f"{OTHER_UUID},NVIDIA,3000,30:"})

    holding = only(resolve(GPUS, held("train", f"{UUID}-4"), slices(), pods=pods(told)))

    assert (holding.device, holding.memory_entitled) == (DeviceKey(OTHER_UUID), 3000 * MIB)
    assert holding.sharing == "hami"


def test_without_annotations_ids_are_the_next_best():
    """Where the pods' objects cannot be had, the id's GPU is shown without entitlement, and that is told."""
    bare = pod("train", details=None)

    holdings = resolve(GPUS, held("train", f"{UUID}-4", f"{UUID}-5"), slices(), pods=pods(bare))

    holding = only(holdings)
    assert (holding.device, holding.slices) == (DeviceKey(UUID), 2)
    assert (holding.memory_entitled, holding.compute_entitled) == (None, None)
    assert (holding.sharing, holding.isolation) == ("hami", "soft")
    assert set(holdings.blind) == {"hami"}
    assert resolve(GPUS, held("train", f"{UUID}-4"), slices()).blind == holdings.blind


def test_nothing_is_missed_where_hami_is_not():
    """Ids of NVIDIA's own plugin do not make the exporter look for annotations."""
    holdings = resolve(GPUS, held("train", UUID), [OfferedDevice("nvidia.com/gpu", UUID)])

    assert not holdings.blind
    assert only(holdings).sharing == "exclusive"


def test_a_bad_annotation_costs_only_itself():
    """It is counted once, and its pod is known by its ids; other pods are not touched."""
    objections = Objections()
    told = pods(pod("bad", {KEY: "uuid,type,100:;"}), pod("good", {KEY: f"{OTHER_UUID},NVIDIA,3000,30:;"}))
    ids = held("bad", f"{UUID}-4") + held("good", f"{UUID}-5")

    for _ in range(2):
        holdings = resolve(GPUS, ids, slices(), objections, pods=told)

    assert where(holdings) == {"bad": [DeviceKey(UUID)], "good": [DeviceKey(OTHER_UUID)]}
    assert objections.counts == {"hami_annotation": 1}


def test_an_annotation_for_more_or_fewer_devices_is_none():
    """The plugin gives as many devices as ids, or none: what says otherwise is about something else."""
    objections = Objections()
    told = pods(
        pod("more", {KEY: f"{OTHER_UUID},NVIDIA,1,1:" * 9000 + ";"}),
        pod("fewer", {KEY: f"{OTHER_UUID},NVIDIA,3000,30:;"}),
    )
    ids = held("more", f"{UUID}-4") + held("fewer", f"{UUID}-5", f"{UUID}-6")

    holdings = resolve(GPUS, ids, slices(), objections, pods=told)

    assert where(holdings) == {"fewer": [DeviceKey(UUID)], "more": [DeviceKey(UUID)]}
    assert not holdings.unresolved
    assert objections.counts == {"hami_annotation": 2}


def test_a_cache_tells_what_is_used():
    """The meter is that of the GPU in the cache; a GPU that it does not name has none."""
    told = pod("train", {KEY: f"{UUID},NVIDIA,1000,30:{OTHER_UUID},NVIDIA,1000,30:;"})
    files = cache("train", DeviceUse(device=UUID, memory_used=5 * MIB, compute_used=0.12))

    holdings = resolve(
        GPUS, held("train", f"{UUID}-0", f"{OTHER_UUID}-0"), slices(), pods=pods(told), files=files
    )

    meters = {each.device.uuid: each.meter for each in holdings.holdings}
    assert meters == {UUID: Meter(source="hami", memory=5 * MIB, compute=0.12), OTHER_UUID: None}


def test_the_cache_of_another_container_is_not_its_own():
    """Each container has a cache of its own, found by the uid of its pod and its name."""
    told = pod("train", {KEY: f"{UUID},NVIDIA,1000,30:;{UUID},NVIDIA,1000,30:;"}, containers=("main", "side"))
    files = cache("train", DeviceUse(device=UUID, memory_used=5 * MIB), of="side")
    ids = held("train", f"{UUID}-0") + held("train", f"{UUID}-1", container="side")

    holdings = resolve(GPUS, ids, slices(), pods=pods(told), files=files)

    meters = {each.holder.container: each.meter for each in holdings.holdings}
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
    told = pod("train", {KEY: text}, containers=("proxy", "main", *others), limits={"main": {"x": 1}})
    files = cache("train", DeviceUse(device=UUID, memory_used=7 * MIB), of="proxy")

    holding = only(resolve(GPUS, held("train", f"{UUID}-0"), slices(), pods=pods(told), files=files))

    assert holding.holder == container("train")
    assert holding.meter == Meter(source="hami", memory=7 * MIB)


@pytest.mark.parametrize("known", [True, False], ids=["annotated", "only names are known"])
def test_a_cache_in_the_folder_that_all_containers_have_in_common_is_nobodys(known):
    """Up to 2.8 every container's is under the name of the first one: it may be that of any."""
    text = f"{UUID},NVIDIA,1000,30:;{UUID},NVIDIA,1000,30:;"
    told = pod("train", {KEY: text}, containers=("main", "side"), **({} if known else {"details": None}))
    ids = held("train", f"{UUID}-0") + held("train", f"{UUID}-1", container="side")
    use = DeviceUse(device=UUID, memory_used=3 * GIB, compute_used=0.4)

    holdings = resolve(GPUS, ids, slices(), pods=pods(told), files=cache("train", use))

    assert [each.meter for each in holdings.holdings] == [None, None]


def test_a_cache_is_its_containers_own_where_every_container_has_a_folder():
    """Since 2.9: that of the second one has no cache yet, and the first cache is that of its name."""
    text = f"{UUID},NVIDIA,1000,30:;{UUID},NVIDIA,1000,30:;"
    told = pod("train", {KEY: text}, containers=("main", "side"))
    ids = held("train", f"{UUID}-0") + held("train", f"{UUID}-1", container="side")
    own = ContainerFile(
        pod_uid="uid-train", container="main", devices=(DeviceUse(device=UUID, memory_used=GIB),)
    )
    empty = ContainerFile(pod_uid="uid-train", container="side", devices=())

    holdings = resolve(
        GPUS, ids, slices(), pods=pods(told), files={"hami": SystemFiles(containers=(own, empty))}
    )

    meters = {each.holder.container: each.meter for each in holdings.holdings}
    assert meters == {"main": Meter(source="hami", memory=GIB), "side": None}


def test_a_cache_stands_in_for_an_annotation():
    """Without pods' objects, but with their names, the cache tells the GPUs and the limits."""
    bare = pod("train", details=None)
    files = cache(
        "train",
        DeviceUse(device=OTHER_UUID, memory_limit=3 * GIB, compute_limit=0.25, memory_used=GIB),
    )

    holding = only(resolve(GPUS, held("train", f"{UUID}-4"), slices(), pods=pods(bare), files=files))

    assert holding.device == DeviceKey(OTHER_UUID)
    assert (holding.memory_entitled, holding.compute_entitled) == (3 * GIB, 0.25)
    assert holding.meter == Meter(source="hami", memory=GIB)


def test_what_the_container_sees_beats_the_annotation():
    """A plugin that prefers the kubelet's choice gives the GPU of the id; the container sees that one."""
    told = pod("train", {KEY: f"{OTHER_UUID},NVIDIA,3000,30:;"})
    files = cache("train", DeviceUse(device=UUID, memory_used=GIB))

    holding = only(resolve(GPUS, held("train", f"{UUID}-4"), slices(), pods=pods(told), files=files))

    assert (holding.device, holding.memory_entitled) == (DeviceKey(UUID), 3000 * MIB)
    assert holding.meter == Meter(source="hami", memory=GIB)


def cut(*instances):
    """Return an A100 that is cut, beside a whole GPU."""
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
    """The ids are slices of the whole GPU; the other annotation says which MIG devices were made."""
    annotations = {
        KEY: f"{UUID},NVIDIA,19968,0:{UUID},NVIDIA,9728,0:;",
        MIG_KEY: json.dumps([made(), made("MIG-respelled", gi=5, place=1)]),
    }
    gpus = cut(mig(gi=4), mig(gi=5, uuid=OTHER_MIG, slices=2), mig(gi=6, uuid="MIG-free"))

    holdings = resolve(
        gpus, held("train", f"{UUID}-4", f"{UUID}-5"), slices(), pods=pods(pod("train", annotations))
    )

    found = {each.device.mig_uuid: each for each in holdings.holdings}
    assert set(found) == {MIG, OTHER_MIG}
    assert (found[MIG].memory_entitled, found[MIG].compute_entitled) == (5 * GIB, 3 / 7)
    assert (found[OTHER_MIG].memory_entitled, found[OTHER_MIG].compute_entitled) == (5 * GIB, 2 / 7)
    assert {each.isolation for each in holdings.holdings} == {"hard"}
    shared = holdings.devices[DeviceKey(UUID, MIG)]
    assert (shared.sharing, shared.isolation, shared.exclusive) == ("hami", "hard", True)
    # The ten slices are offered with the GPU; how many are this device, nobody says.
    assert shared.slices == (SliceCount("nvidia.com/gpu", None, 1),)


def test_containers_are_counted_with_init_containers_first():
    """The container of a MIG device is its place among all, as in the other annotation."""
    annotations = {
        KEY: f";;{UUID},NVIDIA,19968,0:;",
        MIG_KEY: json.dumps([made(of=2)]),
    }
    told = pod("train", annotations, init=("prepare",), containers=("proxy", "main"))

    holding = only(resolve(cut(mig(gi=4), mig(uuid="MIG-2")), held("train", f"{UUID}-4"), pods=pods(told)))

    assert (holding.holder, holding.device) == (container("train"), DeviceKey(UUID, MIG))


@pytest.mark.parametrize(
    ("init", "containers", "given"),
    [(("prepare",), ("a", "b"), {"a": MIG, "b": OTHER_MIG}), ((), ("proxy", "a"), {"a": MIG})],
    ids=["an init container", "a sidecar"],
)
def test_containers_that_an_annotation_leaves_out_are_left_out_of_the_other(init, containers, given):
    """HAMi 2.10.0 (its issue 2899) has no segment for who has nothing, and numbers MIG devices likewise."""
    found = [made(uuid, gi=gi, of=place) for place, (uuid, gi) in enumerate([(MIG, 4), (OTHER_MIG, 5)])]
    annotations = {
        KEY: f"{UUID},NVIDIA,19968,0:;" * len(given),
        MIG_KEY: json.dumps(found[: len(given)]),
    }
    limits = {name: {"nvidia.com/gpu": 1} for name in given}
    told = pod("train", annotations, init=init, containers=containers, limits=limits)
    ids = [
        each for place, name in enumerate(given) for each in held("train", f"{UUID}-{place}", container=name)
    ]

    holdings = resolve(cut(mig(gi=4), mig(gi=5, uuid=OTHER_MIG)), ids, slices(), pods=pods(told))

    assert {each.holder.container: each.device.mig_uuid for each in holdings.holdings} == given
    assert not holdings.unresolved


@pytest.mark.parametrize("others", [(), (mig(uuid=OTHER_MIG, gi=2),)], ids=["one", "several"])
def test_a_mig_device_that_is_not_made_yet_is_unresolved(others):
    """Which MIG device it will be is not known before: one that is there is somebody else's."""
    waiting = {name: made()[name] for name in ("containerIndex", "deviceIndex", "gpuUUID", "profile")}
    annotations = {KEY: f"{UUID},NVIDIA,19968,0:;", MIG_KEY: json.dumps([waiting])}

    holdings = resolve(
        cut(mig(), *others),
        held("train", f"{UUID}-4"),
        pods=pods(pod("train", annotations)),
    )

    assert holdings.holdings == ()
    assert holdings.unresolved == {"nvidia.com/gpu": 1}


def test_an_old_slot_is_known_only_where_there_is_one_mig_device():
    """Up to 2.9 a slot meant the driver's number of a MIG device, which the ids do not have."""
    told = pods(pod("train", {KEY: f"{UUID}[7-9],NVIDIA,19968,0:;"}))
    ids = held("train", f"{UUID}-4")

    assert only(resolve(cut(mig()), ids, pods=told)).device == DeviceKey(UUID, MIG)
    assert resolve(cut(mig(), mig(uuid=OTHER_MIG, gi=2)), ids, pods=told).unresolved == {"nvidia.com/gpu": 1}


def test_ids_of_mig_devices_are_what_they_say():
    """The plugin gives out MIG devices as the kubelet chose them, whatever the annotation says."""
    told = pods(pod("train", {KEY: f"{UUID}[7-9],NVIDIA,19968,0:;"}))

    holding = only(resolve(cut(mig(), mig(uuid=OTHER_MIG, gi=2)), held("train", OTHER_MIG), pods=told))

    assert holding.device == DeviceKey(UUID, OTHER_MIG)
    assert (holding.memory_entitled, holding.compute_entitled) == (5 * GIB, 3 / 7)
    assert (holding.sharing, holding.isolation) == ("hami", "hard")


def test_a_container_may_hold_a_slice_beside_a_mig_device():
    """The slice is what the annotation says, the MIG device what the kubelet gave; each has its resource."""
    told = pods(pod("train", {KEY: f"{OTHER_UUID},NVIDIA,4096,30:;"}))
    ids = held("train", f"{OTHER_UUID}-0") + held("train", MIG, resource="nvidia.com/mig-3g.20gb")

    holdings = resolve(cut(mig()), ids, slices(OTHER_UUID), pods=told)

    found = {each.resource: (each.device, each.memory_entitled) for each in holdings.holdings}
    assert found == {
        "nvidia.com/gpu": (DeviceKey(OTHER_UUID), 4 * GIB),
        "nvidia.com/mig-3g.20gb": (DeviceKey(UUID, MIG), 5 * GIB),
    }
    assert not holdings.unresolved


def test_a_mig_device_that_shares_its_memory_states_none():
    """Compute instances of one GPU instance have no memory of their own; a GPU of unknown slices no share."""
    told = pods(pod("train", {KEY: f"{UUID},NVIDIA,19968,0:;"}))
    gpus = [mig_gpu([mig(memory_shared=True)], identity=GPUS[0].identity)]
    unknown = [gpu(None, mig_enabled=True, mig_slices=None, mig=(mig(memory=None),))]

    assert only(resolve(gpus, held("train", MIG), pods=told)).memory_entitled is None
    assert only(resolve(unknown, held("train", MIG), pods=told)).compute_entitled is None


def test_a_bad_list_of_mig_devices_costs_only_itself():
    """It is counted; what the other annotation says stands."""
    objections = Objections()
    told = pods(pod("train", {KEY: f"{OTHER_UUID},NVIDIA,3000,0:;", MIG_KEY: "[{"}))

    holdings = resolve(GPUS, held("train", f"{UUID}-4"), slices(), objections, pods=told)

    assert only(holdings).device == DeviceKey(OTHER_UUID)
    assert objections.counts == {"hami_annotation": 1}


def test_what_was_registered_for_a_node_is_not_what_it_has():
    """Registered memory and cores are scaled, so they are nobody's entitlement."""
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
def test_the_node_tells_how_many_slices_there_are_where_the_kubelet_does_not(text: str):
    """What it offers is believed before that; the sizes that are registered are never read."""
    node = NodeObject(annotations={"hami.io/node-nvidia-register": text})
    for offered, count in ((None, 10), (slices(count=4), 4)):
        found = resolve(gpu(), held("a", f"{UUID}-0"), offered, node=node)
        assert [each.offered for each in found.devices[DeviceKey(UUID)].slices] == [count]
        assert only(found).memory_entitled is None


@pytest.mark.parametrize("text", ["[", "[1", "nothing", '{"id":1}'])
def test_a_register_that_cannot_be_read_is_counted(text: str):
    """Then the number of slices is not known."""
    objections = Objections()
    node = NodeObject(annotations={"hami.io/node-nvidia-register": text})
    found = resolve(gpu(), held("a", f"{UUID}-0"), None, node=node, objections=objections)
    assert [each.offered for each in found.devices[DeviceKey(UUID)].slices] == [None]
    assert objections.counts == {"hami_node": 1}


def test_an_annotation_is_not_held_once_for_each_resource_with_slices():
    """A container with ids under two names has what its annotation says, and no more."""
    ids = held("a", f"{UUID}-0", resource="nvidia.com/gpu") + held("a", f"{UUID}-1", resource="x.io/vgpu")
    text = f"{UUID},NVIDIA,1000,30:{UUID},NVIDIA,1000,30:;"
    holding = only(resolve(gpu(), ids, slices(), pods=pods(pod("a", {KEY: text}))))
    assert (holding.memory_entitled, holding.compute_entitled) == (2000 << 20, 0.6)


def test_caches_are_read_where_hami_keeps_them(tmp_path):
    """The system reads the folder of HAMi's plugin."""
    folder = tmp_path / "containers" / "uid-train_main"
    folder.mkdir(parents=True)
    (folder / "x.cache").write_bytes(b"short")

    found = read_files(roots_at(hami=tmp_path))

    assert [Path(problem.about).name for problem in found["hami"].problems] == ["x.cache"]


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
def test_whatever_is_written_nothing_breaks(allocated, of_a, of_b, uses, is_cut):
    """No annotation stops the others, nobody holds a device twice, and no entitlement is negative."""
    objections = Objections()
    told = pods(
        pod("a", of_a, init=("prepare",), containers=("main", "side")), pod("b", of_b, containers=("main",))
    )
    gpus = cut(mig(gi=4), mig(uuid=OTHER_MIG, gi=5)) if is_cut else GPUS

    holdings = resolve(gpus, allocated, slices(), objections, pods=told, files=cache("a", *uses))

    places = [(each.device, each.holder, each.resource) for each in holdings.holdings]
    assert len(places) == len(set(places))
    assert all(each.memory_entitled is None or each.memory_entitled > 0 for each in holdings.holdings)
    assert set(objections.counts) <= {"hami_annotation", "volcano_vgpu_annotation"}
    assert {each.holder for each in holdings.holdings} <= {each.holder for each in allocated}
