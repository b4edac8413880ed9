"""HAMi's devices of other makers: what its annotations say of them, in the words of its own tests."""

import json

import pytest

from exporter.model import (
    Allocation,
    ContainerFile,
    DeviceKey,
    DeviceUse,
    GpuIdentity,
    NodeObject,
    OfferedDevice,
    SliceCount,
    SystemFiles,
)
from exporter.sharing import SYSTEMS
from exporter.sharing.hami.annotations import Registered, registered
from exporter.sharing.hami.vendor_system import HamiVendor
from exporter.sharing.hami.vendors import HAMI_VENDORS, HamiAscend
from tests.core.attribution.build import GIB, UUID, gpu
from tests.core.sharing.build import by, container, only, pod, pods, resolve, rows
from tests.core.sharing.cases import Case

MIB = 1 << 20
NPU = "npu-die-0001"
ASCEND = "huawei.com/Ascend910A"
TOLD = "hami.io/Ascend910A-devices-allocated"
AMD = "GPU-8e1bb56457addd1b"


def held(name, **by_resource):
    """Return these numbers of ids of each resource, held by pod ``name``."""
    return [
        Allocation(container(name), resource, f"{resource}-id-{number}")
        for resource, count in by_resource.items()
        for number in range(count)
    ]


CASE = Case(
    name="hami-hygon",
    isolation="",
    reason="hami_hygon_annotation",
    annotate=lambda text: {"hami.io/dcu-devices-allocated": text},
    device="d-9",
    here="d-9,DCU,65536,80:;",
    gone="",
    entitled=(64 * GIB, 0.8),
    amounts={"hygon.com/dcunum": 1},
    ids=lambda name: held(name, **{"hygon.com/dcunum": 1}),
    malformed=(
        "uuid,type,100:;",  # Project-HAMi/HAMi pkg/device/devices_test.go
        *(f"d-0,DCU,{rest}:;" for rest in ("-1,5", "1_000,5", "9" * 5000 + ",5")),
        *("d 0,DCU,10,5:;", "x" * 300 + ",DCU,10,5:;", f"{UUID},DCU,10,5:;"),
        "d-0,DCU,1,1:d-1,DCU,1,1:d-2,DCU,1,1:;",  # more devices than ids
    ),
    unconfirmed=({}, {"hami.io/dcu-devices-to-allocate": "d-0,DCU,100,10:;"}),
)


def given_to(annotations, resources, **more):
    """Return the holdings of a node with one pod that has these annotations, and ids of these resources."""
    facts = {"pods": pods(pod("a", annotations)), "gpus": [], "allocated": held("a", **resources)} | more
    return resolve(facts.pop("gpus"), facts.pop("allocated"), **facts)


