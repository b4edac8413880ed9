"""What holds for all readers of files that containers or other programs write."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from exporter.model import SystemFiles
from exporter.sharing.base import Roots
from exporter.sharing.cgpu import read_instances
from exporter.sharing.gpu_manager import read_vcuda
from exporter.sharing.hami.ascend import read_vnpu
from exporter.sharing.hami.cache_files import read_hami
from exporter.sharing.runai import read_runai
from exporter.sharing.vgpu_manager import read_vgpu_manager
from tests.core.sharing import hami_regions, test_hami_vnpu, test_vcuda_files, test_vgpu_manager
from tests.core.sharing.build import roots_at

UIDS = ("65c1ad5c-9b1c-4b0c-9b1c-5c1ad65c1ad5", "65c1ad5c-9b1c-4b0c-9b1c-5c1ad65c1ad6")


class Reader(NamedTuple):
    """A reader, the root that it reads, the path of a container's file below that, and a good content."""

    read: Callable[[Roots], SystemFiles]
    root: str
    path: str
    content: bytes
    containers: tuple[str, str] = UIDS
    names_links: bool = True  # a link is a problem, and not just passed over


READERS = {
    "cgpu": Reader(
        read_instances, "cgpu", "0/{}/memsize", b"9\n", ("0123456789ab", "0123456789ac"), names_links=False
    ),
    "hami": Reader(
        read_hami, "hami", "containers/{}_main/x.cache", hami_regions.content(hami_regions.begun("1.2"))
    ),
    "hami-vnpu": Reader(
        read_vnpu, "hami_vnpu", "containers/{}_main/vnpu_local_shmem", bytes(test_hami_vnpu.region([5]))
    ),
    "vgpu-manager": Reader(
        read_vgpu_manager,
        *("vgpu_manager", "{}_main/config/vgpu.config"),
        test_vgpu_manager.config(test_vgpu_manager.ONE),
    ),
    "vcuda": Reader(read_vcuda, "vcuda", "{}/main/vcuda.config", test_vcuda_files.config()),
    "runai": Reader(read_runai, "run", "proc/pod/{}/metrics/gpu/0/memory.allocated", b"1"),
}


@pytest.fixture(params=READERS.values(), ids=READERS)
def reader(request: pytest.FixtureRequest) -> Reader:
    return request.param


def test_a_node_without_the_system_has_no_files_and_no_problems(reader: Reader, tmp_path: Path):
    assert reader.read(roots_at(**{reader.root: tmp_path / "nowhere"})) == SystemFiles()


def test_a_root_that_is_a_file_has_no_containers(reader: Reader, tmp_path: Path):
    (tmp_path / "file").touch()
    assert reader.read(roots_at(**{reader.root: tmp_path / "file"})).containers == ()


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "folder"])
def test_only_regular_files_are_read(reader: Reader, kind: str, tmp_path: Path):
    """A link could lead anywhere, and a pipe would block the reader; the file next to it is read."""
    bad, good = (tmp_path / reader.path.format(container) for container in reader.containers)
    good.parent.mkdir(parents=True)
    good.write_bytes(reader.content)
    roots = roots_at(**{reader.root: tmp_path})
    alone = reader.read(roots)
    assert (len(alone.containers), alone.problems) == (1, ())
    bad.parent.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(bad)
    elif kind == "folder":
        bad.mkdir()
    else:
        bad.symlink_to(good if kind == "link" else tmp_path / "gone")
    both = reader.read(roots)
    assert set(alone.containers) <= set(both.containers)
    others = set(both.containers) - set(alone.containers)
    assert not any(use.memory_limit or use.memory_used for file in others for use in file.devices)
    if bad.is_symlink() and not reader.names_links:
        assert both.problems == ()
    else:
        (problem,) = both.problems
        assert (problem.reason, str(bad).startswith(problem.about)) == ("file", True)
