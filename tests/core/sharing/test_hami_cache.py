"""The caches of HAMi's library: all layouts, whatever a container may have written into its own."""

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.model import DeviceUse
from exporter.sharing.base import Roots
from exporter.sharing.base.reading import UnusableError
from exporter.sharing.hami.cache import LAYOUTS, CacheContent, decode
from exporter.sharing.hami.cache_files import read_hami
from tests.core.sharing.build import roots_at
from tests.core.sharing.hami_regions import MAGIC, NAMES, begun, content, join, region

GIB = 1 << 30
MIB = 1 << 20
SIZES = {"0a": 804681, "v0": 1197897, "1.1": 2008953, "1.1-shifted": 2008985}
SIZES |= {"1.1-between": 2008953, "1.2": 2008953}
UUID = "GPU-03f69c50-207a-2038-9b45-23cac89cb67a"
OTHER = "GPU-8dcd427f-483b-b48f-d7e5-75fb19a52b76"


def of(data: bytes) -> CacheContent:
    """Return the content of a cache in memory."""

    def pread(length, offset):
        found = data[offset : offset + length]
        if len(found) < length:
            raise UnusableError("short")
        return found

    return decode(pread, len(data))


def roots(tmp_path: Path) -> Roots:
    """Return roots of which only HAMi's is there."""
    return roots_at(hami=tmp_path)


