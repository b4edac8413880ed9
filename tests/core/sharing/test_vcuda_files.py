"""gpu-manager's files: what they say, and what cannot be used of them.

The structure is that of tkestack/vcuda-controller include/hijack.h, as tkestack/gpu-manager
pkg/services/virtual-manager/manager.go writes it; the sizes are those of a compiler.
"""

import json
import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import ContainerFile, DeviceUse
from exporter.sharing.base import Roots
from exporter.sharing.base.reading import UnusableError
from exporter.sharing.gpu_manager import MOST_PIDS, decode_checkpoint, decode_config, read_vcuda

UID = "65c1ad5c-9b1c-4b0c-9b1c-5c1ad65c1ad5"
ID = "c" * 64
MIB = 1 << 20


def config(container="main", **more) -> bytes:
    """Return a vcuda.config as C lays it out: aligned to 8 bytes; ``order`` is that of the bytes."""
    values = {"memory": 1 << 30, "percent": 30, "enable": 1, "bus_id": b"", "width": 16, "order": "<"} | more
    name = container.encode() if isinstance(container, str) else container
    fields = f"{values['order']}48si4044s4096s{values['width']}sQiiiii4x"
    limits = (values["memory"], values["percent"], 1, 535, 161, values["enable"])
    return struct.pack(fields, UID.encode(), 0, b"", name, values["bus_id"], *limits)


def read_bytes(content: bytes):
    """Decode a config that stands in memory."""
    return decode_config(lambda length, offset: content[offset : offset + length], len(content))


def roots(path: Path) -> Roots:
    """Return roots with gpu-manager's below a path, and the others nowhere."""
    nothing = path / "nothing"
    names = ("hami", "hami_vnpu", "cgpu", "vgpu_manager", "mps", "run", "kubelet")
    return Roots(**dict.fromkeys(names, nothing), vcuda=path / "gpu-manager/vm")


def put(path: Path, name=ID, content=None, pids=(), uid=UID) -> Path:
    """Write the folder of one container."""
    folder = path / "gpu-manager/vm" / uid / name
    folder.mkdir(parents=True)
    (folder / "vcuda.config").write_bytes(config() if content is None else content)
    if pids is not None:
        (folder / "pids.config").write_bytes(struct.pack(f"<{len(pids)}i", *pids))
    return folder


def checkpoint(path: Path, decoded) -> None:
    """Write gpu-manager's record of cards."""
    folder = path / "gpu-manager/checkpoint"
    folder.mkdir(parents=True)
    (folder / "gpumanager_internal_checkpoint").write_text(
        decoded if isinstance(decoded, str) else json.dumps(decoded), encoding="utf-8"
    )


@pytest.mark.parametrize("width", [16, 32])
def test_both_layouts_are_known_by_their_size(width):
    """8240 bytes with 16 for the address of the card, 8256 with 32."""
    content = config(width=width, bus_id=b"0000:0F:00.0", memory=768 * MIB, percent=20)
    assert len(content) == 8224 + width
    decoded = read_bytes(content)
    assert decoded.container == "main"
    assert decoded.use == DeviceUse(device="0000:0F:00.0", memory_limit=768 * MIB, compute_limit=0.2)


def test_disabled_limits_are_none():
    """From 100 percent on the manager writes enable 0."""
    assert read_bytes(config(percent=100, enable=0)).use == DeviceUse(device="")


def test_an_enabled_limit_of_zero_is_none():
    assert read_bytes(config(memory=0, percent=0)).use == DeviceUse(device="")


@pytest.mark.parametrize(
    ("name", "container"),
    [
        *(("main", "main"), ("k8s_main_pod_ml_uid_0", "main"), ("/k8s_main_pod_ml_uid_0", "main")),
        *(("", ""), ("Not A Name", ""), ("-", "")),
    ],
)
def test_a_container_is_named_by_itself_or_by_docker(name, container):
    """gpu-manager pkg/utils/util.go MakeContainerNamePrefix: old ones get docker's name of the container."""
    assert read_bytes(config(name)).container == container