# System, index of the device, MiB and share of the holder; resource, annotation and its text.
# The texts are those of Project-HAMi/HAMi pkg/device/<vendor>/device_test.go, where there is one.
HELD = [
    ("cambricon", 3, 256000, 0.01, "cambricon.com/vmlu", "cambricon-mlu-devices", "n-mlu-3,MLU,256000,1:;"),
    ("hygon", -1, 2048, 0.01, "hygon.com/dcunum", "dcu-devices", "test1,DCU,2048,1:;"),
    (
        *("iluvatar", 0, None, None, "iluvatar.ai/MR-V100-vgpu", "MR-V100-devices"),
        "k8s-gpu-iluvatar-0,MR-V100,0,0:;",
    ),
    # The older key.
    ("iluvatar", 0, 16384, 0.5, "iluvatar.ai/vgpu", "iluvatar-vgpu-devices", "i-0,Iluvatar,16384,50:;"),
    # Of 16 cores.
    (
        *("mthreads", 1, 1000, 0.25, "mthreads.com/vgpu", "mthreads-vgpu-devices"),
        "n-mthreads-1,Mthreads,1000,4:;",
    ),
    # Whole ones, whose memory is a fixed number, and parts.
    ("metax", 0, None, 1.0, "metax-tech.com/gpu", "metax-gpu-devices", "n-metax-0,Metax-GPU,65536,100:;"),
    ("metax", -1, 4096, 0.25, "metax-tech.com/sgpu", "metax-sgpu-devices", "GPU-m1,Metax-SGPU,4096,25:;"),
    ("kunlun", 4, None, 1.0, "kunlunxin.com/xpu", "kunlun", "n-kunlun-4,kunlun,98304,100:;"),
    ("kunlun", 1, 24576, 0.25, "kunlunxin.com/vxpu", "xpu-devices", "x-1,XPU,24576,25:;"),
    ("enflame", 0, None, 1.0, "enflame.com/gcu", "enflame-gcu-devices", "testnode-GCU-0,GCU,0,0:;"),
    # A profile, and percents (HAMi v2.9.0 pkg/device/enflame/device.go).
    (
        *("enflame", 2, 8192, 0.17, "enflame.com/drs-gcu", "enflame-vgpu-devices"),
        "n-enflame-drs-2,Enflame,8192,17:;",
    ),
    (
        *("enflame", 1, None, None, "enflame.com/shared-gcu", "enflame-vgpu-devices"),
        "n-enflame-1,Enflame,50,0:;",
    ),
    # Project-HAMi/biren-device-plugin pkg/brgpu/runc.go.
    ("biren", 2, None, None, "birentech.com/gpu", "Biren-devices", "card_2,Biren,0,0:;"),
    ("vastai", -1, None, None, "vastaitech.com/va", "Vastai-devices", "v0,Vastai,0,0:;"),
    # The cores of a template mean nothing.
    ("ascend", 0, 8738, None, ASCEND, "Ascend910A-devices", "device-0,Ascend,8738,1:;"),
]


@pytest.mark.parametrize("row", HELD, ids=lambda row: f"{row[0]}-{row[4]}")
def test_a_device_is_held_as_the_annotation_says(row):
    """The device is shown, though no driver here reads it."""
    system, index, memory, compute, resource, key, text = row
    holdings = given_to({f"hami.io/{key}-allocated": text}, {resource: 1})
    holding = only(holdings)
    uuid, model = text.split(",")[:2]
    vendor = {"kunlun": "kunlunxin", "ascend": "huawei"}.get(system, system)
    assert (holding.holder, holding.device) == (container("a"), DeviceKey(uuid))
    assert (holding.sharing, holding.slices, holding.meter) == (f"hami-{system}", 1, None)
    assert (holding.memory_entitled, holding.compute_entitled) == (memory and memory * MIB, compute)
    assert holdings.unread == (GpuIdentity(uuid=uuid, index=index, model=model, vendor=vendor),)
    assert (holdings.devices[DeviceKey(uuid)].sharing, holdings.unresolved) == (f"hami-{system}", {})


def test_amounts_of_memory_and_cores_are_not_counted_as_devices():
    holdings = given_to(
        {"hami.io/cambricon-mlu-devices-allocated": "m-0,MLU,512,2:;"},
        {"cambricon.com/vmlu": 1, "cambricon.com/mlu.smlu.vmemory": 2, "cambricon.com/mlu.smlu.vcore": 2},
    )
    holding = only(holdings)
    assert (holding.resource, holding.slices, holdings.unresolved) == ("cambricon.com/vmlu", 1, {})


def test_containers_and_devices_are_distinguished():
    text = ";d-0,DCU,100,10:d-1,DCU,200,20:;d-1,DCU,300,30:;"
    for init, annotation in ((("setup",), text), ((), text[1:])):
        one = pod("a", {"hami.io/dcu-devices-allocated": annotation}, containers=("x", "y"), init=init)
        ids = [(container("a", "x"), "x-1"), (container("a", "x"), "x-2"), (container("a", "y"), "y-1")]
        allocated = [Allocation(holder, "hygon.com/dcunum", each) for holder, each in ids]
        holdings = resolve([], allocated, pods=pods(one))
        by_holder = {
            (holding.holder.container, holding.device.uuid): holding.memory_entitled
            for holding in holdings.holdings
        }
        assert by_holder == {("x", "d-0"): 100 * MIB, ("x", "d-1"): 200 * MIB, ("y", "d-1"): 300 * MIB}
        assert {count.allocated for count in holdings.devices[DeviceKey("d-1")].slices} == {2}


