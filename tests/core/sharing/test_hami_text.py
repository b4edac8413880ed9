"""The annotations of HAMi, its ancestor and Volcano are read as these write them, whatever stands there."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import ContainerSpec
from exporter.sharing.hami.annotations import (
    HamiDevice,
    MigAllocation,
    parse_allocation,
    parse_mig_allocations,
    segment_by_container,
)

GPU_1 = "GPU-8dcd427f-483b-b48f-d7e5-75fb19a52b76"
GPU_2 = "GPU-ebe7c3f7-303d-558d-435e-99a160631fe4"
# Project-HAMi/HAMi pkg/device/nvidia/mig_profiles_test.go
MADE = {
    "containerIndex": 0,
    "deviceIndex": 0,
    "gpuUUID": "GPU-a",
    "profile": "2g.10gb",
    "placement": {"start": 0, "size": 2},
    "migUUID": "MIG-a",
    "gpuInstanceID": 4,
    "computeInstanceID": 0,
}


def nvidia(uuid, memory, cores):
    """Return a part of a GPU."""
    return HamiDevice(uuid, "NVIDIA", memory, cores)


ALLOCATIONS = [
    pytest.param(
        f"{GPU_1},NVIDIA,500,3:;{GPU_2},NVIDIA,500,3:;",
        ((nvidia(GPU_1, 500, 3),), (nvidia(GPU_2, 500, 3),)),
        id="Project-HAMi/HAMi pkg/device/devices_test.go: two containers",
    ),
    pytest.param(
        "UUID1,Type1,1000,30:UUID2,Type1,1000,30:;",
        ((HamiDevice("UUID1", "Type1", 1000, 30), HamiDevice("UUID2", "Type1", 1000, 30)),),
        id="Project-HAMi/HAMi pkg/device/devices_test.go: two devices",
    ),
    pytest.param(
        "GPU-936619fc-f6a1-74a8-0bc6-ecf6b3269313[7-9],NVIDIA,10240,0:;",
        ((nvidia("GPU-936619fc-f6a1-74a8-0bc6-ecf6b3269313", 10240, 0),),),
        id="Project-HAMi/HAMi pkg/device/devices_test.go: a slot of a template",
    ),
    pytest.param(
        ";;GPU-main1,NVIDIA,2000,50:;",
        ((), (), (nvidia("GPU-main1", 2000, 50),)),
        id="Project-HAMi/HAMi nvinternal/plugin/util_test.go: two init containers without",
    ),
    pytest.param(
        "GPU-init1,NVIDIA,500,10:;;",
        ((nvidia("GPU-init1", 500, 10),), ()),
        id="Project-HAMi/HAMi nvinternal/plugin/util_test.go: an init container only",
    ),
    pytest.param(
        f"{GPU_1},NVIDIA,3000,0:;,,0,0:;",
        ((nvidia(GPU_1, 3000, 0),), ()),
        id="Project-HAMi/HAMi v2.4.0 pkg/scheduler/score.go: the placeholder of a container without",
    ),
    pytest.param(
        f"{GPU_1},NVIDIA,3000,0:;{GPU_2},NVIDIA,4000,20:",
        ((nvidia(GPU_1, 3000, 0),), (nvidia(GPU_2, 4000, 20),)),
        id="4paradigm/k8s-vgpu-scheduler v2.3.8 pkg/util/util.go: nothing behind the last container",
    ),
    pytest.param(
        "test1,AWSNeuron,0,2:test2,AWSNeuron,0,3;",
        ((HamiDevice("test1", "AWSNeuron", 0, 2), HamiDevice("test2", "AWSNeuron", 0, 3)),),
        id="Project-HAMi/HAMi pkg/device/awsneuron/device_test.go: no colon behind the last",
    ),
    pytest.param(
        "GPU-0,NVIDIA,4096,30:", ((nvidia("GPU-0", 4096, 30),),), id="volcano-sh/volcano vgpu/utils_test.go"
    ),
    pytest.param("", ((),), id="nothing"),
    pytest.param(
        "GPU-0,NVIDIA,1,2,later:;", ((nvidia("GPU-0", 1, 2),),), id="HAMi reads four fields of however many"
    ),
]


@pytest.mark.parametrize(("text", "expected"), ALLOCATIONS)
def test_an_allocation_is_read(text, expected):
    assert parse_allocation(text) == expected
    assert parse_allocation(text, lenient=True) == expected


BAD = [
    # Project-HAMi/HAMi pkg/device/devices_test.go
    "uuid,type,100:;",
    # volcano-sh/volcano vgpu/device_info_test.go
    "GPU-0,NVIDIA,-5,30:",
    "GPU-0,NVIDIA:",
    "GPU-0,NVIDIA,1_0,30:",
    "GPU-0,NVIDIA, 10,30:",
    "GPU-0,NVIDIA,\u0661\u0660,30:",
    "GPU-0,NVIDIA,10.5,30:",
    "GPU-0,NVIDIA,10Mi,30:",
    "GPU-0,NVIDIA,10,30%:",
    "GPU-0,NVIDIA,2147483648,30:",
    "GPU-0,NVIDIA," + "9" * 5000 + ",30:",
    ",NVIDIA,10,30:",
    "GPU-0[7-9,NVIDIA,10,30:",
    "nonsense",
    "GPU-0,NVIDIA,10\n,30:",
]


@pytest.mark.parametrize("text", BAD)
def test_a_bad_device_is_refused(text):
    """HAMi's reader refuses the whole annotation, and Volcano's leaves the device out."""
    with pytest.raises(ValueError, match="is not UUID,type,MiB,percent"):
        parse_allocation(text)
    good = "GPU-1,NVIDIA,2048,10:"
    kept = ((nvidia("GPU-1", 2048, 10),),)
    assert parse_allocation(text.rstrip(":;") + ":" + good, lenient=True) == kept


def test_the_bracket_of_volcano_may_have_a_comma():
    text = "GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448[group2,3],NVIDIA,80,0:"
    ((found,),) = parse_allocation(text, lenient=True)
    assert found == nvidia("GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448", 80, 0)


def test_a_text_longer_than_an_annotation_can_be_is_not_read():
    with pytest.raises(ValueError, match="more than an annotation can have"):
        parse_allocation("GPU-0,NVIDIA,1,1:" * 20_000)


def named(*names, init=()):
    """Return containers that ask for nothing, but for those with a name in capitals."""
    return [
        *(ContainerSpec(name=name, init=True) for name in init),
        *(ContainerSpec(name=name) for name in names),
    ]


ALIGNED = [
    pytest.param("A;b;", named("x", "y"), {"x": "A", "y": "b"}, id="2.7: one for each container"),
    pytest.param(";A;", named("x", "y"), {"y": "A"}, id="2.7: the first container has none"),
    pytest.param("A;;", named("x", "y"), {"x": "A"}, id="2.7: the last container has none"),
    pytest.param(
        ";;A;", named("x", init=("i", "j")), {"x": "A"}, id="2.9: init containers first, and without"
    ),
    pytest.param("A;B;", named("x", init=("i",)), {"i": "A", "x": "B"}, id="2.9: an init container with"),
    pytest.param("A;;", named("x", init=("I",)), {"I": "A"}, id="2.9: an init container only"),
    pytest.param(
        ";A;;;B;", named("x", "y", "Z", init=("i", "J")), {"J": "A", "Z": "B"}, id="2.9: some of each"
    ),
    pytest.param("A;B;", named("X", "y", init=("I",)), {"I": "A", "X": "B"}, id="2.10: as many as main ones"),
    pytest.param("A;B;", named("y", "X", init=("I",)), {"I": "A", "X": "B"}, id="2.10: one without between"),
    pytest.param(
        "A;B;C;", named("w", "X", "y", "Z", init=("I", "j")), {"I": "A", "X": "B", "Z": "C"}, id="2.10: more"
    ),
    pytest.param(
        "A;B;C;",
        named("X", "y", "z", init=("I", "J")),
        {"I": "A", "J": "B", "X": "C"},
        id="2.10: several init",
    ),
    pytest.param("A;", named("x", "Y", init=("i",)), {"Y": "A"}, id="2.10: the last alone"),
    pytest.param("A;", named("x", init=("i", "J")), {"J": "A"}, id="2.10: an init container alone"),
    pytest.param("A;B;", named("X", "Y", init=("i",)), {"X": "A", "Y": "B"}, id="2.10: main ones alone"),
    pytest.param(
        "A;B;;",
        named("X", "Y", "z", init=("I",)),
        {"X": "A", "Y": "B"},
        id="2.7: an init container that asks",
    ),
    pytest.param(";A;", named("Y", init=("I",)), {"Y": "A"}, id="2.9: of two chips the other"),
    pytest.param("A;;", named("Y", init=("I",)), {"I": "A"}, id="2.9: of two chips the one"),
    pytest.param("A;", named("x", init=("i",)), {"x": "A"}, id="2.8: init containers are not counted"),
    pytest.param("A;", named("x", "Y"), {"Y": "A"}, id="2.4: what has none in front is left out"),
    pytest.param("A;;", named("x", "Y", "z"), {"Y": "A"}, id="2.5: but not what has none behind"),
    pytest.param("A;B", named("X", "y", "Z"), {"X": "A", "Z": "B"}, id="Volcano: only those that ask"),
    pytest.param("A", named("x", "Y", init=("I",)), {"Y": "A"}, id="Volcano: init containers do not count"),
    pytest.param("A;B;C;D;", named("X", "y"), {}, id="more than there are containers"),
    pytest.param(";C", named("X", "y", "Z"), {}, id="Volcano: a segment that cannot be read"),
    pytest.param("A;", named("X", "Y"), {}, id="fewer than ask"),
    pytest.param("A;", [], {}, id="no containers"),
]


@pytest.mark.parametrize(("text", "containers", "expected"), ALIGNED)
def test_segments_find_their_containers(text, containers, expected):
    """Each release leaves out other containers; those in capitals have requests."""
    written = re.sub("[A-Za-z]", lambda match: f"{match[0]},NVIDIA,1,1:", text)
    segments = parse_allocation(written)
    found = segment_by_container(segments, containers, lambda each: each.name.isupper())
    assert {name: segments[place][0].uuid for name, place in found.items()} == expected


def test_mig_devices_are_read():
    waiting = {name: MADE[name] for name in ("containerIndex", "gpuUUID", "profile", "placement")}
    waiting["deviceIndex"] = 1
    parsed = parse_mig_allocations(json.dumps([MADE, waiting]))
    assert parsed == (
        MigAllocation(0, 0, "GPU-a", "MIG-a", 4, 0),
        MigAllocation(0, 1, "GPU-a"),
    )


def without(*names):
    """Return the one allocation without some of its parts."""
    return [{name: value for name, value in MADE.items() if name not in names}]


BAD_MIG = [
    pytest.param("", "not JSON", id="nothing"),
    pytest.param("[{", "not JSON", id="cut short"),
    pytest.param("[" * 100_000, "not JSON", id="nested without end"),
    pytest.param("[" + "1" * 5000 + "]", "not JSON", id="a number without end"),
    pytest.param("[" + " " * 300_000 + "]", "not a JSON list", id="more than an annotation can hold"),
    pytest.param("{}", "not a JSON list", id="no list"),
    pytest.param("[1]", "not an allocation", id="no allocation"),
    pytest.param(json.dumps(without("gpuUUID")), "incomplete", id="no GPU"),
    pytest.param(json.dumps(without("profile")), "incomplete", id="no profile"),
    pytest.param(json.dumps(without("deviceIndex")), "incomplete", id="no place"),
    # Project-HAMi/HAMi pkg/device/nvidia/mig_allocations.go
    pytest.param(json.dumps(without("migUUID")), "only in part", id="instances without a UUID"),
    pytest.param(json.dumps(without("computeInstanceID")), "only in part", id="one instance missing"),
    pytest.param(json.dumps([MADE, MADE]), "same place", id="twice"),
    pytest.param(json.dumps([MADE | {"gpuInstanceID": -1}]), "not a number", id="negative"),
    pytest.param(json.dumps([MADE | {"gpuInstanceID": True}]), "not a number", id="true"),
    pytest.param(json.dumps([MADE | {"gpuInstanceID": 4.0}]), "not a number", id="a fraction"),
    pytest.param(json.dumps([MADE | {"deviceIndex": 1 << 40}]), "not a number", id="too large"),
    pytest.param(json.dumps([MADE | {"gpuUUID": 5}]), "not a string", id="a number for a name"),
    pytest.param('[{"containerIndex": NaN}]', "not a number", id="NaN"),
]


@pytest.mark.parametrize(("text", "wrong"), BAD_MIG)
def test_bad_mig_devices_are_refused(text, wrong):
    with pytest.raises(ValueError, match=wrong):
        parse_mig_allocations(text)


PIECES = st.sampled_from(
    [
        *("GPU-0", ",", ":", ";", "[", "]", "NVIDIA", "100", "-1", "0", "\n", "٣", "9" * 5000, "\0"),
        "GPU-0,N,1,2:",
    ]
)
TEXTS = st.one_of(st.text(), st.lists(PIECES, max_size=30).map("".join))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
    lambda inner: st.one_of(
        st.lists(inner), st.dictionaries(st.one_of(st.sampled_from(sorted(MADE)), st.text()), inner)
    ),
)


@given(TEXTS, st.lists(st.booleans(), max_size=4))
def test_any_text_is_read_or_refused(text, inits):
    containers = [
        ContainerSpec(name=f"c{place}", init=init) for place, init in enumerate(sorted(inits)[::-1])
    ]
    lenient = parse_allocation(text, lenient=True)
    try:
        strict = parse_allocation(text)
    except ValueError:
        strict = None
    assert strict in (None, lenient)
    for devices in lenient:
        assert all(each.uuid and each.memory >= 0 and each.cores >= 0 for each in devices)
    assert set(segment_by_container(lenient, containers, lambda _: True)) <= {
        file.name for file in containers
    }


@given(st.one_of(TEXTS, VALUES.map(json.dumps)))
def test_any_text_is_a_list_of_mig_devices_or_refused(text):
    try:
        parsed = parse_mig_allocations(text)
    except ValueError:
        return
    assert all(each.gpu and each.profile and (each.gi is None) == (not each.mig_uuid) for each in parsed)
