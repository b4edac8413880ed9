"""Places of processes by the text of their cgroup files."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.workloads.cgroups import CgroupPlace, has_left, parse_cgroup

UID = "1f8e2b60-90aa-4c3d-8e21-0b7d55c0ffee"
UNDERSCORED = UID.replace("-", "_")
MIXED = "1f8e2b60_90aa_4c3d-8e21_0b7d55c0ffee"
OTHER_UID = "77777777-1111-2222-3333-444444444444"
STATIC = "0123456789abcdef0123456789abcdef"
ID = "c0de" * 16
OUTER = "beef" * 16

BURSTABLE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice"
BEST_EFFORT = f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UNDERSCORED}.slice"
IN_KIND = f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort-pod{UNDERSCORED}.slice"

IN_POD = CgroupPlace(UID, ID)
POD_ONLY = CgroupPlace(UID, None)
CONTAINER_ONLY = CgroupPlace(None, ID)
SIBLING = CgroupPlace(None, ID, own_pod=True)
SOME_POD = CgroupPlace(None, ID, some_pod=True)
NOWHERE = CgroupPlace()

PLACES = {
    "guaranteed, systemd": (
        f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope",
        IN_POD,
    ),
    "burstable, systemd": (f"{BURSTABLE}/cri-containerd-{ID}.scope", IN_POD),
    "best effort, systemd": (f"{BEST_EFFORT}/cri-containerd-{ID}.scope", IN_POD),
    "static pod, systemd": (
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{STATIC}.slice/cri-containerd-{ID}.scope",
        CgroupPlace(STATIC, ID),
    ),
    "CRI-O": (f"{BURSTABLE}/crio-{ID}.scope", IN_POD),
    "CRI-O with crun": (f"{BURSTABLE}/crio-{ID}.scope/container", IN_POD),
    "CRI-O monitor": (f"{BURSTABLE}/crio-conmon-{ID}.scope", POD_ONLY),
    "cri-dockerd": (f"{BEST_EFFORT}/docker-{ID}.scope", IN_POD),
    "burstable, cgroupfs": (f"/kubepods/burstable/pod{UID}/{ID}", IN_POD),
    "guaranteed, cgroupfs": (f"/kubepods/pod{UID}/{ID}", IN_POD),
    "cgroup below the container": (f"/kubepods/besteffort/pod{UID}/{ID}/kube-proxy", IN_POD),
    "CRI-O, cgroupfs": (f"/kubepods/besteffort/pod{UID}/crio-{ID}", IN_POD),
    "containerd with the other driver": (
        f"/system.slice/containerd.service/kubepods-besteffort-pod{UNDERSCORED}.slice:cri-containerd:{ID}",
        IN_POD,
    ),
    "no scope suffix": (f"{BURSTABLE}/cri-containerd-{ID}", IN_POD),
    "kind, v1": (f"/docker/{OUTER}{IN_KIND}/cri-containerd-{ID}.scope", IN_POD),
    "kind, v2": (f"/system.slice/docker-{OUTER}.scope{IN_KIND}/cri-containerd-{ID}.scope", IN_POD),
    "k3d": (f"/system.slice/docker-{OUTER}.scope/kubepods/burstable/pod{UID}/{ID}", IN_POD),
    "relative, cgroupfs": (f"/../../pod{STATIC}/{ID}", CgroupPlace(STATIC, ID)),
    "relative, same class": (
        f"/../../kubepods-besteffort-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope",
        IN_POD,
    ),
    "relative, other class": (f"/../../..{BURSTABLE}/cri-containerd-{ID}.scope", IN_POD),
    "own pod, systemd": (f"/../cri-containerd-{ID}.scope", SIBLING),
    "own pod, cgroupfs": (f"/../{ID}", SIBLING),
    "own pod, cgroup below the container": (f"/../crio-{ID}.scope/container", SIBLING),
    "own pod, monitor": (f"/../crio-conmon-{ID}.scope", CgroupPlace(own_pod=True)),
    "the reader's own": ("/", NOWHERE),
    "host container, relative": (f"/../../../../system.slice/docker-{ID}.scope", CONTAINER_ONLY),
    "host container next to the reader's slice": (f"/../system.slice/docker-{ID}.scope", CONTAINER_ONLY),
    "plain docker": (f"/system.slice/docker-{ID}.scope/init", CONTAINER_ONLY),
    "podman": (f"/machine.slice/libpod-{ID}.scope/container", CONTAINER_ONLY),
    "podman of a user": (
        f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container",
        CONTAINER_ONLY,
    ),
    "podman in a service": (f"/system.slice/x.service/libpod-payload-{ID}", CONTAINER_ONLY),
    "podman monitor": (f"/machine.slice/libpod-conmon-{ID}.scope", NOWHERE),
    "no cgroups of pods, containerd": (f"/k8s.io/{ID}", SOME_POD),
    "no cgroups of pods, containerd, systemd": (f"/system.slice/cri-containerd-{ID}.scope", SOME_POD),
    "no cgroups of pods, CRI-O": (f"/system.slice/crio-{ID}.scope", SOME_POD),
    "no cgroups of pods, CRI-O's monitor": (f"/system.slice/crio-conmon-{ID}.scope", NOWHERE),
    "docker in a container": (f"/kubepods/burstable/pod{UID}/{ID}/docker/{OUTER}", IN_POD),
    "docker in a container, systemd": (
        f"{BURSTABLE}/cri-containerd-{ID}.scope/system.slice/docker-{OUTER}.scope",
        IN_POD,
    ),
    "a terminal's uuid": (
        f"/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn-{UID}.scope",
        NOWHERE,
    ),
    "short uid": ("/kubepods/pod123/container", NOWHERE),
    "mixed separators": (
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{MIXED}.slice/cri-containerd-{ID}.scope",
        IN_POD,
    ),
    "systemd inside the container": (f"{BURSTABLE}/cri-containerd-{ID}.scope/user.slice/nested", IN_POD),
    "rootless kubelet": (
        f"/user.slice/user-1000.slice/user@1000.service/kubelet.slice{BURSTABLE}/cri-containerd-{ID}.scope",
        IN_POD,
    ),
    "lxc": ("/lxc.payload.web/init.scope", NOWHERE),
    "Talos": ("/podruntime/runtime", NOWHERE),
    "Azure": ("/azure.slice/walinuxagent.service", NOWHERE),
    "init": ("/init.scope", NOWHERE),
    "uid of a word that ends in pod": (f"/tripod{UID}/{ID}", CONTAINER_ONLY),
    "uid with a digit too many": (f"/kubepods/pod{UID}0/{ID}", CONTAINER_ONLY),
    "id with a digit too many": (f"/kubepods/pod{UID}/{ID}0", POD_ONLY),
    "id with a digit too few": (f"/kubepods/pod{UID}/{ID[1:]}", POD_ONLY),
    "id above the pod only": (f"/docker/{OUTER}/kubepods/pod{UID}", POD_ONLY),
}


@pytest.mark.parametrize(("path", "place"), PLACES.values(), ids=PLACES.keys())
def test_each_known_path_has_its_pod_and_container(path, place):
    """In v1 and v2, while it exists and once it is removed."""
    for prefix in ("0::", "4:memory:", "1:name=systemd:", "3:cpu,cpuacct:"):
        assert parse_cgroup(f"{prefix}{path}\n") == parse_cgroup(f"{prefix}{path} (deleted)\n") == place


@pytest.mark.parametrize("v2_first", [True, False])
def test_a_hybrid_file_is_read_by_its_best_line(v2_first):
    """A pod that only v1 hierarchies know is found, wherever the v2 line is."""
    lines = [f"4:memory:{BURSTABLE}/cri-containerd-{ID}.scope", "0::/system.slice/containerd.service"]
    assert parse_cgroup("\n".join(reversed(lines) if v2_first else lines)) == IN_POD


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f"2:pids:/kubepods/pod{UID}\n1:cpu:/kubepods/pod{UID}/{ID}\n0::/\n", IN_POD),
        (f"2:pids:/docker/{OUTER}\n1:cpu:/kubepods/pod{UID}\n", POD_ONLY),
        (f"2:pids:/docker/{OUTER}\n1:cpu:/../{ID}\n", SIBLING),
    ],
)
def test_of_several_hierarchies_the_one_that_knows_most_counts(text, place):
    """A container in a pod, then a pod, then a sibling in the own pod, then a container without a pod."""
    assert parse_cgroup(text) == place


def test_the_innermost_pod_counts():
    """This node runs inside a pod of another cluster."""
    path = f"/kubepods/pod{OTHER_UID}/{OUTER}/kubelet/kubepods/burstable/pod{UID}/{ID}"
    assert parse_cgroup(f"0::{path}\n") == replace(IN_POD, outer=((OTHER_UID, OUTER),))


def test_the_pods_around_a_pod_are_listed_from_the_inside_out():
    """Each with the first container below it, if there is one."""
    path = f"/kubepods/pod{UID}/kubepods/pod{OTHER_UID}/{OUTER}/docker/{'a' * 64}/kubepods/pod{'5' * 32}/{ID}"
    assert parse_cgroup(f"0::{path}\n") == CgroupPlace("5" * 32, ID, outer=((OTHER_UID, OUTER), (UID, None)))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("4:memory:/\n1:cpu:/\n", True),
        (f"4:memory:/\n1:cpu:/\n0::/kubepods/pod{UID}/{ID}\n", True),
        ("1:name=systemd:/\n0::/system.slice/containerd.service\n", True),
        (f"4:memory:/\n1:cpu:/kubepods/pod{UID}/{ID}\n0::/\n", False),
        ("0::/\n", True),
        (f"0::/kubepods/pod{UID}/{ID}\n", False),
    ],
)
def test_a_process_has_left_its_cgroups_if_its_v1_hierarchies_are_at_the_root(text, left):
    """Of a process that ends only these are rewritten."""
    assert has_left(text) == left


@pytest.mark.parametrize("text", ["", "\n", "::", "0::", "no colon at all", "\0\0", "0::/\udcff"])
def test_text_that_is_not_a_cgroup_file_has_no_place(text):
    assert parse_cgroup(text) == NOWHERE


FRAGMENTS = st.sampled_from(
    [
        *("0::", "/", "..", "pod", UID, UNDERSCORED, STATIC, ID),
        *("-", "_", ":", ".slice", "conmon-", "\n", "a", " "),
    ]
)


@given(st.one_of(st.text(), st.lists(FRAGMENTS, max_size=40).map("".join)))
def test_any_text_gives_a_well_formed_place(text):
    """A uid and an id have their shape and are parts of the text."""
    place = parse_cgroup(text)
    assert place.pod_uid is None or len(place.pod_uid) in (32, 36)
    assert place.pod_uid is None or place.pod_uid in text.replace("_", "-")
    assert place.container_id is None or (len(place.container_id) == 64 and place.container_id in text)
    assert not (place.own_pod and place.pod_uid)


@given(st.text(alphabet="abc/.-_:", max_size=60), st.text(alphabet="/.-_", max_size=10))
@settings(max_examples=50)
def test_a_pod_is_found_below_any_root_and_above_any_cgroups(prefix, sub_cgroup):
    assert parse_cgroup(f"0::/{prefix}/kubepods/pod{UID}/{ID}/{sub_cgroup}\n") == IN_POD


HOSTILE = (
    "pod" * 350_000,
    "a" * 1_000_000,
    ("a" * 63 + "-") * 15_000,
    ("pod" + "a" * 31) * 30_000,
    "/.." * 350_000,
    "/../" + "a" * 1_000_000 + "-",
    ("conmon-" + "a" * 64) * 15_000,
    "0::/\n" * 200_000,
    ":" * 1_000_000,
)


def test_hostile_lines_take_linear_time():
    """A quadratic reader would take hours, and exceed the limit of all tests."""
    for text in HOSTILE:
        assert parse_cgroup(f"0::{text}").pod_uid in (None, "a" * 32)
