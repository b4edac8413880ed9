"""The files of the controller ``dmem``: what is read, and what hostile content leaves unknown."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.readings import CgroupMemory
from exporter.workloads import device_memory
from exporter.workloads.device_memory import UNLIMITED, own_cgroup, parse_regions, read_tree
from tests.core.workloads.dmem import (
    CAPACITY,
    GIB,
    IDS,
    MIB,
    PCI,
    REGION,
    UIDS,
    Tree,
    container_path,
    pod_path,
)


def read(root, uid="", path="", asked=()):
    return read_tree(root, uid, path, asked)


def test_the_memory_of_each_cgroup_is_read_with_its_limits(tmp_path):
    tree = Tree(tmp_path)
    tree.add(container_path("a"), used=3 * GIB, soft=2 * GIB, hard=4 * GIB)
    tree.add(container_path("b"), used=MIB)

    found = read(tmp_path)

    assert found.capacity == {PCI: CAPACITY}
    assert found.cgroups[container_path("a")].memory == {
        PCI: CgroupMemory(used=3 * GIB, guaranteed=2 * GIB, limit=4 * GIB)
    }
    assert found.cgroups[container_path("a")].places == ((UIDS["a"], IDS["a"]),)
    assert found.cgroups[container_path("b")].memory == {PCI: CgroupMemory(used=MIB)}
    assert pod_path("a") in found.cgroups
    assert found.problems == ()


@pytest.mark.parametrize(
    ("region", "pci"),
    [
        ("nvidia/00000000:1B:00.0/vidmem", "0000:1b:00.0"),
        ("nvidia/00010000:1b:00.0/vidmem", "10000:1b:00.0"),
        ("drm/0000:08:00.0/vram", "0000:08:00.0"),
        ("drm/0000:03:00.0/vram0", "0000:03:00.0"),
    ],
)
def test_keys_of_every_driver_name_the_gpu_by_its_address(region, pci):
    assert parse_regions(f"{region} 12550144\n") == {pci: 12550144}


def test_the_tiles_of_one_gpu_are_added_up_and_memory_of_the_machine_is_not():
    text = "drm/0000:03:00.0/vram0 5\ndrm/0000:03:00.0/vram1 7\ndrm/0000:03:00.0/stolen 9\n"
    assert parse_regions(text) == {"0000:03:00.0": 12}


@pytest.mark.parametrize(
    "text",
    [
        f"{REGION} -1",
        f"{REGION} 0x10",
        f"{REGION} 1.5",
        f"{REGION}",
        f"{REGION} {'9' * 40}",
        f"{REGION} {1 << 63}",
        f"{REGION} 1\n{REGION} 2",
        "nvidia/00000000:02:00.0/vidmem 1\nnvidia/0000:02:00.0/vidmem 2",
        "nvidia/00000000:0a:00.0/vidmem 1\nnvidia/00000000:0A:00.0/vidmem 1",
        "nvidia/00000000:02:00.0/vidmem 1\ndrm/0000:02:00.0/vram 1",
        "drm/0000:02:00.0/vram 3\ndrm/0000:02:00.0/vram0 1\ndrm/0000:02:00.0/vram1 2",
        "vidmem 7",
        "nvidia/0000:zz:00.0/vidmem 7",
        "nvidia/00000000:02:00.0/vidmem/../x 7",
        "\0\xff",
        "",
    ],
)
def test_lines_of_another_form_are_not_observed(text):
    assert parse_regions(text) == {}


def test_without_a_number_there_is_no_limit():
    assert parse_regions(f"{REGION} max") == {PCI: UNLIMITED}


@given(st.text())
def test_any_text_is_read_without_an_error(text):
    assert all(amount >= UNLIMITED for amount in parse_regions(text).values())


def test_a_limit_of_the_whole_gpu_is_none(tmp_path):
    Tree(tmp_path).add(container_path("a"), used=GIB, hard=CAPACITY)
    assert read(tmp_path).cgroups[container_path("a")].memory[PCI].limit is None


def test_more_than_the_gpu_has_was_not_observed(tmp_path):
    Tree(tmp_path).add(container_path("a"), used=CAPACITY + 1, hard=GIB)
    assert read(tmp_path).cgroups[container_path("a")].memory[PCI] == CgroupMemory(used=None, limit=GIB)


def test_a_gpu_that_one_of_the_files_lacks_was_not_observed(tmp_path):
    tree = Tree(tmp_path)
    tree.add(container_path("a"), used=GIB)
    tree.file(container_path("a"), "dmem.min", {})
    assert read(tmp_path).cgroups[container_path("a")].memory == {}


def test_a_node_without_the_controller_costs_one_look(tmp_path, monkeypatch):
    (tmp_path / "kubepods.slice").mkdir()
    monkeypatch.setattr(device_memory.os, "scandir", lambda _path: pytest.fail("the tree is walked"))
    assert read(tmp_path).cgroups == {}
    assert read(tmp_path / "missing").capacity == {}


def test_parts_of_the_tree_without_the_files_are_not_walked(tmp_path):
    tree = Tree(tmp_path)
    tree.add(container_path("a"))
    (tmp_path / container_path("b").lstrip("/")).mkdir(parents=True)
    assert container_path("b") not in read(tmp_path).cgroups


def test_containers_without_the_files_are_found_for_a_driver_that_limits_itself(tmp_path):
    (tmp_path / container_path("b").lstrip("/")).mkdir(parents=True)
    (tmp_path / "system.slice/cron.service").mkdir(parents=True)
    found = read(tmp_path, asked=["00000000:02:00.0"])
    assert list(found.cgroups) == [container_path("b")]
    assert read(tmp_path).cgroups == {}


def test_a_kernel_that_may_meter_the_gpu_leaves_nothing_to_ask(tmp_path):
    """The driver's answers would then be those of the kernel, which nest."""
    (tmp_path / container_path("b").lstrip("/")).mkdir(parents=True)
    (tmp_path / "dmem.capacity").mkdir()
    found = read(tmp_path, asked=["00000000:02:00.0"])
    assert (found.cgroups, len(found.problems)) == ({}, 1)