def test_a_device_twice_is_one_holding():
    holdings = given_to(
        {"hami.io/dcu-devices-allocated": "d-0,DCU,100,10:d-0,DCU,200,20:;"}, {"hygon.com/dcunum": 2}
    )
    holding = only(holdings)
    assert (holding.slices, holding.memory_entitled) == (2, 300 * MIB)
    assert holding.compute_entitled == pytest.approx(0.3)


def test_without_annotation_ids_of_hami_are_unresolved_and_others_passed_over():
    """Resources that other plugins have too mean nothing without HAMi's word."""
    own = given_to({}, {"hygon.com/dcunum": 2})
    assert (own.unresolved, own.unresolved_holders) == ({"hygon.com/dcunum": 2}, {container("a")})
    assert given_to({}, {"cambricon.com/mlu": 1, "metax-tech.com/gpu": 1}).unresolved == {}


@pytest.mark.parametrize(
    ("mask", "offered", "compute"),
    [
        pytest.param(1, (2, 4), 0.5, id="the first of two cores"),
        pytest.param(2, (2, 4), 0.5, id="the second"),
        pytest.param(3, (2, 4), 1.0, id="both"),
        pytest.param(3, (2, 16), 0.25, id="two of eight"),
        pytest.param(0, (2, 4), None, id="none"),
        pytest.param(15, (4, 16), 0.5, id="two of four, where all are noted"),
        pytest.param(3, (2, 2), None, id="more than there are"),
        pytest.param(1, (0, 0), None, id="their number is unknown"),
        pytest.param(1, (2, 3), None, id="not as many on each"),
    ],
)
def test_cores_of_neuron_are_bits(mask, offered, compute):
    """The number is a mask; the cores of a device follow from both offers (awsneuron/device.go)."""
    counts = zip(("neuron", "neuroncore"), offered, strict=True)
    holdings = given_to(
        {"hami.io/aws-neuron-devices-allocated": f"n-AWSNeuron-1,AWSNeuron,0,{mask}:;"},
        {"aws.amazon.com/neuroncore": 1},
        offered=[
            OfferedDevice(f"aws.amazon.com/{name}", str(n)) for name, count in counts for n in range(count)
        ],
    )
    assert (only(holdings).compute_entitled, only(holdings).memory_entitled) == (compute, None)


@pytest.mark.parametrize(
    ("texts", "resources", "maker"),
    [
        (("metax-gpu-devices", "metax-sgpu-devices"), ("metax-tech.com/gpu", "metax-tech.com/sgpu"), "metax"),
        (
            ("enflame-gcu-devices", "enflame-vgpu-devices"),
            ("enflame.com/gcu", "enflame.com/drs-gcu"),
            "enflame",
        ),
        (("kunlun", "xpu-devices"), ("kunlunxin.com/xpu", "kunlunxin.com/vxpu"), "kunlunxin"),
    ],
    ids=["metax", "enflame", "kunlun"],
)
def test_each_kind_of_a_vendor_belongs_to_the_container_with_its_request(texts, resources, maker):
    """HAMi 2.7 to 2.9 shifts the first kind when a container asks for another (pkg/scheduler/score.go)."""
    annotated = pod(
        "a",
        {
            f"hami.io/{texts[0]}-allocated": ";n-x-0,X,65536,100:;",
            f"hami.io/{texts[1]}-allocated": ";n-y-0,Y,1024,10:;",
        },
        containers=("one", "two"),
        limits={"one": {resources[0]: 1}, "two": {resources[1]: 1}},
    )
    allocated = [
        Allocation(container("a", name), resource, "x")
        for name, resource in zip(("one", "two"), resources, strict=True)
    ]
    holdings = resolve([], allocated, pods=pods(annotated))
    assert by(holdings, "holder.container", "device.uuid") == {"one": "n-x-0", "two": "n-y-0"}
    assert {identity.vendor for identity in holdings.unread} == {maker}
    assert holdings.unresolved == {}