def put(tmp_path: Path, folder: str, data: bytes, name="5c1e.cache") -> Path:
    """Write a cache below the root, and return its path."""
    path = tmp_path / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_offsets_are_those_of_the_headers(layout):
    made = region(layout.name)
    slot = made.procs.size // 1024
    fields = made()
    part = type(fields.procs[0])
    assert layout.file_size == SIZES[layout.name] == len(content(fields))
    assert layout.device_count == made.num.offset
    assert layout.uuids == made.uuids.offset
    assert layout.memory_limits == made.limit.offset
    assert layout.compute_limits == made.sm_limit.offset
    assert (layout.slots, layout.slot_size) == (made.procs.offset, slot)
    assert layout.slot_count == made.proc_num.offset
    used = type(fields.procs[0].used[0])
    assert (layout.total, layout.used_size) == (part.used.offset + used.total.offset, part.used.size // 16)
    assert layout.status == part.status.offset
    assert layout.seqlock == (part.seqlock.offset if hasattr(part, "seqlock") else None)
    if layout.sm is not None:
        use = type(fields.procs[0].device_util[0])
        assert layout.sm == part.device_util.offset + use.sm.offset


@pytest.mark.parametrize("name", NAMES)
def test_every_layout_has_limits_and_use(name):
    made = begun(name, [UUID], limits=[8 * GIB], cores=[30])
    sm = [] if name == "0a" else [[25], [10]]
    join(made, 4711, [2 * GIB], *sm[:1])
    join(made, 4712, [GIB], *sm[1:])
    decoded = of(content(made))
    compute = None if name == "0a" else 0.35
    assert decoded.devices == (
        DeviceUse(
            device=UUID, memory_limit=8 * GIB, compute_limit=0.3, memory_used=3 * GIB, compute_used=compute
        ),
    )
    assert decoded.pids == (4711, 4712)
    assert decoded.problems == ()


def test_a_cache_written_by_published_offsets_is_read():
    data = bytearray(2008953)
    struct.pack_into("<iII", data, 0, MAGIC, 1, 2)
    struct.pack_into("<Q", data, 56, 1)
    data[64 : 64 + len(UUID)] = UUID.encode()
    struct.pack_into("<Q", data, 1600, 3000 * MIB)
    struct.pack_into("<Q", data, 1728, 100)
    struct.pack_into("<i", data, 2008896, 1)
    struct.pack_into("<ii", data, 1856, 12, 34567)
    struct.pack_into("<Q", data, 1856 + 8 + 32, 500 * MIB)
    struct.pack_into("<Q", data, 1856 + 1160 + 16, 42)
    struct.pack_into("<i", data, 1856 + 1928, 1)
    made = begun("1.2", [UUID], limits=[3000 * MIB])
    join(made, 34567, [500 * MIB], [42])
    assert of(bytes(data)) == of(content(made))
    assert of(bytes(data)).devices[0] == DeviceUse(
        device=UUID, memory_limit=3000 * MIB, memory_used=500 * MIB, compute_used=0.42
    )


@pytest.mark.parametrize(
    ("limits", "cores", "memory", "compute"),
    [
        pytest.param([0], [100], None, None, id="no limit"),
        pytest.param([GIB], [0], GIB, None, id="cores 0 is no limit"),
        pytest.param([GIB], [150], GIB, None, id="more than the whole is no limit"),
        pytest.param([GIB], [99], GIB, 0.99, id="nearly all is a limit"),
    ],
)
def test_what_the_library_takes_for_unlimited_is_no_limit(limits, cores, memory, compute):
    device = of(content(begun("1.2", [UUID], limits, cores))).devices[0]
    assert (device.memory_limit, device.compute_limit) == (memory, compute)


def test_limits_that_differ_are_unknown():
    same = of(content(begun("1.2", [UUID, OTHER], [GIB, GIB], [30, 30]))).devices
    assert [(each.memory_limit, each.compute_limit) for each in same] == [(GIB, 0.3)] * 2
    mixed = of(content(begun("1.2", [UUID, OTHER], [GIB, 2 * GIB], [30, 60]))).devices
    assert [(each.memory_limit, each.compute_limit) for each in mixed] == [(None, None)] * 2


def test_each_device_has_its_own_use():
    made = begun("1.2", [UUID, OTHER])
    join(made, 5, [GIB, 3 * GIB], [10, 70])
    by_device = {
        device.device: (device.memory_used, device.compute_used) for device in of(content(made)).devices
    }
    assert by_device == {UUID: (GIB, 0.1), OTHER: (3 * GIB, None)}


NEW = ("1.1-shifted", "1.1-between", "1.2")
# Layouts; processes with host pid, memory, share and what else their slot has; memory, share and pids of all.
USE = {
    "no process": (NAMES[1:], [], 0, 0.0, ()),
    "a free slot and a suspended process": (
        NAMES[1:],
        [(5, GIB, 10, {"status": 0}), (6, 2 * GIB, 20, {"status": 2})],
        *(2 * GIB, 0.2, (6,)),
    ),
    # The library measures by host pid.
    "no host pid": (("1.2",), [(0, GIB, 0, {})], GIB, None, None),
    # In HAMi 2.8.1 (issue 191 of HAMi-core) a process may count in the slot of one that has exited.
    "no host pid and no memory": (NEW[:2], [(0, 0, 0, {})], 0, None, None),
    "idle": (("1.2",), [(5, 0, 0, {})], 0, 0.0, (5,)),
    # The watcher first sets what it saw to 0, then looks at memory, and then at the share. Only if it notes
    # both at once (src/multiprocess/multiprocess_utilization_watcher.c since HAMi 2.8.1), memory implies one.
    "measured": (("1.1-shifted", "1.2"), [(5, GIB, 0, {})], GIB, 0.0, (5,)),
    "perhaps not measured": (("v0", "1.1", "1.1-between"), [(5, GIB, 0, {})], GIB, None, (5,)),
    "not measured yet": (NAMES[1:], [(5, GIB, 0, {"seen": 0})], GIB, None, (5,)),
    # The counter of a slot is about memory only.
    "a writer that died": (
        ("1.1-shifted", "1.2"),
        [(5, GIB, 10, {}), (6, GIB, 30, {"seqlock": 7})],
        *(None, 0.4, None),
    ),
    "memory that contradicts the driver": (
        NEW,
        [(5001, GIB, 10, {}), (5002, 0, 80, {"seen": 10 * GIB})],
        *(None, 0.9, (5001, 5002)),
    ),
    # Up to HAMi 2.8.0 a slot keeps it (src/multiprocess/multiprocess_memory_limit.c, init_proc_slot).
    "leftovers of an earlier process": (
        ("v0", "1.1"),
        [(5001, GIB, 10, {}), (5002, 0, 0, {"seen": 10 * GIB})],
        *(GIB, 0.1, (5001, 5002)),
    ),
    # A process that frees memory of others makes its sum wrap around (issue 1181 of HAMi).
    "memory below zero": (("1.2",), [(5, 2**64 - 1845493760, 10, {})], None, 0.1, (5,)),
}


@pytest.mark.parametrize(
    ("name", "use"),
    [pytest.param(name, use, id=f"{name} {text}") for text, use in USE.items() for name in use[0]],
)
def test_use_is_the_sum_of_the_processes_or_unknown(name, use):
    _, processes, memory, compute, pids = use
    made = begun(name, [UUID])
    for hostpid, total, share, more in processes:
        slot = join(made, hostpid, [total], [share], more.get("status", 1))
        slot.monitorused[0] = more.get("seen", total)
        if "seqlock" in more:
            slot.seqlock = more["seqlock"]
    decoded = of(content(made))
    (device,) = decoded.devices
    assert (device.memory_used, device.compute_used, decoded.pids) == (memory, compute, pids)


def test_without_a_limit_of_compute_the_load_is_unknown():
    """The library's watcher runs only with a limit between 1 and 100."""
    made = begun("1.2", [UUID], cores=[0])
    join(made, 5, [GIB], [10])
    assert of(content(made)).devices[0].compute_used is None


def test_a_slot_that_was_being_written_is_read_again():
    made = begun("1.2", [UUID])
    slot = join(made, 5, [GIB], [10])
    slot.seqlock = 3
    before = content(made)
    slot.seqlock, slot.used[0].total = 4, 2 * GIB
    after = content(made)
    reads = []

    def pread(length, offset):
        reads.append(offset)
        return (before if len(reads) < 5 else after)[offset : offset + length]

    assert decode(pread, len(before)).devices[0].memory_used == 2 * GIB
    assert reads.count(1856) == 2


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_cache_has_no_devices(name):
    assert of(bytes(SIZES[name])) == CacheContent()
    assert of(b"") == CacheContent()
    made = begun(name, [])
    assert of(content(made)).devices == ()


def test_a_device_without_a_name_yet_is_left_out():
    made = begun("1.2", [UUID])
    made.num = 3
    decoded = of(content(made))
    assert ([device.device for device in decoded.devices], decoded.problems) == ([UUID], ())


def _with(data: bytes, at: int, code: str, *values: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(code, changed, at, *values)
    return bytes(changed)


WHOLE = content(begun("1.2", [UUID]))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        pytest.param(_with(WHOLE, 0, "<i", 19920719), "begins with", id="wrong magic"),
        pytest.param(_with(WHOLE, 0, ">i", MAGIC), "begins with", id="wrong endian"),
        pytest.param(WHOLE[:-1], "2008952 bytes", id="one byte short"),
        pytest.param(WHOLE + b"\0", "2008954 bytes", id="one byte long"),
        pytest.param(b"\0", "1 bytes", id="one byte"),
        pytest.param(WHOLE[:4096], "4096 bytes", id="one page"),
        pytest.param(_with(WHOLE, 4, "<I", 2), "version 2.2", id="wrong major"),
        pytest.param(_with(WHOLE, 8, "<I", 3), "version 1.3", id="wrong minor"),
        pytest.param(_with(content(begun("1.1-shifted")), 8, "<I", 2), "version 1.2", id="shifted as 1.2"),
    ],
)
def test_a_cache_of_an_unknown_layout_costs_only_itself(data, text, tmp_path):
    bad = put(tmp_path, "containers/uid-1_main", data)
    put(tmp_path, "containers/uid-2_main", WHOLE)
    files = read_hami(roots(tmp_path))
    assert [(each.reason, each.about) for each in files.problems] == [("file", str(bad))]
    assert text in files.problems[0].text
    assert [each.pod_uid for each in files.containers] == ["uid-2"]


