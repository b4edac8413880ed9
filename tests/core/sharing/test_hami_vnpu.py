"""The files of HAMi's library for Ascend NPUs, made here as its structures declare them."""

import ctypes
from ctypes import c_int32, c_uint32, c_uint64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.model import ContainerFile, DeviceUse
from exporter.sharing.hami.ascend import read_vnpu
from tests.core.sharing.build import roots_at

GIB = 1 << 30


class Report(ctypes.Structure):
    """LocalWorkerReport of Project-HAMi/hami-vnpu-core crates/limiter/src/shmem/mod.rs."""

    _fields_ = (*((name, c_uint64) for name in "abc"), ("occupied", c_uint32), ("pid", c_int32))


class Slot(ctypes.Structure):
    """ProcessSlot of the same file."""

    _fields_ = (("pid", c_int32), ("host_pid", c_int32), ("hbm", c_uint64 * 8), ("active", c_uint32))


class Region(ctypes.Structure):
    """LocalContainerShmem of the same file."""

    _fields_ = (
        *((name, c_uint64) for name in ("limit", "used", "priority")),
        ("state", c_uint32),
        *((name, c_uint64) for name in ("batch", "tokens")),
        *((name, c_uint32) for name in ("workers", "reported")),
        ("reports", Report * 32),
        ("procs", Slot * 64),
    )


def roots(tmp_path):
    """Return roots of which only that of NPUs is there."""
    return roots_at(hami_vnpu=tmp_path)


def put(tmp_path, content, folder="uid-1_main"):
    """Write the file of a container, and return its path."""
    path = tmp_path / "containers" / folder / "vnpu_local_shmem"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(content))
    return path


def region(*processes, limit=16 * GIB):
    """Return a region by the bytes that each process uses of each NPU; None is a free slot."""
    made = Region(limit=limit, used=99)
    for place, used in enumerate(processes):
        made.procs[place].pid = 7
        made.procs[place].active = used is not None
        for device, size in enumerate(used or [5 * GIB]):
            made.procs[place].hbm[device] = size
    return made


def test_the_structures_have_the_offsets_of_the_monitor():
    """As Project-HAMi/ascend-device-plugin internal/monitor/registry.go reads them."""
    assert (Region.limit.offset, Region.used.offset, Region.priority.offset) == (0, 8, 16)
    assert (Region.workers.offset, Region.reports.offset, Region.procs.offset) == (48, 56, 1080)
    assert (Slot.hbm.offset, Slot.active.offset, ctypes.sizeof(Slot)) == (8, 72, 80)


@pytest.mark.parametrize(
    ("made", "limit", "used"),
    [
        pytest.param(region([GIB]), 16 * GIB, GIB, id="one process"),
        pytest.param(region([GIB], None, [2 * GIB]), 16 * GIB, 3 * GIB, id="a free slot between two"),
        pytest.param(region([0, 0, GIB]), 16 * GIB, GIB, id="any number that the NPU has in the container"),
        pytest.param(region(), 16 * GIB, 0, id="no process"),
        pytest.param(region([GIB], limit=0), None, GIB, id="no limit"),
        pytest.param(bytes(region([GIB], [GIB]))[:1160], 16 * GIB, GIB, id="room for one process"),
    ],
)
def test_a_file_has_limit_and_use(made, limit, used, tmp_path):
    put(tmp_path, made)
    device = DeviceUse(device="", memory_limit=limit, memory_used=used)
    files = read_vnpu(roots(tmp_path))
    assert files.containers == (ContainerFile(pod_uid="uid-1", container="main", devices=(device,)),)
    assert files.problems == ()


def test_an_empty_file_has_no_devices(tmp_path):
    put(tmp_path, bytes(6200))
    assert read_vnpu(roots(tmp_path)).containers[0].devices == ()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        pytest.param(b"", "0 bytes", id="empty"),
        pytest.param(bytes(1159), "1159 bytes", id="no room for a process"),
        pytest.param(b"\xff" * 6200, "more bytes than any device", id="all ones"),
        pytest.param(region([1 << 51]), "more bytes than any device", id="absurd use"),
    ],
)
def test_a_bad_file_costs_only_itself(content, text, tmp_path):
    bad = put(tmp_path, content, "uid-bad_main")
    put(tmp_path, region([GIB]))
    files = read_vnpu(roots(tmp_path))
    assert [file.pod_uid for file in files.containers] == ["uid-1"]
    assert [(problem.reason, problem.about) for problem in files.problems] == [("file", str(bad))]
    assert text in files.problems[0].text


def test_a_folder_without_a_file_names_its_container(tmp_path):
    (tmp_path / "containers/uid-4_main").mkdir(parents=True)
    (tmp_path / "containers/stray").write_text("")
    files = read_vnpu(roots(tmp_path))
    assert (files.containers, files.problems) == ((ContainerFile(pod_uid="uid-4", container="main"),), ())


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=2000), size=st.sampled_from([0, 1080, 1160, 6200, 9000]))
def test_any_bytes_are_read_or_refused(data, size, tmp_path_factory):
    folder = tmp_path_factory.mktemp("vnpu")
    put(folder, data.ljust(size, b"\0")[:size])
    files = read_vnpu(roots(folder))
    assert len(files.containers) + len(files.problems) == 1
    for each in (device for file in files.containers for device in file.devices):
        assert each.memory_used is not None
        assert 0 <= each.memory_used <= 1 << 50
