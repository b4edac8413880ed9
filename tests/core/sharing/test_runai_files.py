"""The files in which run:ai keeps what pods use."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.model import ContainerFile, DeviceUse, SystemFiles
from exporter.sharing.base import Roots
from exporter.sharing.runai import read_runai
from tests.core.sharing.build import roots_at

UID = "a801b3c7-b9be-4830-821c-2456cad2234f"


def roots(path) -> Roots:
    """Return the places of all systems' files, run:ai's being ``path``."""
    return roots_at(run=path)


def written(root, uid=UID, index="0", **files):
    """Write files of a pod: ``sm`` and ``memory`` are their content."""
    folder = root / "proc/pod" / uid / "metrics/gpu" / index
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in (("sm", "utilization.sm"), ("memory", "memory.allocated")):
        if name in files:
            content = files[name]
            (folder / path).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def uses(found: SystemFiles) -> dict[str, tuple[DeviceUse, ...]]:
    """Return the devices of each pod."""
    return {file.pod_uid: file.devices for file in found.containers}


def test_the_numbers_of_a_pod_are_read(tmp_path):
    """run-ai/fake-gpu-operator internal/status-exporter/export/fs/exporter.go: percent, bytes."""
    written(tmp_path, sm="63", memory="7500000000")
    assert read_runai(roots(tmp_path)) == SystemFiles(
        containers=(
            ContainerFile(
                pod_uid=UID, devices=(DeviceUse(device="0", memory_used=7_500_000_000, compute_used=0.63),)
            ),
        )
    )


def test_several_gpus_and_pods_are_distinguished(tmp_path):
    other = UID.replace("a", "b")
    written(tmp_path, sm="10\n", memory="1\n")
    written(tmp_path, index="7", sm="0", memory="2")
    written(tmp_path, uid=other, sm="100", memory="3")
    assert uses(read_runai(roots(tmp_path))) == {
        UID: (
            DeviceUse(device="0", memory_used=1, compute_used=0.1),
            DeviceUse(device="7", memory_used=2, compute_used=0.0),
        ),
        other: (DeviceUse(device="0", memory_used=3, compute_used=1.0),),
    }


def test_a_missing_number_is_unknown(tmp_path):
    """A file that is just being written is empty."""
    written(tmp_path, memory="5")
    written(tmp_path, index="1", sm="", memory="6")
    assert uses(read_runai(roots(tmp_path)))[UID] == (
        DeviceUse(device="0", memory_used=5),
        DeviceUse(device="1", memory_used=6),
    )
    assert read_runai(roots(tmp_path)).problems == ()


BAD = [
    *("x", "-1", "1.5", "1_0", "1 2", "\u0663", "0x10", b"\xff\xfe", b"\0\0\0\0", "9" * 19, "9" * 33),
    "1" * 100000,
]


@pytest.mark.parametrize("content", BAD, ids=range(len(BAD)))
def test_a_bad_number_costs_only_itself(tmp_path, content):
    folder = written(tmp_path, sm="20", memory=content)
    files = read_runai(roots(tmp_path))
    assert uses(files)[UID] == (DeviceUse(device="0", compute_used=0.2),)
    assert [(problem.reason, problem.about) for problem in files.problems] == [
        ("file", str(folder / "memory.allocated"))
    ]


def test_more_than_100_percent_is_a_problem(tmp_path):
    written(tmp_path, sm="101", memory="1")
    files = read_runai(roots(tmp_path))
    assert uses(files)[UID] == (DeviceUse(device="0", memory_used=1),)
    assert len(files.problems) == 1


def test_other_names_are_passed_over(tmp_path):
    written(tmp_path, uid="..data", sm="1")
    written(tmp_path, index="total", sm="1")
    written(tmp_path, index="01", sm="1")
    (tmp_path / "proc/pod/readme").write_text("x")
    files = read_runai(roots(tmp_path))
    assert uses(files) == {}
    assert files.problems == ()


def test_a_folder_that_is_a_file_has_nothing(tmp_path):
    (tmp_path / "proc/pod" / UID.replace("a", "c")).mkdir(parents=True)
    (tmp_path / "proc/pod" / UID.replace("a", "c") / "metrics").write_text("x")
    written(tmp_path, sm="1", memory="1")
    assert list(uses(read_runai(roots(tmp_path)))) == [UID]


def test_a_folder_that_cannot_be_listed_is_a_problem(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/pod").symlink_to("pod")
    files = read_runai(roots(tmp_path))
    assert files.containers == ()
    assert [problem.about for problem in files.problems] == [str(tmp_path / "proc/pod")]


@given(st.binary(max_size=64), st.binary(max_size=64))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_any_bytes_are_read_or_refused(tmp_path, sm, memory):
    written(tmp_path, sm=sm, memory=memory)
    for use in uses(read_runai(roots(tmp_path))).get(UID, ()):
        assert use.compute_used is None or 0 <= use.compute_used <= 1
        assert use.memory_used is None or 0 <= use.memory_used < 10**18