def test_absurd_numbers_are_not_known_and_cost_only_themselves():
    made = begun("1.2", [UUID, OTHER], limits=[1 << 60] * 2)
    join(made, 5, [(1 << 50) + 1, GIB], [101, 10])
    decoded = of(content(made))
    assert [(each.memory_limit, each.memory_used, each.compute_used) for each in decoded.devices] == [
        (None, None, None),
        (None, GIB, None),
    ]
    assert len(decoded.problems) == 4


def test_counts_are_held_in_their_bounds():
    many = of(_with(WHOLE, 56, "<Q", (1 << 64) - 1))
    assert [each.device for each in many.devices] == [UUID]
    full = begun("1.2", [UUID])
    full.proc_num = (1 << 31) - 1
    assert of(content(full)).devices[0].memory_used == 0
    full.proc_num = -1
    assert of(content(full)).devices[0].memory_used == 0


def test_an_invalid_device_name_is_a_problem():
    made = begun("1.2", ['GPU-a"\n', UUID])
    decoded = of(content(made))
    assert [each.device for each in decoded.devices] == [UUID]
    assert len(decoded.problems) == 1


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    header=st.binary(max_size=200),
    noise=st.lists(st.tuples(st.integers(0, 804600), st.binary(min_size=1, max_size=64)), max_size=6),
    cut=st.sampled_from([None, 0, 11, 100, 2000]),
)
def test_any_bytes_are_read_or_refused(name, header, noise, cut):
    data = bytearray(content(begun(name, [UUID], [GIB])))
    data[12 : 12 + len(header)] = header
    for at, some in noise:
        data[at : at + len(some)] = some
    view = bytes(data[:cut])

    def pread(length, offset):
        found = view[offset : offset + length]
        if len(found) < length:
            raise UnusableError("short")
        return found

    try:
        decoded = decode(pread, len(data))
    except UnusableError:
        return
    for each in decoded.devices:
        assert each.memory_used is None or 0 <= each.memory_used <= 1 << 50
        assert each.memory_limit is None or 0 < each.memory_limit <= 1 << 50
        assert each.compute_limit is None or 0 < each.compute_limit < 1


