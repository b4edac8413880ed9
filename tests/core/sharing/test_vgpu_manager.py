"""vgpu-manager: its annotations, its files, and who holds what by them."""

import ctypes
from ctypes import c_char, c_int32, c_uint32, c_uint64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.model import Allocation, ContainerFile, DeviceUse, OfferedDevice, SliceCount, SystemFiles
from exporter.sharing.vgpu_manager import parse_shares, read_vgpu_manager
from tests.core.attribution.build import GIB, UUID, gpu
from tests.core.sharing.build import OTHER_UUID, container, numbered, only, pod, pods, resolve, roots_at
from tests.core.sharing.cases import Case

MIB = 1 << 20
NUMBER = "nvidia.com/vgpu-number"
REAL = "nvidia.com/real-allocated"


class Device(ctypes.Structure):
    """device_t of coldzerofear/vgpu-manager library/include/hook.h."""

    _fields_ = (
        ("seq", c_uint32),
        ("pad", c_uint32),
        ("uuid", c_char * 48),
        ("total", c_uint64),
        ("real", c_uint64),
        *(
            (name, c_int32)
            for name in ("hard", "soft", "core_limit", "hard_limit", "memory_limit", "oversold")
        ),
        ("activate", c_int32),
        ("reserved", c_int32 * 7),
    )


class Config(ctypes.Structure):
    """resource_data_t of the same file."""

    _fields_ = (
        *((name, c_uint32) for name in ("magic", "layout", "region", "count")),
        *((name, c_int32) for name in ("cuda_major", "cuda_minor")),
        ("driver", c_char * 32),
        ("pad", c_char * 72),
        ("pod_uid", c_char * 48),
        *((name, c_char * 64) for name in ("pod", "namespace", "container")),
        ("register", c_char * 48),
        *((name, c_int32) for name in ("compatible", "watcher", "memory_node")),
        ("pad2", c_char * 84),
        ("devices", Device * 16),
    )


def config(*devices, **head):
    """Return the file of a container with devices, each a dict, in their places."""
    values = {"magic": 0x56474346, "layout": 1, "region": ctypes.sizeof(Config), "count": 16}
    made = Config(**(values | head))
    for place, fields in enumerate(devices):
        made.devices[place] = Device(**({"activate": 1} | fields))
    return bytes(made).ljust(8192, b"\0")


ONE = {"uuid": UUID.encode(), "total": 4 * GIB, "hard": 30, "core_limit": 1}


def roots(tmp_path):
    """Return roots of which only vgpu-manager's is there."""
    return roots_at(vgpu_manager=tmp_path)


def put(tmp_path, content, folder="uid-a_main"):
    """Write the file of a container, and return its path."""
    path = tmp_path / folder / "config/vgpu.config"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def held(name, *ids, main="main", resource=NUMBER):
    """Return ids that a container holds."""
    return [Allocation(container(name, main), resource, device_id) for device_id in ids]


def test_the_structures_have_their_published_offsets():
    """As pkg/config/vgpu/vgpu_config_test.go pins them."""
    assert ctypes.sizeof(Config) == 2560
    assert (Config.pod_uid.offset, Config.container.offset, Config.devices.offset) == (128, 304, 512)
    assert ctypes.sizeof(Device) == 128
    assert (Device.total.offset, Device.hard.offset, Device.core_limit.offset) == (56, 72, 80)
    assert Device.activate.offset == 96


