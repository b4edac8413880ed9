"""Reading and writing scenarios."""

import json

import pytest

from exporter.demo.scenario import MigLayout, PodAdd
from exporter.demo.scenario.catalog import dump, parse
from tests.fake.demo.making import MIB, gpu, instance, made, pod

CUT = {"instances": [instance(1, 0), instance(2, 1)]}


def test_omitted_values_of_a_minimal_scenario_are_derived():
    scenario = made()
    board = scenario.gpus[0]
    assert board.uuid.startswith("GPU-")
    assert len(board.uuid) == 40
    assert (board.minor, board.pci_bus_id) == (0, "00000000:07:00.0")
    assert board.memory_total == 16384 * MIB
    assert scenario == made()


def test_derived_uuids_differ_between_scenarios():
    assert made(name="other").gpus[0].uuid != made().gpus[0].uuid


def test_derived_pids_never_collide():
    crowd = pod("p-{n}", *[{"device": "{gpu:0}"}] * 10) | {"count": 100}
    pids = [process.pid for a_pod in made(pods=[crowd]).pods for process in a_pod.containers[0].processes]
    assert len(set(pids)) == 1000


def test_given_values_are_kept():
    container_id, uid = "ab" * 32, "0" * 32
    process = {"pid": 4242, "device": "GPU-x"}
    listed = pod("p", process, container_id=container_id) | {"uid": uid}
    scenario = made(gpus=[gpu(uuid="GPU-x", minor=5, serial=None)], pods=[listed])
    assert (scenario.gpus[0].uuid, scenario.gpus[0].minor, scenario.gpus[0].serial) == ("GPU-x", 5, None)
    assert (scenario.pods[0].uid, scenario.pods[0].containers[0].container_id) == (uid, container_id)
    assert scenario.pods[0].containers[0].processes[0].pid == 4242


def test_claims_are_completed():
    """A claim has its pod's namespace and this node, and all its containers have the same uid."""
    claim = {"device": "gpu-0", "name": "shared"}
    pods = [pod(name, claims=[claim]) for name in ("a", "b")]
    pods.append(pod("c", claims=[claim | {"namespace": "other", "driver": "gpu.amd.com", "uid": "0" * 32}]))
    first, second, third = (a_pod.containers[0].claims[0] for a_pod in made(pods=pods).pods)
    assert first == second
    assert (first.namespace, first.pool) == ("ml", made().node.name)
    assert first.cdi == f"k8s.gpu.nvidia.com/claim={first.uid}-gpu-0"
    assert (third.namespace, third.cdi) == ("other", f"k8s.gpu.amd.com/gpu={'0' * 32}-gpu-0")


def test_count_makes_copies_with_their_number():
    """A template is repeated, and {n} in it is the number of the copy."""
    held = pod("p-{n}", {"memory": "1 GiB"}, devices={"nvidia.com/gpu": ["{gpu:{n+1}}"]})
    scenario = made(gpus=[gpu(count=3)], pods=[held | {"count": 2}])
    assert [a_pod.name for a_pod in scenario.pods] == ["p-0", "p-1"]
    for number, a_pod in enumerate(scenario.pods):
        container = a_pod.containers[0]
        assert container.devices == {"nvidia.com/gpu": (scenario.gpus[number + 1].uuid,)}
        assert container.processes[0].device == scenario.gpus[number + 1].uuid


def test_references_become_uuids():
    held = pod("p", devices={"r": ["{gpu:0/mig:1}::3", "{gpu:1}"]})
    scenario = made(gpus=[gpu(mig=CUT), gpu()], pods=[held])
    cut = scenario.gpus[0].mig
    assert cut is not None
    ids = scenario.pods[0].containers[0].devices["r"]
    assert ids == (f"{cut.instances[1].uuid}::3", scenario.gpus[1].uuid)


