"""The files of sharing systems on a fake node, read back by the readers for real nodes."""

from pathlib import Path

import pytest

from exporter.demo.present import present
from exporter.demo.sharing_files import SharingFiles
from exporter.model import DeviceUse
from exporter.sharing.base import Roots
from exporter.sharing.hami.ascend import read_vnpu
from exporter.sharing.hami.cache import LAYOUTS
from exporter.sharing.hami.cache_files import read_hami
from exporter.sharing.vgpu_manager import read_vgpu_manager
from tests.fake.demo.making import MIB, Bench, gpu, made, pod

GIB = 1024 * MIB


def read(tmp_path: Path, reader, meter, shares, *processes):
    """Write the file of one container at time 0, and read it; its pod is ``uid-p`` of container main."""
    a_pod = pod("p", *processes)
    a_pod["containers"][0] |= {"meter": meter, "shares": shares}
    bench = Bench(made(gpus=[gpu(count=2)], pods=[a_pod]))
    SharingFiles(bench.scenario, tmp_path).step(present(bench.scenario, 0), bench.gpus)
    roots = Roots(
        **dict.fromkeys(Roots.__dataclass_fields__, tmp_path)
        | {
            "hami": tmp_path / "usr/local/vgpu",
            "hami_vnpu": tmp_path / "usr/local/hami-vnpu-core",
            "vgpu_manager": tmp_path / "etc/vgpu-manager",
        }
    )
    files = reader(roots)
    assert files.problems == ()
    (file,) = files.containers
    assert (file.pod_uid, file.container) == (
        bench.scenario.pods[0].uid,
        bench.scenario.pods[0].containers[0].name,
    )
    return file, [board.uuid for board in bench.scenario.gpus]


@pytest.mark.parametrize("layout", [layout.name for layout in LAYOUTS])
def test_caches_of_hami_have_limits_and_use_by_pid_in_every_layout(layout, tmp_path):
    """Only later layouts have the load of idle processes."""
    share = {"device": "{gpu:1}", "memory": "2 GiB", "cores": 40}
    busy = {"pid": 77, "device": "{gpu:1}", "memory": "1 GiB", "load": {"high": 30}}
    idle = {"pid": 78, "device": "{gpu:1}", "memory": "300 MiB"}

    file, uuids = read(tmp_path, read_hami, {"kind": "hami", "layout": layout}, [share], busy, idle)

    assert file.devices == (
        DeviceUse(
            device=uuids[1],
            memory_limit=2 * GIB,
            compute_limit=0.4,
            memory_used=1324 * MIB,
            compute_used=0.3 if layout in {"1.1-shifted", "1.2"} else None,
        ),
    )
    assert file.pids == (77, 78)


def test_devices_in_a_cache_are_in_the_drivers_order_without_limits_that_differ(tmp_path):
    shares = [{"device": "{gpu:1}", "memory": "2 GiB"}, {"device": "{gpu:0}", "memory": "1 GiB"}]
    process = {"pid": 77, "device": "{gpu:1}", "memory": "512 MiB"}

    file, uuids = read(tmp_path, read_hami, {"kind": "hami"}, shares, process)

    devices = [(use.device, use.memory_limit, use.memory_used) for use in file.devices]
    assert devices == [(uuids[0], None, 0), (uuids[1], None, 512 * MIB)]


def test_files_of_vgpu_manager_have_each_device_at_the_place_of_its_gpu(tmp_path):
    """A policy of none does not limit compute."""
    share = {"device": "{gpu:1}", "memory": "2 GiB", "cores": 40}
    limited, uuids = read(tmp_path / "a", read_vgpu_manager, {"kind": "vgpu-manager"}, [share])
    meter = {"kind": "vgpu-manager", "layout": "none"}
    free, _ = read(tmp_path / "b", read_vgpu_manager, meter, [share])

    assert limited.devices == (DeviceUse(device=uuids[1], memory_limit=2 * GIB, compute_limit=0.4),)
    assert free.devices == (DeviceUse(device=uuids[1], memory_limit=2 * GIB),)


def test_files_of_npus_have_the_use_that_the_scenario_lists(tmp_path):
    share = {"device": "npu-0", "memory": "8 GiB"}
    file, _ = read(tmp_path, read_vnpu, {"kind": "hami-vnpu", "layout": "1024,512"}, [share])

    assert file.devices == (DeviceUse(device="", memory_limit=8 * GIB, memory_used=1536 * MIB),)