def test_whole_devices_of_neuron_are_whole_however_many_cores_they_have():
    """Of one device with eight cores HAMi's mask has two bits (awsneuron/device.go, addCoreUsage)."""
    holdings = given_to(
        {"hami.io/aws-neuron-devices-allocated": "n-AWSNeuron-0,AWSNeuron,0,3:;"},
        {"aws.amazon.com/neuron": 1},
        offered=[OfferedDevice("aws.amazon.com/neuron", "0")]
        + [OfferedDevice("aws.amazon.com/neuroncore", str(n)) for n in range(8)],
    )
    assert only(holdings).compute_entitled == 1.0
    assert holdings.devices[only(holdings).device].exclusive


@pytest.mark.parametrize(
    ("annotation", "resources", "slices"),
    [
        # Two cores of each device.
        (("aws-neuron", "a,AWSNeuron,0,3:b,AWSNeuron,0,3:;"), {"aws.amazon.com/neuroncore": 4}, [2, 2]),
        # A profile of three slices.
        (("enflame-vgpu", "n-enflame-drs-0,Enflame,24576,50:;"), {"enflame.com/drs-gcu": 3}, [3]),
        # Ids that do not come out even.
        (("xpu", "a,XPU,24576,25:b,XPU,24576,25:;"), {"kunlunxin.com/vxpu": 3}, [1, 1]),
    ],
)
def test_ids_that_count_parts_of_a_device_are_its_slices(annotation, resources, slices):
    """What is allocated of a resource is as many as the kubelet gave out."""
    assert (
        rows(given_to({f"hami.io/{annotation[0]}-devices-allocated": annotation[1]}, resources), "slices")
        == slices
    )


@pytest.mark.parametrize(
    ("policy", "cores", "compute"),
    [
        pytest.param("fixed-share", 60, 0.6, id="never more than the share"),
        pytest.param("burst-share", 60, 0.6, id="more while others leave it"),
        pytest.param(
            "best-effort", 60, None, id="not limited, examples/metax/sgpu/allocate_specific_qos.yaml"
        ),
        pytest.param(
            "best-effort", 100, 1.0, id="the GPU alone, examples/metax/sgpu/allocate_exclusive.yaml"
        ),
        pytest.param(None, 0, None, id="online, examples/metax/sgpu/online.yaml"),
    ],
)
def test_the_policy_of_metax_decides_whether_compute_is_limited(policy, cores, compute):
    holdings = given_to(
        {"hami.io/metax-sgpu-devices-allocated": f"GPU-123,Metax-SGPU,4096,{cores}:;"}
        | ({} if policy is None else {"metax-tech.com/sgpu-qos-policy": policy}),
        {"metax-tech.com/sgpu": 1},
    )
    assert (only(holdings).compute_entitled, only(holdings).memory_entitled) == (compute, 4 * GIB)


def test_hamis_own_resources_without_pods_make_it_blind():
    resources = ("hygon.com/dcunum", "iluvatar.ai/MR-V100-vgpu", "kunlunxin.com/vxpu", "birentech.com/gpu")
    allocated = [Allocation(container("a"), resource, "x") for resource in resources]
    assert resolve([], allocated).blind.keys() == {"hami-hygon", "hami-iluvatar", "hami-kunlun"}


def test_the_last_device_of_neuron_needs_no_colon():
    """As Project-HAMi/HAMi pkg/device/awsneuron/device_test.go has it."""
    holdings = given_to(
        {"hami.io/aws-neuron-devices-allocated": "test1,AWSNeuron,0,2:test2,AWSNeuron,0,3;"},
        {"aws.amazon.com/neuron": 2},
    )
    assert rows(holdings, "device.uuid") == ["test1", "test2"]


def amd(address="00000000:19:00.0", uuid=AMD):
    """Return a GPU of AMD's."""
    identity = GpuIdentity(uuid=uuid, index=0, model="MI300X", vendor="amd", pci_bus_id=address)
    return gpu(identity=identity, uuid=uuid)