def test_a_cgroup_that_is_removed_while_it_is_read_is_none(tmp_path):
    tree = Tree(tmp_path)
    tree.add(container_path("a"))
    (tmp_path / container_path("a").lstrip("/") / "dmem.max").unlink()
    assert container_path("a") not in read(tmp_path).cgroups


def test_a_kernel_that_meters_the_gpu_leaves_nothing_to_ask(tmp_path):
    Tree(tmp_path).add(container_path("a"))
    (tmp_path / container_path("b").lstrip("/")).mkdir(parents=True)
    assert container_path("b") not in read(tmp_path, asked=["00000000:02:00.0"]).cgroups


@pytest.mark.parametrize("name", ["dmem.current", "dmem.min", "dmem.max", "dmem.capacity"])
@pytest.mark.parametrize("kind", ["fifo", "folder", "link", "huge", "binary"])
def test_a_hostile_file_costs_its_own_cgroup(tmp_path, name, kind):
    tree = Tree(tmp_path)
    tree.add(container_path("a"), used=GIB)
    tree.add(container_path("b"), used=2 * GIB)
    path = tmp_path / ("" if name == "dmem.capacity" else container_path("a").lstrip("/")) / name
    path.unlink()
    make = {
        "fifo": lambda: os.mkfifo(path),
        "folder": path.mkdir,
        "link": lambda: path.symlink_to("/etc/passwd"),
        "huge": lambda: path.write_bytes(b"x" * (1 << 20)),
        "binary": lambda: path.write_bytes(bytes(range(256))),
    }
    make[kind]()

    found = read(tmp_path)

    if name == "dmem.capacity":
        assert found.cgroups == {}
    else:
        assert found.cgroups[container_path("b")].memory[PCI].used == 2 * GIB
        assert PCI not in found.cgroups[container_path("a")].memory
    assert bool(found.problems) == (kind != "binary")


def test_names_of_any_bytes_are_read(tmp_path):
    tree = Tree(tmp_path)
    tree.add("/odd\udcff\n{name} 5", used=GIB)
    assert [cgroup.memory[PCI].used for cgroup in read(tmp_path).cgroups.values()] == [GIB]


def test_a_tree_of_a_tenant_does_not_hide_the_containers(tmp_path, monkeypatch):
    tree = Tree(tmp_path)
    tree.add(container_path("a"), used=GIB)
    for number in range(30):
        tree.add(f"{container_path('a')}/x{number}/y")
    tree.add(container_path("b"), used=GIB)
    monkeypatch.setattr(device_memory, "MOST_CGROUPS", 20)

    found = read(tmp_path)

    assert {container_path("a"), container_path("b")} <= found.cgroups.keys()
    assert found.problems == (f"{tmp_path}: has more than 20 cgroups; the rest is not read",)


def test_links_to_other_places_are_not_followed(tmp_path):
    tree = Tree(tmp_path / "root")
    tree.add(container_path("a"))
    outside = Tree(tmp_path / "outside")
    outside.add("/other", used=GIB)
    (tmp_path / "root/link").symlink_to(tmp_path / "outside")
    assert all("link" not in path for path in read(tmp_path / "root").cgroups)


def test_the_exporters_own_cgroup_is_known_by_its_pod_and_by_its_path(tmp_path):
    tree = Tree(tmp_path)
    tree.add(container_path("a"))
    tree.add("/system.slice/gpuslice-exporter.service")
    assert read(tmp_path, uid=UIDS["a"]).own == {container_path("a"), pod_path("a")}
    unit = "/system.slice/gpuslice-exporter.service"
    assert read(tmp_path, path=unit).own == {unit}
    assert read(tmp_path).own == set()


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("0::/system.slice/x.service\n", "/system.slice/x.service"),
        ("12:memory:/a\n0::/b\n", "/b"),
        ("0::/\n", ""),
        ("0::/../../x\n", ""),
        ("", ""),
        ("junk", ""),
    ],
)
def test_a_private_cgroup_namespace_does_not_show_the_own_path(text, path):
    assert own_cgroup(text) == path
