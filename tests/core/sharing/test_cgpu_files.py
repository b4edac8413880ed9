"""The procfs of cGPU: what its versions show, and malformed files."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import ContainerFile, DeviceUse
from exporter.sharing.base import Roots
from exporter.sharing.cgpu import LONGEST, MOST_NAMES, read_instances

SHORT = "0123456789ab"
MEMINFO = "Free: 6730809344\nPID: 19772 Mem: 200278016\n"


def roots(root: Path) -> Roots:
    """Return roots of which only cGPU's is meant."""
    names = ("hami", "hami_vnpu", "cgpu", "vcuda", "vgpu_manager", "mps", "run", "kubelet")
    return Roots(**dict.fromkeys(names, root))


def tree(root: Path, files: dict[str, str | bytes]) -> Path:
    """Write files by their paths."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def instance(**files: str | bytes) -> dict[str, str | bytes]:
    """Return the files of one container on GPU 0."""
    return {f"0/{SHORT}/{name}": content for name, content in files.items()}


def read(root: Path, files: dict[str, str | bytes]):
    """Write these files and return what is read."""
    return read_instances(roots(tree(root, files)))


def use(root: Path, files: dict[str, str | bytes]) -> DeviceUse:
    """Write these files and return the device of the only instance."""
    (found,) = read(root, files).containers
    (device,) = found.devices
    return device


def test_an_instance_says_limit_and_use(tmp_path: Path):
    """The files of lvmxh/cgpu, version 0.8.8: the meminfo is that of its README."""
    files = instance(id="3\n", memsize="6931087360\n", meminfo=MEMINFO, weight="1\n")
    gpu = {"version": "0.8.8\n", "major": "240\n", "0/policy": "1\n", "0/max_inst": "16\n", "1/policy": "0\n"}
    found = read(tmp_path, files | gpu)
    assert found.containers == (
        ContainerFile(
            container_id=SHORT,
            devices=(DeviceUse(device="0", memory_limit=6931087360, memory_used=200278016),),
        ),
    )
    assert found.names == {"version": "0.8.8", "0/policy": "1", "1/policy": "0"}
    assert not found.problems


@pytest.mark.parametrize("policy", ["", "6\n", "-1\n", "x\n", "00\n"])
def test_a_policy_that_is_not_known_is_left_out(tmp_path: Path, policy: str):
    assert read(tmp_path, {"version": "2.0\n", "0/policy": policy}).names == {"version": "2.0"}


def test_processes_are_added_up(tmp_path: Path):
    more = MEMINFO + "PID: 7 Mem: 1000\nPID: 8 Mem: 0\n"
    assert use(tmp_path / "a", instance(meminfo=more)).memory_used == 200279016
    assert use(tmp_path / "b", instance(meminfo="Free: 5\n")).memory_used == 0


def test_a_container_on_two_gpus_is_one(tmp_path: Path):
    files = read(tmp_path, {f"{gpu}/{SHORT}/memsize": f"{gpu + 1}\n" for gpu in (0, 3)})
    (container,) = files.containers
    assert [(device.device, device.memory_limit) for device in container.devices] == [("0", 1), ("3", 4)]


@pytest.mark.parametrize(
    ("policy", "most", "weight", "share"),
    [
        *(("0", "4", "1", 0.25), ("0", "4", None, 0.25), ("0", "4", "2", None), ("0", "4", "0", None)),
        *(("0", "0", "1", None), ("0", None, "1", None), ("1", "4", "1", None), ("3", "4", "1", None)),
        *(("-1", "-1", "1", None), (None, "4", "1", None)),
    ],
)
def test_only_the_policy_of_fixed_shares_entitles_to_compute(tmp_path: Path, policy, most, weight, share):
    """README of lvmxh/cgpu: policy 0 gives each instance 1/max_inst of the time."""
    files = {"0/policy": policy, "0/max_inst": most, f"0/{SHORT}/weight": weight, f"0/{SHORT}/id": "1"}
    written = {name: f"{text}\n" for name, text in files.items() if text is not None}
    found = read(tmp_path, written)
    assert found.containers[0].devices[0].compute_limit == share
    assert found.problems == ()


def test_every_file_may_be_missing(tmp_path: Path):
    (tmp_path / "0" / SHORT).mkdir(parents=True)
    assert read(tmp_path, {}).containers[0].devices == (DeviceUse(device="0"),)


def test_no_limit_is_not_zero(tmp_path: Path):
    assert use(tmp_path, instance(memsize="0\n")).memory_limit is None


@pytest.mark.parametrize(
    "name", ["0/0123", "0/0123456789AB", "0/inst_ctl", "gpu0/0123456789ab", "0/0123456789ag"]
)
def test_other_names_are_not_instances(tmp_path: Path, name: str):
    files = read(tmp_path, {f"{name}/memsize": "5\n"})
    assert (files.containers, files.problems) == ((), ())


@pytest.mark.parametrize("text", ["", "x\n", "1e9\n", "-\n", "1_0\n", "٣\n", "9" * 20, b"\xff\xfe", "1\n2\n"])
def test_a_bad_number_costs_only_itself(tmp_path: Path, text):
    files = instance(meminfo=MEMINFO)
    found = read(tmp_path, files | instance(memsize=text))
    assert found.containers[0].devices == (DeviceUse(device="0", memory_used=200278016),)
    assert [problem.reason for problem in found.problems] == ["file"] * bool(text)


@pytest.mark.parametrize(
    "line",
    [
        *("PID: 1 Mem: ", "PID: 1 Mem: -5", "PID: x Mem: 5", "PID: 1 Mem: 5 kB", "Free: x", "Used: 5"),
        "PID: 1 Me",
    ],
)
def test_a_sum_with_an_unknown_line_is_not_known(tmp_path: Path, line: str):
    files = read(tmp_path, instance(memsize="9\n", meminfo=MEMINFO + line))
    assert files.containers[0].devices == (DeviceUse(device="0", memory_limit=9),)
    assert [problem.about for problem in files.problems] == [str(tmp_path / "0" / SHORT / "meminfo")]


def test_what_is_too_long_is_not_read(tmp_path: Path):
    folders = {f"0/{n:012x}/id": "1\n" for n in range(MOST_NAMES + 50)}
    files = read(tmp_path, folders | {"1/0123456789ab/meminfo": "Free: 1\n" * LONGEST})
    assert len(files.containers) <= MOST_NAMES + 1
    assert "longer" in files.problems[0].text


def test_a_folder_that_may_not_be_read_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    closed = PermissionError(13, "Permission denied")

    def scandir(_path):
        raise closed

    monkeypatch.setattr(os, "scandir", scandir)
    files = read_instances(roots(tmp_path))
    assert [(each.about, each.text) for each in files.problems] == [(str(tmp_path), "Permission denied")]


@given(st.dictionaries(st.sampled_from(["id", "memsize", "meminfo", "weight"]), st.binary(max_size=300)))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, files):
    found = read(tmp_path_factory.mktemp("cgpu"), instance(**files) | {"0/policy": files.get("id", b"")})
    for device in (each for container in found.containers for each in container.devices):
        assert device.memory_limit is None or device.memory_limit > 0
        assert device.memory_used is None or device.memory_used >= 0