def on_amd(name, *ids, listed=None, gpus=(), offered=(), cores=76):
    """Return the holdings of a node whose pod has a GPU by HAMi's annotation; ``listed`` is its register."""
    registered_devices = [{"id": name, "index": 0, "count": 10, "devcore": 304} | (listed or {})]
    node = NodeObject(annotations={"hami.io/node-amd-register": json.dumps(registered_devices)})
    annotation = {"hami.io/amd-devices-allocated": f"{name},AMD Instinct MI300X VF,16384,{cores}:;"}
    return resolve(
        list(gpus) or [amd()],
        [Allocation(container("a"), "amd.com/gpu", each) for each in ids],
        [OfferedDevice("amd.com/gpu", each) for each in (*ids, *offered)],
        pods=pods(pod("a", annotation)),
        node=None if listed is None else node,
    )


SMI = "8eff74b5-0000-1000-801b-b56457addd1b"
OTHER_SLICE = "0000:43:00.0#1"


@pytest.mark.parametrize(
    ("name", "listed", "offered", "compute"),
    [
        pytest.param("a", {"custominfo": {"pciBDF": "0000:19:00.0"}}, [OTHER_SLICE], 0.25, id="address"),
        pytest.param(SMI, None, [OTHER_SLICE], None, id="AMD SMI, Project-HAMi/amd-device-plugin README.md"),
        pytest.param("8e0074a1-0000-1000-801b-b56457addd1b", {}, [OTHER_SLICE], 0.25, id="AMD SMI, newer"),
        pytest.param("GPU-8e1bb56457addd1b", {}, [OTHER_SLICE], 0.25, id="ROCm"),
        pytest.param("anything", {}, [], 0.25, id="the only one of the plugin"),
    ],
)
def test_an_amd_gpu_is_found_by_its_names(name, listed, offered, compute):
    """Its compute units count against those that the plugin noted (docs/develop/amd-vgpu.md)."""
    holdings = on_amd(name, "0000:19:00.0#7", listed=listed, offered=offered)
    holding = only(holdings)
    assert (holding.device.uuid, holding.sharing, holding.isolation) == (AMD, "hami-amd", "soft")
    assert (holding.memory_entitled, holding.compute_entitled) == (16 * GIB, compute)
    assert (holding.slices, holdings.unread, holdings.unresolved) == (1, (), {})
    assert holdings.devices[DeviceKey(AMD)].slices == (SliceCount("amd.com/gpu", 1, 1),)


def test_the_annotation_counts_not_the_address_in_the_id():
    """The kubelet chooses ids, the scheduler GPUs; the plugin follows the scheduler."""
    other = amd("00000000:43:00.0", "GPU-00000000000000aa")
    holdings = on_amd(SMI, OTHER_SLICE, gpus=[amd(), other], offered=["0000:19:00.0#0"])
    assert only(holdings).device.uuid == AMD


def test_an_amd_gpu_that_is_not_here_is_unresolved():
    for name in ("x", "8eff74b5-0000-1000-801b-000000000000"):
        holdings = on_amd(name, "0000:19:00.0#0", offered=[OTHER_SLICE])
        assert (holdings.holdings, holdings.unresolved) == ((), {"amd.com/gpu": 1})
    assert on_amd(UUID, "0000:19:00.0#0", gpus=[gpu(), amd()]).unresolved == {"amd.com/gpu": 1}


def test_without_pods_hami_on_amd_is_blind():
    holdings = resolve([amd()], [Allocation(container("a"), "amd.com/gpu", "0000:19:00.0#3")])
    assert (holdings.holdings, holdings.unresolved) == ((), {"amd.com/gpu": 1})
    assert holdings.blind.keys() == {"hami-amd"}


def test_a_whole_gpu_of_amds_plugin_outweighs_the_annotation():
    """HAMi before 2.10 noted a node's name and the memory of another model (pkg/device/amd/device.go)."""
    holdings = resolve(
        [amd()],
        [Allocation(container("a"), "amd.com/gpu", "0000:19:00.0")],
        pods=pods(pod("a", {"hami.io/amd-devices-allocated": "node-AMD-0,AMD,192000,0:;"})),
    )
    assert (only(holdings).sharing, only(holdings).compute_entitled) == ("exclusive", 1.0)
    assert only(holdings).memory_entitled == amd().memory.total


