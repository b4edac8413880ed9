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
from exporter.sharing.hami.cache import LAYOUTS, Content, decode
from exporter.sharing.hami.cache_files import read_hami
from tests.sharing.build import roots_at
from tests.sharing.hami_regions import MAGIC, NAMES, begun, content, join, region

GIB = 1 << 30
MIB = 1 << 20
SIZES = {"0a": 804681, "v0": 1197897, "1.1": 2008953, "1.1-shifted": 2008985}
SIZES |= {"1.1-between": 2008953, "1.2": 2008953}
UUID = "GPU-03f69c50-207a-2038-9b45-23cac89cb67a"
OTHER = "GPU-8dcd427f-483b-b48f-d7e5-75fb19a52b76"


def of(data: bytes) -> Content:
    """Decode a cache held in memory."""

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
    """Write one cache below the root."""
    path = tmp_path / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_offsets_are_those_of_the_headers(layout):
    """Every offset is where the structures of that revision of libvgpu have the field."""
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
def test_every_layout_tells_limits_and_use(name):
    """Use is added up over the processes; only the oldest layout does not tell compute."""
    made = begun(name, [UUID], limits=[8 * GIB], cores=[30])
    sm = [] if name == "0a" else [[25], [10]]
    join(made, 4711, [2 * GIB], *sm[:1])
    join(made, 4712, [GIB], *sm[1:])
    told = of(content(made))
    compute = None if name == "0a" else 0.35
    assert told.devices == (
        DeviceUse(
            device=UUID, memory_limit=8 * GIB, compute_limit=0.3, memory_used=3 * GIB, compute_used=compute
        ),
    )
    assert told.pids == (4711, 4712)
    assert told.problems == ()


def test_the_recipe_of_a_cache_written_by_offsets_is_read():
    """A cache of 1.2 put together from its published offsets alone reads like one of the structures."""
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
def test_no_limit_is_none(limits, cores, memory, compute):
    """What the library takes for unlimited is no entitlement."""
    device = of(content(begun("1.2", [UUID], limits, cores))).devices[0]
    assert (device.memory_limit, device.compute_limit) == (memory, compute)


def test_limits_that_differ_are_not_told_apart():
    """Limits stand in another order than devices: of several that differ none is anybody's."""
    same = of(content(begun("1.2", [UUID, OTHER], [GIB, GIB], [30, 30]))).devices
    assert [(each.memory_limit, each.compute_limit) for each in same] == [(GIB, 0.3)] * 2
    mixed = of(content(begun("1.2", [UUID, OTHER], [GIB, 2 * GIB], [30, 60]))).devices
    assert [(each.memory_limit, each.compute_limit) for each in mixed] == [(None, None)] * 2


def test_use_is_told_of_each_device():
    """The second device of a container has its own use, of which the share may be an old one."""
    made = begun("1.2", [UUID, OTHER])
    join(made, 5, [GIB, 3 * GIB], [10, 70])
    told = {each.device: (each.memory_used, each.compute_used) for each in of(content(made)).devices}
    assert told == {UUID: (GIB, 0.1), OTHER: (3 * GIB, None)}


def test_free_slots_do_not_count():
    """A slot whose status is 0 is nobody's, whatever its process left there; a suspended one counts."""
    made = begun("1.2", [UUID])
    join(made, 5, [GIB], [10], status=0)
    join(made, 6, [2 * GIB], [20], status=2)
    told = of(content(made))
    assert (told.devices[0].memory_used, told.devices[0].compute_used) == (2 * GIB, 0.2)
    assert told.pids == (6,)


def test_nobody_uses_nothing():
    """Without processes the use is known, and is nothing."""
    told = of(content(begun("1.2", [UUID])))
    assert (told.devices[0].memory_used, told.devices[0].compute_used, told.pids) == (0, 0.0, ())


def test_a_process_whose_host_pid_is_not_known_is_not_measured():
    """The library measures by host pid: without one, a process on a device has an unknown load, not none."""
    made = begun("1.2", [UUID])
    join(made, 0, [GIB])
    told = of(content(made))
    assert [(each.memory_used, each.compute_used) for each in told.devices] == [(GIB, None)]
    assert told.pids is None


def test_load_is_not_told_where_nobody_watches():
    """The library's watcher runs only where a limit of compute is between 1 and 100."""
    made = begun("1.2", [UUID], cores=[0])
    join(made, 5, [GIB], [10])
    assert of(content(made)).devices[0].compute_used is None


@pytest.mark.parametrize("name", ["1.1-shifted", "1.2"])
def test_a_slot_whose_writer_died_makes_the_use_unknown(name):
    """A counter that stays odd: the other processes' sum would be too little."""
    made = begun(name, [UUID])
    join(made, 5, [GIB], [10])
    join(made, 6, [GIB], [10]).seqlock = 7
    told = of(content(made))
    assert told.devices[0].memory_used is None
    assert told.pids is None


def test_a_slot_that_was_being_written_is_read_again():
    """A writer that is done at the second look costs nothing."""
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
def test_a_cache_that_nobody_has_begun_has_no_devices(name):
    """The file is there before the first process has filled it: that is no problem."""
    assert of(bytes(SIZES[name])) == Content()
    assert of(b"") == Content()
    made = begun(name, [])
    assert of(content(made)).devices == ()