@pytest.mark.parametrize(
    "content",
    [
        b"x",
        config()[:-1],
        config() + b"\0",
        config()[:4096],
        b"\xff" * 8240,
        config(b"\xff\xfe"),
        config(bus_id=b"rm -rf /"),
        config(memory=1 << 63),
        config(percent=-1),
        config(enable=2),
        # Written by a machine that puts the large end first.
        config(order=">"),
    ],
)
def test_malformed_configs_are_unusable(content):
    with pytest.raises(UnusableError):
        read_bytes(content)


@given(st.binary(max_size=80), st.sampled_from([8240, 8256]), st.integers(0, 8239))
def test_any_bytes_are_a_config_or_unusable(some, size, offset):
    content = (bytes(offset) + some).ljust(size, b"\0")[:size]
    try:
        decoded = read_bytes(content)
    except UnusableError:
        return
    assert decoded.use.memory_limit is None or 0 < decoded.use.memory_limit <= 1 << 50
    assert decoded.use.compute_limit is None or decoded.use.compute_limit > 0


def test_folders_are_named_by_the_id_or_the_name(tmp_path):
    """Old libraries have a folder by the container's name, others by its id."""
    put(tmp_path, ID, config("server"), pids=(4001, 4002))
    put(tmp_path, "sidecar", config("sidecar", memory=0, percent=100, enable=0), pids=(4003,))
    # The socket of the library lies beside the folders.
    (tmp_path / "gpu-manager/vm" / UID / "vcuda.sock").touch()
    files = read_vcuda(roots(tmp_path))
    use = DeviceUse(device="", memory_limit=1 << 30, compute_limit=0.3)
    assert set(files.containers) == {
        ContainerFile(pod_uid=UID, container="server", container_id=ID, devices=(use,), pids=(4001, 4002)),
        ContainerFile(pod_uid=UID, container="sidecar", devices=(DeviceUse(device=""),), pids=(4003,)),
    }
    assert not files.problems


def test_a_container_without_a_name_is_known_by_its_id(tmp_path):
    put(tmp_path, ID, config(""))
    (file,) = read_vcuda(roots(tmp_path)).containers
    assert (file.container, file.container_id) == ("", ID)


def test_the_newest_folder_of_a_restarted_container_counts(tmp_path):
    """The earlier folder stays as long as the pod."""
    old, new = put(tmp_path, "a" * 64, pids=(1001,)), put(tmp_path, "b" * 64, pids=(1002,))
    os.utime(old / "vcuda.config", (1000, 1000))
    os.utime(new / "vcuda.config", (2000, 2000))
    (file,) = read_vcuda(roots(tmp_path)).containers
    assert (file.container_id, file.pids) == ("b" * 64, (1002,))


def test_an_empty_file_is_no_problem(tmp_path):
    """The manager truncates a file before it writes it."""
    put(tmp_path, "a" * 64, b"")
    put(tmp_path, "b" * 64, config("other"), pids=None)
    files = read_vcuda(roots(tmp_path))
    (file,) = files.containers
    assert (file.container, file.pids) == ("other", None)
    assert not files.problems


@pytest.mark.parametrize(
    ("content", "pids"),
    [
        (b"", None),
        (b"\x01\x02\x03", None),
        (struct.pack("<2i", 4001, 4002)[:7], (4001,)),
        (struct.pack("<4i", 0, -1, 1, 4001), (4001,)),
        (struct.pack("<i", 4001) * (MOST_PIDS + 100), (4001,) * MOST_PIDS),
    ],
)
def test_only_plausible_pids_count(tmp_path, content, pids):
    folder = put(tmp_path)
    (folder / "pids.config").write_bytes(content)
    (file,) = read_vcuda(roots(tmp_path)).containers
    assert file.pids == pids


def test_a_bad_file_costs_only_itself(tmp_path):
    put(tmp_path, "a" * 64, b"junk")
    put(tmp_path, "b" * 64, config("good"))
    files = read_vcuda(roots(tmp_path))
    assert [file.container for file in files.containers] == ["good"]
    assert [(problem.reason, Path(problem.about).name) for problem in files.problems] == [("file", "a" * 64)]