def ascend(text, *, mode=None, node_mode=None, listed=None, registered_cores=30, **facts):
    """Return the holdings of a node with one pod that has this annotation for an Ascend 910A."""
    annotations = {TOLD: text}
    annotations |= {} if mode is None else {"huawei.com/vnpu-mode": mode}
    annotations |= (
        {} if listed is None else {ASCEND: listed if isinstance(listed, str) else json.dumps(listed)}
    )
    devices = [{"id": NPU, "index": 5, "count": 10, "devmem": 32768, "devcore": registered_cores}]
    noted = {"hami.io/node-register-Ascend910A": json.dumps(devices)}
    noted |= {} if node_mode is None else {"hami-vnpu-core": node_mode}
    return given_to(annotations, {ASCEND: text.count(",Ascend")}, node=NodeObject(annotations=noted), **facts)


@pytest.mark.parametrize(
    ("mode", "template", "cores", "compute", "kept_apart"),
    [
        pytest.param(
            None, "vir08", 1, 8 / 30, ("hard", False), id="a template, pkg/device/ascend/device_test.go"
        ),
        pytest.param(None, "vir05_1c_16g", 0, 5 / 30, ("hard", False), id="a template of the 910B"),
        pytest.param(None, "", 0, 1.0, ("hard", True), id="the whole NPU"),
        pytest.param(None, "lemon", 0, None, ("hard", False), id="a template of another name"),
        pytest.param("hami-core", None, 30, 0.3, ("soft", False), id="the library"),
        pytest.param("hami-core", None, 0, None, ("soft", False), id="the library without a limit"),
    ],
)
def test_npus_are_divided_by_the_driver_or_by_a_library(mode, template, cores, compute, kept_apart):
    """A template has AI cores out of those that the node registered; the library counts percent."""
    listed = [{"UUID": NPU, "memory": 8738} | ({} if template is None else {"temp": template})]
    holdings = ascend(f"{NPU},Ascend910A,8738,{cores}:;", mode=mode, listed=listed)
    holding = only(holdings)
    assert holding.compute_entitled == compute
    assert (holding.isolation, holdings.devices[holding.device].exclusive) == kept_apart
    assert holding.memory_entitled == 8738 * MIB
    assert holdings.unread[0].index == 5


def shmem(*names, used=3 * GIB):
    """Return the files of the library for pod a, by the container that names each."""
    use = DeviceUse(device="", memory_limit=8 * GIB, memory_used=used)
    found = tuple(ContainerFile(pod_uid="uid-a", container=name, devices=(use,)) for name in names)
    return {"hami-ascend": SystemFiles(containers=found)}


@pytest.mark.parametrize(
    ("mode", "node_mode", "folder", "isolation"),
    [
        pytest.param(
            None, "true", True, "soft", id="left to the library, ascend-device-plugin's pull request 106"
        ),
        pytest.param(None, "true", False, "", id="perhaps by a template, as ascend-device-plugin v1.4.0"),
        pytest.param("", "true", True, "soft", id="an empty mode"),
        pytest.param("", "true", False, "", id="an empty mode, no folder"),
        pytest.param(None, "false", True, "soft", id="a node of templates by now"),
        pytest.param(None, "false", False, "hard", id="a node of templates"),
        pytest.param(None, None, False, "hard", id="a node that says nothing"),
        pytest.param("template", "true", True, "hard", id="the pod says something else"),
        pytest.param("hami-core", "false", False, "soft", id="the pod says it"),
    ],
)
@pytest.mark.parametrize("template", ["", "vir05_1c_16g"])
def test_without_a_mode_the_librarys_folder_decides(mode, node_mode, folder, isolation, template):
    """The scheduler names a template in any case; what it is of, a node of the library does not register."""
    soft_node = node_mode == "true"
    holdings = ascend(
        f"{NPU},Ascend910A,16384,0:;",
        mode=mode,
        node_mode=node_mode,
        listed=[{"UUID": NPU, "memory": 16384} | ({"temp": template} if template else {})],
        registered_cores=100 if soft_node else 20,
        files=shmem("main") if folder else {"hami-ascend": SystemFiles()},
    )
    holding, hard = only(holdings), isolation == "hard"
    share = 1.0 if not template else None if soft_node else 0.25
    assert holding.isolation == isolation
    assert holding.compute_entitled == (share if hard else None)
    assert holdings.devices[holding.device].exclusive == (hard and not template)
    assert (holding.meter and holding.meter.memory) == (3 * GIB if folder and isolation == "soft" else None)
    assert (holding.memory_entitled, holdings.unread[0].index) == (16384 * MIB, 5)