@pytest.mark.parametrize(
    ("device", "memory", "compute"),
    [
        pytest.param(ONE, 4 * GIB, 0.3, id="both limits"),
        pytest.param(ONE | {"core_limit": 0}, 4 * GIB, None, id="a policy that does not limit compute"),
        pytest.param(ONE | {"hard": 100, "core_limit": 0}, 4 * GIB, 1.0, id="all of the compute"),
        pytest.param(ONE | {"hard": 0, "core_limit": 0}, 4 * GIB, None, id="none asked for"),
        pytest.param(ONE | {"total": 0}, None, 0.3, id="no limit of memory"),
    ],
)
def test_a_file_has_limits(device, memory, compute, tmp_path):
    put(tmp_path, config({"activate": 0, "uuid": b"GPU-x"}, {"activate": 0}, device))
    use = DeviceUse(device=UUID, memory_limit=memory, compute_limit=compute)
    files = read_vgpu_manager(roots(tmp_path))
    assert files.containers == (ContainerFile(pod_uid="uid-a", container="main", devices=(use,)),)
    assert files.problems == ()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        pytest.param(b"", "0 bytes", id="empty"),
        pytest.param(config(ONE)[:-1], "8191 bytes", id="short"),
        pytest.param(config(ONE) + b"\0", "8193 bytes", id="long"),
        pytest.param(config(ONE, magic=1), "layout", id="wrong magic"),
        pytest.param(config(ONE, magic=0x46434756), "layout", id="wrong endian"),
        pytest.param(config(ONE, layout=2), "layout 2", id="a later layout"),
        pytest.param(config(ONE, region=9000), "layout", id="another size"),
        pytest.param(config(ONE, count=64), "64 devices", id="another count"),
        pytest.param(config(ONE | {"seq": 3}), "being written", id="a writer that died"),
        pytest.param(config(ONE | {"uuid": b"\xff\xfe"}), "has a device", id="no name"),
        pytest.param(config(ONE | {"total": 1 << 60}), "has a device", id="absurd memory"),
        pytest.param(b"\xff" * 8192, "layout", id="all ones"),
    ],
)
def test_a_bad_file_costs_only_itself(content, text, tmp_path):
    bad = put(tmp_path, content, "uid-bad_main")
    put(tmp_path, config(ONE))
    files = read_vgpu_manager(roots(tmp_path))
    assert [file.pod_uid for file in files.containers] == ["uid-a"]
    assert [(problem.reason, problem.about) for problem in files.problems] == [("file", str(bad))]
    assert text in files.problems[0].text


def test_other_folders_of_the_system_are_passed_over(tmp_path):
    for name in ("watcher", "registry", "claims", "uid-b_main"):
        (tmp_path / name).mkdir()
    (tmp_path / "ld.so.preload").write_text("")
    assert read_vgpu_manager(roots(tmp_path)) == SystemFiles()


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2559), st.binary(min_size=1, max_size=300))
def test_any_bytes_are_read_or_refused(tmp_path_factory, at, noise):
    data = bytearray(config(ONE, ONE))
    data[at : at + len(noise)] = noise
    folder = tmp_path_factory.mktemp("vgpu")
    put(folder, bytes(data[:8192]))
    files = read_vgpu_manager(roots(folder))
    assert len(files.containers) + len(files.problems) == 1
    for each in (device for file in files.containers for device in file.devices):
        assert each.memory_limit is None or 0 < each.memory_limit <= 1 << 50
        assert each.compute_limit is None or 0 < each.compute_limit <= 1


A = DeviceUse(device=UUID, memory_limit=GIB)
B = DeviceUse(device=OTHER_UUID, memory_limit=2 * GIB, compute_limit=0.1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f"cont1[0_{UUID}_0_1024]", {"cont1": (A,)}, id="pkg/device/types_test.go:55"),
        pytest.param("cont1[]", {"cont1": ()}, id="pkg/device/types_test.go:65"),
        pytest.param(
            f"cont1[0_{UUID}_0_1024,1_{OTHER_UUID}_10_2048]",
            {"cont1": (A, B)},
            id="pkg/device/types_test.go:87",
        ),
        pytest.param(
            f"cont1[0_{UUID}_0_1024];cont2[0_{UUID}_0_1024]",
            {"cont1": (A,), "cont2": (A,)},
            id="pkg/device/types_test.go:115",
        ),
        pytest.param(f" cont1[ 0_{UUID}_0_1024 ] ;", {"cont1": (A,)}, id="spaces, which its reader drops"),
        pytest.param("", {}, id="nothing"),
    ],
)
def test_an_annotation_is_read(text, expected):
    assert dict(parse_shares(text)) == expected