def test_folders_of_other_names_are_passed_over(tmp_path):
    for uid in ("lost+found", "..data", UID.upper()):
        put(tmp_path, uid=uid)
    assert read_vcuda(roots(tmp_path)).containers == ()


def test_the_checkpoint_names_the_cards(tmp_path):
    """tkestack/gpu-manager cache.go: PodGPUMapping has the device files, percents and bytes of containers.

    Containers with whole cards never start the library, and have no folder.
    """
    put(tmp_path, ID, config("server"), pids=(4001,))
    checkpoint(
        tmp_path,
        {
            "PodGPUMapping": {
                UID: {
                    "server": {"Devices": ["/dev/nvidia1"], "Cores": 30, "Memory": 1 << 30},
                    "trainer": {"Devices": ["/dev/nvidia3", "/dev/nvidia2"], "Cores": 200, "Memory": 0},
                }
            }
        },
    )
    files = read_vcuda(roots(tmp_path))
    server, trainer = sorted(files.containers, key=lambda file: file.container)
    assert server.pids == (4001,)
    assert server.devices == (DeviceUse(device="1", memory_limit=1 << 30, compute_limit=0.3),)
    assert trainer == ContainerFile(
        pod_uid=UID, container="trainer", devices=(DeviceUse(device="2"), DeviceUse(device="3"))
    )
    assert not files.problems


@pytest.mark.parametrize(
    "entry",
    [
        None,
        7,
        [],
        {},
        {"Devices": []},
        {"Devices": None, "Cores": 30, "Memory": 1},
        {"Devices": "/dev/nvidia0"},
        {"Devices": ["/dev/nvidiactl"]},
        {"Devices": ["/dev/nvidia0", 5]},
        {"Devices": ["/dev/nvidia99999"]},
        {"Devices": ["/dev/nvidia0"] * 65},
    ],
)
def test_a_bad_entry_costs_only_itself(tmp_path, entry):
    good = {"Devices": ["/dev/nvidia0"], "Cores": 10, "Memory": 1 << 28}
    checkpoint(tmp_path, {"PodGPUMapping": {UID: {"bad": entry, "good": good}}})
    files = read_vcuda(roots(tmp_path))
    assert [file.container for file in files.containers] == ["good"]
    (problem,) = files.problems
    assert problem.about.endswith(f"{UID}/bad")


@pytest.mark.parametrize(
    ("cores", "memory"), [("30", "1"), (-5, -1), (30.5, 1.5), (None, None), (10**30, 1 << 60), (True, [])]
)
def test_invalid_limits_in_the_checkpoint_are_unknown(cores, memory):
    entry = {"Devices": ["/dev/nvidia0"], "Cores": cores, "Memory": memory}
    given, wrong = decode_checkpoint(json.dumps({"PodGPUMapping": {UID: {"main": entry}}}))
    ((use,),) = given.values()
    assert (use.device, use.memory_limit) == ("0", None)
    assert wrong == []


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", "{}", '{"PodGPUMapping": []}', "[" * 100_000),
        *('{"PodGPUMapping": ' + "9" * 5000 + "}", '{"a": NaN}', "\0"),
    ],
)
def test_an_unreadable_checkpoint_is_a_problem(tmp_path, text):
    put(tmp_path, ID, config("server"))
    checkpoint(tmp_path, text)
    files = read_vcuda(roots(tmp_path))
    assert [file.container for file in files.containers] == ["server"]
    (problem,) = files.problems
    assert problem.about.endswith("gpumanager_internal_checkpoint")


@given(st.recursive(st.none() | st.integers() | st.text(max_size=8), lambda each: st.lists(each, max_size=3)))
def test_any_mapping_is_read_or_refused(value):
    given, wrong = decode_checkpoint(json.dumps({"PodGPUMapping": {"pod": {"main": value}, "other": value}}))
    assert given == {}
    assert wrong == ["pod/main"]