@pytest.mark.parametrize(
    ("folder", "isolation"), [(True, "soft"), (False, "")], ids=["of the other pod", "of none"]
)
def test_an_npu_is_isolated_like_its_least_isolated_holder(folder, isolation):
    annotations = {TOLD: f"{NPU},Ascend910A,16384,0:;", ASCEND: json.dumps([{"UUID": NPU}])}
    holdings = resolve(
        [],
        held("a", **{ASCEND: 1}) + held("b", **{ASCEND: 1}),
        pods=pods(pod("b", annotations | {"huawei.com/vnpu-mode": "template"}), pod("a", annotations)),
        node=NodeObject(annotations={"hami-vnpu-core": "true"}),
        files=shmem("main") if folder else {},
    )
    assert set(rows(holdings, "isolation")) == {isolation}


@pytest.mark.parametrize("listed", ["{", "[1]", "{}", "[" * 100_000, "x" * 70_000])
def test_a_bad_list_of_templates_costs_compute_alone(listed, objections):
    holdings = ascend(f"{NPU},Ascend910A,8738,0:;", listed=listed, objections=objections)
    assert (only(holdings).memory_entitled, only(holdings).compute_entitled) == (8738 * MIB, None)
    assert objections.counts == {"hami_ascend_annotation": 1}


def test_the_librarys_file_meters_a_container_with_one_npu():
    """The file does not divide between several NPUs."""
    use = DeviceUse(device="", memory_limit=8 * GIB, memory_used=3 * GIB)
    file = ContainerFile(pod_uid="uid-a", container="main", devices=(use,))
    files = {"hami-ascend": SystemFiles(containers=(file,))}
    one, two = f"{NPU},Ascend910A,8192,30:;", f"{NPU},Ascend910A,8192,30:npu-die-2,Ascend910A,8192,30:;"
    meter = only(ascend(one, mode="hami-core", files=files)).meter
    assert meter is not None
    assert (meter.source, meter.memory, meter.compute) == ("hami-vnpu", 3 * GIB, None)
    assert rows(ascend(two, mode="hami-core", files=files), "meter") == [None, None]
    assert only(ascend(one, mode="template", files=files)).meter is None
    empty = {"hami-ascend": SystemFiles(containers=(ContainerFile(pod_uid="uid-a", container="main"),))}
    assert only(ascend(one, mode="hami-core", files=empty)).meter is None


@pytest.mark.parametrize(
    ("init", "containers", "place"),
    [((), ("sidecar", "main"), "sidecar"), (("setup",), ("main",), "setup")],
    ids=["a sidecar", "an init container"],
)
def test_the_librarys_file_may_have_the_name_of_another_container(init, containers, place):
    """Volcano's segments skip containers without requests; the plugin counts all, init containers first."""
    annotated = pod(
        "a",
        {TOLD: f"{NPU},Ascend910A,8192,30:;", "huawei.com/vnpu-mode": "hami-core"},
        init=init,
        containers=containers,
        limits={"main": {ASCEND: 1}},
    )
    holdings = resolve([], held("a", **{ASCEND: 1}), pods=pods(annotated), files=shmem(place))
    assert only(holdings).holder == container("a")
    assert only(holdings).meter.memory == 3 * GIB


def test_a_container_does_not_take_the_file_of_the_next():
    annotated = pod(
        "a",
        {TOLD: f"{NPU},Ascend910A,8192,30:;{NPU},Ascend910A,8192,30:;", "huawei.com/vnpu-mode": "hami-core"},
        init=("setup",),
        containers=("main", "side"),
        limits={"main": {ASCEND: 1}, "side": {ASCEND: 1}},
    )
    empty = ContainerFile(pod_uid="uid-a", container="setup")
    files = {"hami-ascend": SystemFiles(containers=(empty, *shmem("main")["hami-ascend"].containers))}
    allocated = [Allocation(container("a", name), ASCEND, f"x-{name}") for name in ("main", "side")]
    holdings = resolve([], allocated, pods=pods(annotated), files=files)
    meters = {each.holder.container: each.meter and each.meter.memory for each in holdings.holdings}
    assert meters == {"main": None, "side": 3 * GIB}


