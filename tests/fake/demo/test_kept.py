"""Recorded files of sharing systems: read back, they have the same content."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.demo.present import present
from exporter.demo.scenario.catalog import dump, parse
from exporter.demo.sharing_files import KEEPERS, SharingFiles
from exporter.documents import DocumentError
from exporter.model import ContainerFile, DeviceUse
from exporter.sharing.base import Roots
from exporter.sharing.cgpu import read_instances
from exporter.sharing.gpu_manager import read_vcuda
from exporter.sharing.hami.ascend import read_vnpu
from exporter.sharing.hami.cache_files import read_hami
from exporter.sharing.runai import read_runai
from exporter.sharing.vgpu_manager import read_vgpu_manager
from tests.fake.demo.making import MIB, document, made

GIB = 1024 * MIB
UID, OTHER = (f"0f2a6d1e-51e6-4b3f-9f43-0a4cf2d0a11{n}" for n in (1, 2))
GPU, SECOND = (f"GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16{n}" for n in (1, 2))
ID = "0f2a6d1e51e6" + "ab" * 26
READERS = {
    "hami": read_hami,
    "hami-ascend": read_vnpu,
    "cgpu": read_instances,
    "gpu-manager": read_vcuda,
    "vgpu-manager": read_vgpu_manager,
    "runai": read_runai,
}


def use(device: str = GPU, memory=None, share=None, used=None, compute=None) -> DeviceUse:
    """Return the use of a device in a file."""
    return DeviceUse(
        device=device, memory_limit=memory, compute_limit=share, memory_used=used, compute_used=compute
    )


def of_container(*devices: DeviceUse, name: str = "main", pids=None) -> ContainerFile:
    """Return the file of a container by its name."""
    return ContainerFile(pod_uid=UID, container=name, devices=devices, pids=pids)


def read_back(system: str, files: tuple[ContainerFile, ...], root: Path) -> tuple[ContainerFile, ...]:
    """Write files below a folder and read them."""
    for path, content in KEEPERS[system](files).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content if isinstance(content, bytes) else content.encode())
    roots = Roots(
        hami=root / "usr/local/vgpu",
        hami_vnpu=root / "usr/local/hami-vnpu-core",
        cgpu=root / "proc/cgpu_km",
        vcuda=root / "etc/gpu-manager/vm",
        vgpu_manager=root / "etc/vgpu-manager",
        mps=root / "run/nvidia/mps",
        run=root / "runai",
        kubelet=root / "var/lib/kubelet",
    )
    files_read = READERS[system](roots)
    assert files_read.problems == ()
    return tuple(sorted(files_read.containers, key=repr))


CASES = {
    "hami, limits and use": ("hami", of_container(use(GPU, GIB, 0.3, 700 * MIB, 0.25), pids=(77,))),
    "hami, more load than one process has": (
        "hami",
        of_container(use(GPU, GIB, None, 700 * MIB, 1.6), pids=(77, 78)),
    ),
    "hami, idle": ("hami", of_container(use(GPU, GIB, None, 700 * MIB, 0.0), pids=(77,))),
    "hami, load not measured": ("hami", of_container(use(GPU, GIB, 0.3, 700 * MIB, None), pids=(77,))),
    "hami, pids not known": ("hami", of_container(use(GPU, GIB, 0.3, 700 * MIB, 0.4))),
    "hami, being written": ("hami", of_container(use(GPU, GIB, 0.3, None, 0.4))),
    "hami, one device measured": (
        "hami",
        of_container(
            use(GPU, None, 0.3, GIB, 0.4), replace(use(SECOND, None, 0.3, GIB, None), memory_only=True)
        ),
    ),
    "hami, no process": ("hami", of_container(use(GPU, GIB, 0.3, 0, 0.0), pids=())),
    "hami, not begun": ("hami", of_container()),
    "hami, a claim": (
        "hami",
        ContainerFile(claim_uid=OTHER, devices=(use(GPU, GIB, None, MIB, 0.0),), pids=(7,)),
    ),
    "an NPU": ("hami-ascend", of_container(use("", GIB, None, 700 * MIB))),
    "an NPU without a limit": ("hami-ascend", of_container(use("", None, None, 0))),
    "an NPU, not begun": ("hami-ascend", of_container()),
    "cgpu, a fixed share": (
        "cgpu",
        ContainerFile(container_id=ID[:12], devices=(use("0", GIB, 0.25, MIB), use("3", GIB, 0.5, 0))),
    ),
    "cgpu, nothing but a limit": ("cgpu", ContainerFile(container_id=ID, devices=(use("0", GIB),))),
    "vcuda, by id": (
        "gpu-manager",
        ContainerFile(
            pod_uid=UID, container="main", container_id=ID, devices=(use("", GIB, 0.3),), pids=(7, 8)
        ),
    ),
    "vcuda, by name": ("gpu-manager", of_container(use("0000:07:00.0", GIB, None), pids=(7,))),
    "vcuda, not in force": ("gpu-manager", of_container(use(""))),
    "vcuda, cards": ("gpu-manager", of_container(use("0"), use("1"))),
    "vcuda, a part of a card": (
        "gpu-manager",
        ContainerFile(
            pod_uid=UID, container="main", container_id=ID, devices=(use("2", GIB, 0.3),), pids=(7,)
        ),
    ),
    "vgpu-manager": (
        "vgpu-manager",
        of_container(use(GPU, GIB, 0.3), use(SECOND, None, 1.0), use(f"{SECOND[:-1]}9")),
    ),
    "run:ai": (
        "runai",
        ContainerFile(
            pod_uid=UID,
            devices=(use("0", used=GIB, compute=0.29), use("1", used=None, compute=1.0), use("2")),
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_files_are_written_as_they_were_read(case, tmp_path):
    """Known values are the same, and unknown ones do not become 0."""
    system, file = CASES[case]
    assert read_back(system, (file,), tmp_path) == (file,)


def test_every_system_with_files_is_kept():
    """Other files are texts by path."""
    assert KEEPERS.keys() == READERS.keys()


@settings(max_examples=50)
@given(
    limit=st.none() | st.integers(1, 1 << 40),
    share=st.none() | st.integers(1, 99),
    memory=st.integers(1, 1 << 40),
    percent=st.none() | st.integers(0, 300),
)
def test_any_cache_of_hami_is_written_as_it_was_read(tmp_path_factory, limit, share, memory, percent):
    compute = None if percent is None else percent / 100
    device = use(GPU, limit, None if share is None else share / 100, memory, compute)
    file = of_container(device, pids=(7, 8, 9))
    assert read_back("hami", (file,), tmp_path_factory.mktemp("node")) == (file,)


def test_the_files_of_several_containers_do_not_replace_each_other(tmp_path):
    """One file has the cards of all gpu-manager containers."""
    files = (of_container(use("0"), name="a"), of_container(use("1"), name="b"))
    assert read_back("gpu-manager", files, tmp_path) == files


def test_recorded_files_are_part_of_the_scenario_and_exist_on_its_node(tmp_path):
    file = {"pod_uid": UID, "container": "main", "devices": [{"device": GPU, "memory_limit": "1 GiB"}]}
    scenario = made(kept={"vgpu-manager": [file]})
    assert parse(dump(scenario)) == scenario
    for time in (0, 60):
        SharingFiles(scenario, tmp_path).step(present(scenario, time), ())
        assert (tmp_path / f"etc/vgpu-manager/{UID}_main/config/vgpu.config").is_file()


@pytest.mark.parametrize(
    ("system", "file", "problem"),
    [
        ("unknown", {}, "unknown is not a system with files"),
        ("hami", {"pod_uid": "../../x"}, r"kept\.hami\[0\]\.pod_uid: must match"),
        ("hami", {"pod_uid": UID, "container": "a/b"}, r"kept\.hami\[0\]\.container: must match"),
        ("runai", {"pod_uid": UID, "devices": [{"device": ".."}]}, r"devices\[0\]\.device: must match"),
        ("cgpu", {"container_id": "/etc"}, r"container_id: must match"),
    ],
)
def test_names_that_leave_their_folder_are_mistakes(system, file, problem):
    """Names become file names."""
    with pytest.raises(DocumentError, match=problem):
        made(**document(kept={system: [file]}))