CASE = Case(
    name="vgpu-manager",
    isolation="soft",
    reason="vgpu_manager_annotation",
    annotate=lambda text: {REAL: text},
    here=f"main[0_{OTHER_UUID}_20_1024]",
    gone="main[0_GPU-gone_30_4096]",
    entitled=(GIB, 0.2),
    amounts={NUMBER: 1},
    ids=lambda name: held(name, f"{UUID}::0"),
    offered=tuple(OfferedDevice(NUMBER, f"{uuid}::{n}") for uuid in (UUID, OTHER_UUID) for n in range(10)),
    slices=SliceCount(NUMBER, 10, 1),
    malformed=(
        *("cont1", "cont1[", "cont1]0[", "[0_a_1_1]", "a" * 300_000),
        f"main[{','.join([f'0_{UUID}_1_1'] * 3)}]",  # more devices than ids
        *(f"cont1[0_{UUID}_{rest}]" for rest in ("0", "-1_5", f"1_{'9' * 5000}", "1_٣")),
    ),
    blind=False,
    unconfirmed=({"nvidia.com/pre-allocated": f"main[0_{UUID}_90_9000]"},),
)


def test_containers_and_gpus_are_distinguished():
    text = f"x[0_{UUID}_10_1024,1_{OTHER_UUID}_20_1024];y[0_{UUID}_30_1024,0_{UUID}_30_1024];z[]"
    holdings = resolve(
        [gpu(), numbered(1, 1)],
        held("a", f"{UUID}::1", f"{OTHER_UUID}::1", main="x")
        + held("a", f"{UUID}::2", f"{UUID}::3", main="y"),
        pods=pods(pod("a", {REAL: text}, containers=("x", "y", "z"))),
    )
    by_holder = {
        (holding.holder.container, holding.device.uuid): holding.compute_entitled
        for holding in holdings.holdings
    }
    assert by_holder == {("x", UUID): 0.1, ("x", OTHER_UUID): 0.2, ("y", UUID): 0.6}


@pytest.mark.parametrize("details", [True, False], ids=["planned only", "without the objects of pods"])
def test_the_file_replaces_a_missing_annotation(details):
    annotations = {"nvidia.com/pre-allocated": f"main[0_{UUID}_90_9000]"}
    one = pod("a", annotations) if details else pod("a", details=None)
    use = DeviceUse(device=UUID, memory_limit=2 * GIB, compute_limit=0.5)
    file = ContainerFile(pod_uid="uid-a", container="main", devices=(use,))
    files = {"vgpu-manager": SystemFiles(containers=(file,))}
    holding = only(resolve(gpu(), held("a", f"{UUID}::0"), pods=pods(one), files=files))
    assert (holding.memory_entitled, holding.compute_entitled) == (2 * GIB, 0.5)
    bare = resolve(gpu(), held("a", f"{UUID}::0"), pods=pods(one))
    assert (bare.holdings, bare.unresolved) == ((), {NUMBER: 1})


def test_only_the_file_knows_that_compute_is_not_limited():
    """The annotation has the percent that was asked for, whatever the policy."""
    use = DeviceUse(device=UUID, memory_limit=4 * GIB)
    file = ContainerFile(pod_uid="uid-a", container="main", devices=(use,))
    files = {"vgpu-manager": SystemFiles(containers=(file,))}
    facts = {"pods": pods(pod("a", {REAL: f"main[0_{UUID}_30_4096]"}))}
    assert only(resolve(gpu(), held("a", f"{UUID}::0"), files=files, **facts)).compute_entitled is None
    assert only(resolve(gpu(), held("a", f"{UUID}::0"), **facts)).compute_entitled == 0.3


def test_another_domain_has_its_own_names():
    ids = held("a", f"{UUID}::0", resource="example.com/vgpu-number")
    ids += held("a", "0-1", "0-2", resource="example.com/vgpu-cores")
    one = pod("a", {"example.com/real-allocated": f"main[0_{UUID}_2_512]"})
    holdings = resolve(gpu(), ids, pods=pods(one))
    assert (only(holdings).memory_entitled, holdings.unresolved) == (512 * MIB, {})