@pytest.mark.parametrize(
    ("offer", "expected"),
    [
        ({"of": "gpus"}, ["{gpu}"]),
        ({"of": "gpus", "replicas": 2}, ["{gpu}::0", "{gpu}::1"]),
        ({"of": "gpus", "style": "gke"}, ["nvidia3"]),
        ({"of": "gpus", "style": "gke", "replicas": 2}, ["nvidia3/vgpu0", "nvidia3/vgpu1"]),
        ({"of": "mig"}, ["{mig0}", "{mig1}"]),
        ({"of": "mig", "replicas": 1}, ["{mig0}::0", "{mig1}::0"]),
        ({"of": "mig", "style": "gke"}, ["nvidia0/gi1", "nvidia0/gi2"]),
        ({"of": "mig", "style": "legacy-mig"}, ["MIG-{cut}/1/0", "MIG-{cut}/2/0"]),
        ({"of": "gpus", "gpus": [0]}, None),
        ({"ids": ["{gpu:1}"]}, ["{gpu}"]),
    ],
)
def test_offers_are_expanded_to_the_ids_of_their_plugin(offer, expected):
    scenario = made(gpus=[gpu(mig=CUT), gpu(minor=3)], offers=[{"resource": "r", **offer}])
    cut = scenario.gpus[0].mig
    assert cut is not None
    known = {
        "gpu": scenario.gpus[1].uuid,
        "cut": scenario.gpus[0].uuid,
        "mig0": cut.instances[0].uuid,
        "mig1": cut.instances[1].uuid,
    }
    if expected is None:
        assert scenario.offers == ()
    else:
        assert [list(offer.ids) for offer in scenario.offers] == [[form.format(**known) for form in expected]]


def test_an_offer_is_split_by_profile():
    """With a dot for +."""
    cut = {"instances": [instance(1, 0), instance(2, 1, profile="1g.2gb+me")]}
    scenario = made(gpus=[gpu(mig=cut)], offers=[{"resource": "nvidia.com/mig-{profile}", "of": "mig"}])
    assert [offer.resource for offer in scenario.offers] == [
        "nvidia.com/mig-1g.2gb",
        "nvidia.com/mig-1g.2gb.me",
    ]


def test_compute_instances_smaller_than_their_gpu_instance_are_not_offered():
    cuts = [
        instance(1, 0, ci=0, profile="1c.3g.8gb", memory_bytes="6 GiB", size=4),
        instance(1, 0, ci=1, profile="2c.3g.8gb", memory_bytes="6 GiB", size=4),
    ]
    scenario = made(gpus=[gpu(mig={"instances": cuts})], offers=[{"resource": "r", "of": "mig"}])
    assert scenario.offers == ()
    mig = scenario.gpus[0].mig
    assert mig is not None
    assert [(mig_device.compute_slices, mig_device.gi_slices) for mig_device in mig.instances] == [
        (1, 3),
        (2, 3),
    ]


def test_every_kind_of_fault_is_parsed():
    kinds = [
        {"kind": "nvml_error", "device": "{gpu:0}", "code": "GPU_IS_LOST"},
        {"kind": "nvml_hang", "function": "nvmlDeviceGetPowerUsage", "at": 5, "for": 2.5},
        {"kind": "kubelet_down"},
        {"kind": "kubelet_rate_limit"},
        {"kind": "kubelet_hang"},
        {"kind": "pod_delete", "pod": "ml/p"},
        {"kind": "pod_add", "pod": pod("q")},
        {"kind": "mig_layout", "gpu": 0, "instances": [instance(3, 0)]},
        {"kind": "process_exit", "pid": 77},
    ]
    held = pod("p", {"pid": 77, "device": "{gpu:0/mig:0}"})
    scenario = made(gpus=[gpu(mig=CUT)], pods=[held], faults=kinds)
    assert [fault.kind for fault in scenario.faults] == [kind["kind"] for kind in kinds]
    assert (scenario.faults[1].at, scenario.faults[1].for_) == (5.0, 2.5)
    added, layout = scenario.faults[6], scenario.faults[7]
    assert isinstance(added, PodAdd)
    assert added.pod.uid
    assert isinstance(layout, MigLayout)
    assert layout.instances[0].uuid.startswith("MIG-")
    assert parse(dump(scenario)) == scenario


def test_a_dumped_scenario_parses_as_equal():
    process = {"device": "{gpu:0/mig:0}", "memory": {"shape": "ramp", "low": "1 MiB", "high": "9 MiB"}}
    scenario = made(
        gpus=[gpu(mig=CUT, serial=None), gpu(fan=30)],
        offers=[{"resource": "r", "of": "mig"}],
        pods=[pod("p", process, {"device": "{gpu:1}", "memory": None})],
        host_processes=[{"device": "{gpu:1}", "command": "Xorg", "kind": "graphics"}],
        host_pid=False,
        identity="none",
    )
    text = dump(scenario)
    assert parse(text) == scenario
    assert "{gpu" not in text
    assert json.loads(text)["gpus"][0]["serial"] is None