def test_npus_are_offered_in_slices():
    offered = [OfferedDevice(ASCEND, f"{NPU}-{number}") for number in range(4)]
    offered += [OfferedDevice(ASCEND, "Ascend910-3")]
    holdings = ascend(f"{NPU},Ascend910A,8192,0:;", offered=offered)
    assert [(each.offered, each.allocated) for each in holdings.devices[DeviceKey(NPU)].slices] == [(4, 1)]
    assert resolve([], [Allocation(container("a"), ASCEND, "Ascend910-3")]).unresolved == {}


def test_without_pods_the_holders_of_npus_are_unknown():
    holdings = resolve([], [Allocation(container("a"), ASCEND, f"{NPU}-2")])
    assert (holdings.holdings, holdings.unresolved) == ((), {ASCEND: 1})
    assert holdings.blind == {"hami-ascend": HamiAscend.blind_without_pods}


ADDRESSED, BARE = Registered(0, 304, "0000:83:00.0"), Registered(0, None)
REGISTERS = {
    '[{"id":"a","index":2,"devcore":20}]': {"a": Registered(2, 20)},
    # With an address, as in Project-HAMi/amd-device-plugin README.md.
    '[{"id":"a","devcore":304,"custominfo":{"pciBDF":"0000:83:00.0"}}]': {
        "a": Registered(0, 304, "0000:83:00.0")
    },
    '[{"id":"a","custominfo":[]},{"id":"b","custominfo":{"pciBDF":1}}]': dict.fromkeys(
        "ab", Registered(0, None)
    ),
    '[{"id":"a"}]': {"a": Registered(0, None)},  # Go leaves out zeros
    '[{"id":"a","index":-1,"devcore":1.5}]': {"a": Registered(None, None)},
    # The older form, devices_test.go; later with an index.
    "DCU-a,4,32768,100,DCU,0,true:DCU-b,4,32768,100,DCU,0,true:": {
        "DCU-a": Registered(0, 100, "", 4),
        "DCU-b": Registered(1, 100, "", 4),
    },
    "a,10,7680,100,T,0,true,7,hami-core:": {"a": Registered(7, 100, "", 10)},
    "a,10,7680,x,T,0,true:": {"a": Registered(0, None, "", 10)},
    **{text: {} for text in ('[{"id":1},2,null,{}]', "a,b:", "[" * 100_000, '{"a": 1}')},
}


@pytest.mark.parametrize(("text", "devices"), REGISTERS.items(), ids=range(len(REGISTERS)))
def test_the_register_of_a_node_is_read(text, devices):
    key = HamiAscend.registers
    node = NodeObject(annotations={"hami.io/node-register-Ascend910A": text, "other": '[{"id":"b"}]'})
    assert registered(node, key) == devices
    assert registered(None, key) == {}


def test_no_resource_belongs_to_two_vendors():
    resources = [
        "huawei.com/Ascend910B4-1",
        "huawei.com/Ascend310P-memory",
        "cambricon.com/vmlu",
        "hygon.com/dcunum",
        "iluvatar.ai/MR-V100.vMem",
        "mthreads.com/sgpu-core",
        "metax-tech.com/sgpu",
        "enflame.com/gcu",
        "kunlunxin.com/vxpu-memory",
        "birentech.com/gpu",
        "vastaitech.com/va",
        "aws.amazon.com/neuron",
        "amd.com/gpumem",
    ]
    vendors = [system for system in HAMI_VENDORS if issubclass(system, HamiVendor)]
    assert len(vendors) == 12
    for resource in resources:
        assert sum(system.resources.fullmatch(resource) is not None for system in vendors) == 1, resource
    assert not any(system.resources.fullmatch("nvidia.com/gpu") for system in vendors)
    assert set(HAMI_VENDORS) <= set(SYSTEMS)