def test_folders_name_their_containers(tmp_path):
    put(tmp_path, "containers/0f6e7d5c-1111_main_two", WHOLE)
    put(tmp_path, "containers/uid-3_gpu", WHOLE, name="uid-3_gpu.cache")
    put(tmp_path, "claims/77aa-bb", WHOLE)
    put(tmp_path, "containers/uid-4_empty", b"", name="libvgpu.so")
    put(tmp_path, "containers/nameless", WHOLE)
    (tmp_path / "containers/stray").write_bytes(WHOLE)
    files = read_hami(roots(tmp_path))
    assert [(each.pod_uid, each.container, each.claim_uid) for each in files.containers] == [
        ("0f6e7d5c-1111", "main_two", ""),
        ("uid-3", "gpu", ""),
        ("uid-4", "empty", ""),
        ("", "", "77aa-bb"),
    ]
    assert files.problems == ()


def test_two_caches_of_one_container_are_a_problem(tmp_path):
    put(tmp_path, "containers/uid-1_main", WHOLE, name="a.cache")
    put(tmp_path, "containers/uid-1_main", WHOLE, name="b.cache")
    files = read_hami(roots(tmp_path))
    assert files.containers == ()
    assert [each.text for each in files.problems] == ["has 2 caches instead of one"]


def test_a_file_name_of_any_bytes_is_printable(tmp_path):
    folder = tmp_path / "containers/uid-1_main"
    folder.mkdir(parents=True)
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe.cache")).write_bytes(b"abc")
    (found,) = read_hami(roots(tmp_path)).problems
    assert found.about.encode()
    assert r"\udcff\udcfe.cache" in found.about