def test_a_device_without_a_name_yet_is_left_out():
    """The count is written before the names."""
    made = begun("1.2", [UUID])
    made.num = 3
    told = of(content(made))
    assert ([each.device for each in told.devices], told.problems) == ([UUID], ())


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
def test_a_cache_of_no_known_layout_is_a_problem(data, text, tmp_path):
    """It is said what is wrong; the caches beside it are read."""
    bad = put(tmp_path, "containers/uid-1_main", data)
    put(tmp_path, "containers/uid-2_main", WHOLE)
    found = read_hami(roots(tmp_path))
    assert [(each.reason, each.about) for each in found.problems] == [("file", str(bad))]
    assert text in found.problems[0].text
    assert [each.pod_uid for each in found.containers] == ["uid-2"]


def test_absurd_numbers_are_not_known_and_cost_only_themselves():
    """What no device can have is objected to, by device."""
    made = begun("1.2", [UUID, OTHER], limits=[1 << 60] * 2)
    join(made, 5, [(1 << 50) + 1, GIB], [101, 10])
    told = of(content(made))
    assert [(each.memory_limit, each.memory_used, each.compute_used) for each in told.devices] == [
        (None, None, None),
        (None, GIB, None),
    ]
    assert len(told.problems) == 4


def test_counts_are_held_in_their_bounds():
    """More devices or slots than the file has are not there; a negative count is none."""
    many = of(_with(WHOLE, 56, "<Q", (1 << 64) - 1))
    assert [each.device for each in many.devices] == [UUID]
    full = begun("1.2", [UUID])
    full.proc_num = (1 << 31) - 1
    assert of(content(full)).devices[0].memory_used == 0
    full.proc_num = -1
    assert of(content(full)).devices[0].memory_used == 0


def test_a_name_that_is_none_is_a_problem():
    """A container may write anything where the name of a device should be."""
    made = begun("1.2", ['GPU-a"\n', UUID])
    told = of(content(made))
    assert [each.device for each in told.devices] == [UUID]
    assert len(told.problems) == 1


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    header=st.binary(max_size=200),
    noise=st.lists(st.tuples(st.integers(0, 804600), st.binary(min_size=1, max_size=64)), max_size=6),
    cut=st.sampled_from([None, 0, 11, 100, 2000]),
)
def test_any_bytes_are_read_or_refused(name, header, noise, cut):
    """Whatever a file holds, what it says is sound or it is refused."""
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
        told = decode(pread, len(data))
    except UnusableError:
        return
    for each in told.devices:
        assert each.memory_used is None or 0 <= each.memory_used <= 1 << 50
        assert each.memory_limit is None or 0 < each.memory_limit <= 1 << 50
        assert each.compute_limit is None or 0 < each.compute_limit < 1


def test_folders_name_their_containers(tmp_path):
    """The first underscore parts the pod's uid from the container; claims have folders of their own."""
    put(tmp_path, "containers/0f6e7d5c-1111_main_two", WHOLE)
    put(tmp_path, "containers/uid-3_gpu", WHOLE, name="uid-3_gpu.cache")
    put(tmp_path, "claims/77aa-bb", WHOLE)
    put(tmp_path, "containers/uid-4_empty", b"", name="libvgpu.so")
    put(tmp_path, "containers/nameless", WHOLE)
    (tmp_path / "containers/stray").write_bytes(WHOLE)
    found = read_hami(roots(tmp_path))
    assert [(each.pod_uid, each.container, each.claim_uid) for each in found.containers] == [
        ("0f6e7d5c-1111", "main_two", ""),
        ("uid-3", "gpu", ""),
        ("uid-4", "empty", ""),
        ("", "", "77aa-bb"),
    ]
    assert found.problems == ()


def test_without_hami_there_is_nothing(tmp_path):
    """On a node without HAMi nothing is found, and nothing is wrong."""
    found = read_hami(roots(tmp_path / "nowhere"))
    assert (found.containers, found.problems) == ((), ())


def test_two_caches_of_one_container_are_a_problem(tmp_path):
    """Which of them is in use cannot be said."""
    put(tmp_path, "containers/uid-1_main", WHOLE, name="a.cache")
    put(tmp_path, "containers/uid-1_main", WHOLE, name="b.cache")
    found = read_hami(roots(tmp_path))
    assert found.containers == ()
    assert [each.text for each in found.problems] == ["has 2 caches instead of one"]


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "dangling"])
def test_what_a_container_puts_in_place_of_its_cache_is_not_followed(kind, tmp_path):
    """A link, a pipe or a folder is a problem; nobody waits for it."""
    folder = tmp_path / "containers/uid-1_main"
    folder.mkdir(parents=True)
    secret = tmp_path / "secret"
    secret.write_bytes(WHOLE)
    place = folder / "x.cache"
    {
        "link": lambda: place.symlink_to(secret),
        "fifo": lambda: os.mkfifo(place),
        "folder": place.mkdir,
        "dangling": lambda: place.symlink_to(tmp_path / "gone"),
    }[kind]()
    found = read_hami(roots(tmp_path))
    assert found.containers == ()
    assert [each.about for each in found.problems] == [str(place)]


def test_a_name_of_any_bytes_can_be_told(tmp_path):
    """A file whose name is no text is named in printable letters."""
    folder = tmp_path / "containers/uid-1_main"
    folder.mkdir(parents=True)
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe.cache")).write_bytes(b"abc")
    (found,) = read_hami(roots(tmp_path)).problems
    assert found.about.encode()
    assert r"\udcff\udcfe.cache" in found.about
