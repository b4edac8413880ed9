"""HAMi as users and its headers describe it: bugs and layouts of its releases."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import (
    ContainerFile,
    ContainerSpec,
    DeviceUse,
    Meter,
    OfferedDevice,
    Problem,
    SliceCount,
    SystemFiles,
)
from exporter.sharing import vgpu_manager
from exporter.sharing.base import reading
from exporter.sharing.base.reading import listed
from exporter.sharing.hami import ascend, cache_files
from exporter.sharing.hami.annotations import parse_allocation, segment_by_container
from exporter.sharing.hami.cache import CacheContent, decode
from tests.core.attribution.build import UUID, gpu, held
from tests.core.sharing.build import OTHER_UUID, container, numbered, only, pod, pods, resolve, roots_at
from tests.core.sharing.hami_regions import begun, content, join

KEY = "hami.io/vgpu-devices-allocated"
GPUS = [gpu(), numbered(1, 1)]
ASKS = {"nvidia.com/gpu": 1}
GIB, MIB = 1 << 30, 1 << 20


def of(data: bytes) -> CacheContent:
    """Return the content of a cache in memory."""
    return decode(lambda length, offset: data[offset : offset + length], len(data))


def caches(pod_name, **memory):
    """Return the caches of a pod by the container that names each, with what that uses of the first GPU."""
    return {
        "hami": SystemFiles(
            containers=tuple(
                ContainerFile(
                    pod_uid=f"uid-{pod_name}",
                    container=name,
                    devices=(DeviceUse(device=UUID, memory_used=used),) if used is not None else (),
                )
                for name, used in memory.items()
            )
        )
    }


def metered(early, ids, files):
    """Return what each container of a pod is metered to use, by its name."""
    holdings = resolve(GPUS, ids, (), pods=pods(early), files=files)
    return {holding.holder.container: holding.meter and holding.meter.memory for holding in holdings.holdings}


def entitled(early, ids):
    """Return the MiB that each container is entitled to, by its name and the place of its GPU."""
    holdings = resolve(GPUS, ids, (), pods=pods(early)).holdings
    return {
        (holding.holder.container, holding.device.uuid): (holding.memory_entitled or 0) // MIB
        for holding in holdings
    }


def test_an_extra_segment_does_not_move_a_part_to_another_container():
    """HAMi 2.5 (its issue 991): the second of five containers asks, and the first segment is its own."""
    text = f"{UUID},NVIDIA,1000,0:;;,,0,0:;,,0,0:;,,0,0:;"
    names = tuple(f"qos-pod-{place}" for place in range(1, 6))
    annotated = pod("p", {KEY: text}, containers=names, limits={"qos-pod-2": {"nvidia.com/vgpu": 1}})
    ids = held("p", f"{OTHER_UUID}-0", container="qos-pod-2", resource="nvidia.com/vgpu")
    assert entitled(annotated, ids) == {("qos-pod-2", UUID): 1000}


@pytest.mark.parametrize(
    ("init", "containers"),
    [
        (("network", "warm-up"), ("main",)),
        (("warm-up",), ("main", "proxy")),
        (("warm-up",), ("proxy", "main")),
        (("warm-up", "network"), ("proxy", "main", "logs")),
    ],
)
def test_an_init_container_with_a_request_keeps_its_segment(init, containers):
    """HAMi 2.10 (its issue 2899) leaves out containers without requests."""
    annotated = pod(
        "p",
        {KEY: f"{OTHER_UUID},NVIDIA,500,0:;{UUID},NVIDIA,2500,25:;"},
        init=init,
        containers=containers,
        limits={"warm-up": ASKS, "main": ASKS},
    )
    main, sidecar = held("p", f"{UUID}-0"), held("p", f"{OTHER_UUID}-0", container="warm-up")
    assert entitled(annotated, main) == {("main", UUID): 2500}
    assert entitled(annotated, main + sidecar) == {("warm-up", OTHER_UUID): 500, ("main", UUID): 2500}


def test_several_gpus_of_a_sidecar_stay_its_own():
    part = f"{OTHER_UUID},NVIDIA,500,0:"
    annotated = pod(
        "p",
        {KEY: f"{part}{UUID},NVIDIA,600,0:;{UUID},NVIDIA,2500,25:;"},
        init=("sidecar",),
        containers=("main", "proxy"),
        limits={"sidecar": {"nvidia.com/gpu": 2}, "main": ASKS},
    )
    ids = held("p", f"{UUID}-0") + held("p", f"{OTHER_UUID}-0", f"{UUID}-1", container="sidecar")
    assert entitled(annotated, ids) == {
        ("sidecar", OTHER_UUID): 500,
        ("sidecar", UUID): 600,
        ("main", UUID): 2500,
    }


def test_a_limit_of_zero_is_not_a_request():
    """HAMi gives nothing for a limit of 0, and so 2.10 has no segment of it."""
    annotated = pod(
        "p",
        {KEY: f"{UUID},NVIDIA,2500,25:;"},
        containers=("proxy", "main"),
        limits={"proxy": {"nvidia.com/gpu": 0}, "main": ASKS},
    )
    assert entitled(annotated, held("p", f"{UUID}-0")) == {("main", UUID): 2500}


RELEASES = ("4pd", "2.4", "2.5", "2.7", "2.9", "2.10")


def written(release, init, main):
    """Return the segments that a release writes; ``init`` and ``main`` say which containers have requests."""
    texts = [f"{name},NVIDIA,1,1:" if asks else "" for name, asks in (*init, *main)]
    if release == "2.9":
        return texts
    if release == "2.10":
        return [*filter(None, texts)]
    texts = texts[len(init) :]
    if release == "2.7":
        return texts
    first = next(place for place, text in enumerate(texts) if text)
    others = "" if release == "2.4" else ",,0,0:"
    seen = [text or others for text in texts[first:]]
    return [*seen[:1], "", *seen[1:]] if release == "2.5" else seen


@given(
    st.sampled_from(RELEASES),
    st.lists(st.booleans(), max_size=3),
    st.lists(st.booleans(), min_size=1, max_size=5).filter(any),
)
def test_segments_of_every_release_find_their_containers(release, init, main):
    early = [(f"i{place}", asks and release in {"2.9", "2.10"}) for place, asks in enumerate(init)]
    own = [(f"m{place}", asks) for place, asks in enumerate(main)]
    text = ";".join(written(release, early, own)) + ("" if release == "4pd" else ";")
    specs = [
        ContainerSpec(name=name, init=name[0] == "i", limits=ASKS if asks else {})
        for name, asks in (*early, *own)
    ]
    segments = parse_allocation(text)
    found = segment_by_container(segments, specs, lambda each: bool(each.limits))
    asking = {name for name, asks in (*early, *own) if asks}
    assert {name: [each.uuid for each in segments[place]] for name, place in found.items()} == {
        name: [name] for name in asking
    }


def test_a_cache_under_the_name_of_an_init_container_is_found():
    """HAMi 2.10 (its issue 3079) takes the place of a segment for that of a container, init first."""
    annotated = pod("p", {KEY: f"{UUID},NVIDIA,4000,50:;"}, init=("linkerd-init", "linkerd-proxy"))
    files = caches("p", **{"linkerd-init": 7 * MIB})
    holding = only(resolve(GPUS, held("p", f"{UUID}-0"), (), pods=pods(annotated), files=files))
    assert (holding.holder, holding.meter) == (container("p"), Meter(source="hami", memory=7 * MIB))


@pytest.mark.parametrize(
    ("init", "containers"), [(("prepare",), ("a", "b")), ((), ("prepare", "a", "b"))], ids=["2.10", "4pd"]
)
def test_a_container_does_not_take_the_cache_of_the_next(init, containers):
    annotated = pod(
        "p",
        {KEY: f"{UUID},NVIDIA,2500,25:;{UUID},NVIDIA,2500,25:;"},
        init=init,
        containers=containers,
        limits={"a": ASKS, "b": ASKS},
    )
    ids = held("p", f"{UUID}-0", container="a") + held("p", f"{UUID}-1", container="b")
    assert metered(annotated, ids, caches("p", prepare=MIB, a=2 * MIB)) == {"a": MIB, "b": 2 * MIB}
    assert metered(annotated, ids, caches("p", prepare=None, a=2 * MIB)) == {"a": None, "b": 2 * MIB}
    assert metered(annotated, ids, caches("p", a=MIB, b=2 * MIB)) == {"a": MIB, "b": 2 * MIB}


def test_unexplained_caches_stay_with_their_names():
    annotated = pod("p", {KEY: f"{UUID},NVIDIA,2500,25:;"})
    assert metered(annotated, held("p", f"{UUID}-0"), caches("p", main=MIB, gone=5 * MIB)) == {"main": MIB}


def test_the_share_of_a_later_device_may_be_stale():
    """Until HAMi 2.9 the watcher resets the first device only."""
    made = begun("1.2", [UUID, OTHER_UUID])
    slot = join(made, 5, [GIB, GIB], [0, 97])
    for share in (97, 0):
        slot.device_util[1].sm = share
        decoded = of(content(made)).devices
        assert [(each.compute_used, each.memory_only) for each in decoded] == [(0.0, False), (None, True)]


@pytest.mark.parametrize("folder", ["containers", "vgpu/containers"], ids=["hami", "volcano"])
def test_caches_are_found_in_the_folder_of_either_plugin(folder, tmp_path):
    """Project-HAMi/volcano-vgpu-device-plugin pkg/plugin/server.go has another folder below the root."""
    made = begun("1.2", [UUID])
    join(made, 5, [GIB], [10])
    path = tmp_path / folder / "uid-p_main" / "x.cache"
    path.parent.mkdir(parents=True)
    path.write_bytes(content(made))
    found = cache_files.read_hami(roots_at(hami=tmp_path))
    assert [(file.pod_uid, file.devices[0].memory_used) for file in found.containers] == [("uid-p", GIB)]
    assert found.problems == ()


@pytest.mark.parametrize(
    ("read", "folder"),
    [
        (cache_files.read_hami, "containers"),
        (ascend.read_vnpu, "containers"),
        (vgpu_manager.read_vgpu_manager, "."),
    ],
    ids=["hami", "hami-vnpu", "vgpu-manager"],
)
def test_a_folder_with_too_many_names_is_a_problem(read, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MOST_CONTAINERS", 3)
    for place in range(4):
        (tmp_path / folder / f"uid{place}_c").mkdir(parents=True)
    roots = roots_at(hami=tmp_path, hami_vnpu=tmp_path, vgpu_manager=tmp_path)
    files = read(roots)
    assert [each.text for each in files.problems] == ["has more than 3 names; the rest is not read"]


def test_a_folder_with_exactly_the_maximum_is_read_whole(tmp_path):
    for name in "cab":
        (tmp_path / name).touch()
    problems: list[Problem] = []
    assert listed(tmp_path, 3, problems) == ["a", "b", "c"]
    assert listed(tmp_path / "nowhere", 3, problems) == []
    assert problems == []


@pytest.mark.parametrize(
    ("size", "each", "percent", "name"),
    [
        *((1536, 80, 56, "vgpu.config"), (1664, 88, 64, "config/vgpu.config")),
        *((1672, 88, 64, "config/vgpu.config"), (2440, 88, 64, "config/vgpu.config")),
        *((1800, 96, 64, "config/vgpu.config"), (1848, 96, 64, "config/vgpu.config")),
    ],
    ids=["0.2", "0.4", "6ca6882", "51d9530", "a76a753", "8a363cb"],
)
def test_files_of_older_plugins_have_limits(size, each, percent, name, tmp_path):
    """Offsets of coldzerofear/vgpu-manager library/include/hook.h at each revision, as gcc lays it out."""
    data = bytearray(size)
    for place, (uuid, cores, limited) in {0: (UUID, 30, 1), 2: (OTHER_UUID, 20, 0)}.items():
        begin = 248 + place * each
        struct.pack_into("<48sQ", data, begin, uuid.encode(), 4 * GIB)
        struct.pack_into("<iii", data, begin + percent, cores, 90, limited)
    path = tmp_path / "uid-p_main" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    found = vgpu_manager.read_vgpu_manager(roots_at(vgpu_manager=tmp_path))
    assert found.problems == ()
    assert found.containers == (
        ContainerFile(
            pod_uid="uid-p",
            container="main",
            devices=(
                DeviceUse(device=UUID, memory_limit=4 * GIB, compute_limit=0.3),
                DeviceUse(device=OTHER_UUID, memory_limit=4 * GIB),
            ),
        ),
    )


def test_ids_of_the_released_vgpu_manager_are_known():
    """Up to v0.4.1 an id is ``<index>:<UUID>:<n>`` (its pkg/deviceplugin/vnumber_plugin.go)."""
    annotated = pod("p", {"nvidia.com/real-allocated": f"main[0_{UUID}_30_4096]"})
    number, cores = "nvidia.com/vgpu-number", "nvidia.com/vgpu-cores"
    ids = held("p", f"1:{OTHER_UUID}:3", resource=number) + held("p", "vcore-0-1", resource=cores)
    offered = [OfferedDevice(number, f"0:{UUID}:{place}") for place in range(10)]
    holdings = resolve(GPUS, ids, offered, pods=pods(annotated))
    holding = only(holdings)
    assert (holding.device.uuid, holding.sharing) == (UUID, "vgpu-manager")
    assert (holding.memory_entitled, holding.compute_entitled) == (4 * GIB, 0.3)
    assert holdings.devices[holding.device].slices == (SliceCount(number, 10, 1),)
    assert holdings.unresolved == {}
    assert resolve(GPUS, held("p", f"0:{UUID}::3", resource=number), ()).unresolved == {}
    assert resolve(GPUS, held("p", f"0:{UUID}:3", resource=number), ()).unresolved == {number: 1}
