import time
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
    "host container beside the reader's slice": (f"/../system.slice/docker-{ID}.scope", CONTAINER_ONLY),
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


@pytest.mark.parametrize("suffix", ["", " (deleted)"])
@pytest.mark.parametrize("prefix", ["0::", "4:memory:", "1:name=systemd:", "3:cpu,cpuacct:"])
@pytest.mark.parametrize(("path", "place"), PLACES.values(), ids=PLACES.keys())
def test_place_of_path(path, place, prefix, suffix):
    """Each known path gives its pod and container, in v1 and v2, while it lives and once it is removed."""
    assert place == parse_cgroup(f"{prefix}{path}{suffix}\n")


@pytest.mark.parametrize("v2_first", [True, False])
def test_hybrid_file_is_read_for_its_best_line(v2_first):
    """A pod that only the v1 hierarchies know is found, wherever the line of the service stands."""
    lines = [f"4:memory:{BURSTABLE}/cri-containerd-{ID}.scope", "0::/system.slice/containerd.service"]
    assert parse_cgroup("\n".join(reversed(lines) if v2_first else lines)) == IN_POD


def test_line_with_container_beats_line_with_pod_only():
    """A hierarchy that stops at the pod does not hide the container that another one names."""
    assert parse_cgroup(f"2:pids:/kubepods/pod{UID}\n1:cpu:/kubepods/pod{UID}/{ID}\n0::/\n") == IN_POD


def test_pod_beats_container_without_pod():
    """A pod in one hierarchy beats a bare container in another."""
    assert parse_cgroup(f"2:pids:/docker/{OUTER}\n1:cpu:/kubepods/pod{UID}\n") == POD_ONLY


def test_own_pod_beats_container_without_pod():
    """A sibling in one hierarchy beats a bare container in another."""
    assert parse_cgroup(f"2:pids:/docker/{OUTER}\n1:cpu:/../{ID}\n") == SIBLING


def test_innermost_pod_counts():
    """On a node that runs inside a pod of another cluster, the pod of this node counts."""
    path = f"/kubepods/pod{OTHER_UID}/{OUTER}/kubelet/kubepods/burstable/pod{UID}/{ID}"
    assert parse_cgroup(f"0::{path}\n") == replace(IN_POD, outer=((OTHER_UID, OUTER),))


def test_pods_around_a_pod_are_told_from_the_next_one_outwards():
    """Each has the first container below it, if it has one."""
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
def test_what_may_be_said_of_a_process_that_ends(text, left):
    """Where there are hierarchies of v1, they alone are rewritten, and they alone tell."""
    assert has_left(text) == left


@pytest.mark.parametrize("text", ["", "\n", "::", "0::", "no colon at all", "\0\0", "0::/\udcff"])
def test_text_that_is_no_cgroup_file_gives_nowhere(text):
    """Empty, torn and foreign text is a place without pod and container."""
    assert parse_cgroup(text) == NOWHERE


FRAGMENTS = st.sampled_from(
    [
        "0::",
        "/",
        "..",
        "pod",
        UID,
        UNDERSCORED,
        STATIC,
        ID,
        "-",
        "_",
        ":",
        ".slice",
        "conmon-",
        "\n",
        "a",
        " ",
    ]
)


@settings(deadline=None)
@given(st.one_of(st.text(), st.lists(FRAGMENTS, max_size=40).map("".join)))
def test_any_text_gives_a_well_formed_place(text):
    """No text raises, and whatever is found has the shape of a uid and of an id and stood in the text."""
    place = parse_cgroup(text)
    assert place.pod_uid is None or len(place.pod_uid) in (32, 36)
    assert place.pod_uid is None or place.pod_uid in text.replace("_", "-")
    assert place.container_id is None or (len(place.container_id) == 64 and place.container_id in text)
    assert not (place.own_pod and place.pod_uid)


@given(st.text(alphabet="abc/.-_:", max_size=60), st.text(alphabet="/.-_", max_size=10))
@settings(max_examples=50, deadline=None)
def test_prefix_of_the_path_does_not_matter(prefix, sub_cgroup):
    """A pod is found under any custom root and with any cgroups below the container."""
    assert parse_cgroup(f"0::/{prefix}/kubepods/pod{UID}/{ID}/{sub_cgroup}\n") == IN_POD


HOSTILE = {
    "pods": "pod" * 700_000,
    "hex": "a" * 2_000_000,
    "almost ids": ("a" * 63 + "-") * 30_000,
    "almost uids": ("pod" + "a" * 31) * 60_000,
    "steps up": "/.." * 700_000,
    "sibling without end": "/../" + "a" * 2_000_000 + "-",
    "monitors": ("conmon-" + "a" * 64) * 30_000,
    "lines": "0::/\n" * 400_000,
    "colons": ":" * 2_000_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_lines_take_linear_time(text):
    """Two million hostile characters are read within seconds, where a quadratic reader takes hours."""
    start = time.process_time()
    parse_cgroup(f"0::{text}")
    assert time.process_time() - start < 5
