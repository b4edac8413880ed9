"""``serve`` and ``demo`` start on any machine, answer, and end on a signal."""

import json
import signal
import socket
from contextlib import suppress
from dataclasses import replace

import pytest

from exporter.demo.scenario import KubeletFailure, NvmlHang, catalog
from exporter.demo.scenario.catalog import dump
from tests.core.commands.program import Serving, nothing_here, serving
from tests.core.golden.page import Page
from tests.core.hardware.amd.tree import Tree
from tests.waiting import wait_until


def wait_until_ready(server: Serving) -> None:
    """Wait for the first poll."""

    def ready() -> bool:
        with suppress(OSError):
            return server.get("-/ready") == "ok\n"
        return False

    wait_until(ready, "the first poll")


def test_a_machine_without_gpu_and_kubelet_is_served(tmp_path):
    """``serve`` is the default command. The log, here as JSON, points to the demo."""
    options = ("--node-name", "laptop", "--log-format", "json")
    with serving(*nothing_here(tmp_path), *options) as server:
        assert server.get("-/healthy") == "ok\n"
        wait_until_ready(server)
        page = server.get("metrics")
        assert Page(page).value("gpuslice_collector_success", collector="nvml") == 0
        assert Page(page).value("gpuslice_collector_success", collector="podresources") == 0
        assert Page(page).value("gpuslice_node_gpus") is None
        assert "gpuslice_build_info{" in page
        assert "<html" in server.get("")
        assert json.loads(server.get("api/v1/snapshot"))["demo"] is False
        assert server.stop() == 0
    entries = [json.loads(line) for line in server.lines]
    assert all(entry.keys() == {"time", "level", "logger", "message"} for entry in entries)
    assert any(entry["level"] == "warning" and "nvml" in entry["message"] for entry in entries)
    messages = "\n".join(entry["message"] for entry in entries)
    assert f"serving {server.url}" in messages
    assert "gpuslice-exporter demo" in messages


def test_a_node_with_amd_gpus_only_does_not_miss_the_driver_of_nvidia(tmp_path):
    Tree(tmp_path).partitions(8)
    with serving("serve", *nothing_here(tmp_path)) as server:
        wait_until_ready(server)
        page = server.get("metrics")
        assert Page(page).value("gpuslice_node_gpus") == 1
        assert 'collector="nvml"' not in page
        server.stop()
    log = "\n".join(server.lines)
    assert "8 MIG devices or partitions" in log
    assert "libnvidia" not in log
    assert "WARNING podresources" in log


@pytest.mark.parametrize(
    ("words", "name", "gpus", "read"),
    [
        (["--scenario", "t4-timeslicing", "--metric-set", "core"], "t4-timeslicing", 4, False),
        (["--metric-set", "standard", "--poll-interval", "200ms"], "showcase", 12, True),
    ],
    ids=["core", "standard"],
)
def test_demo_serves_a_fake_node_and_removes_its_files(words, name, gpus, read, tmp_path):
    """Readings that no series of the set needs are not read: the page of the GPU says so."""
    with serving("demo", *words, TMPDIR=str(tmp_path)) as server:
        assert f"A simulated GPU node ({name}): {server.url}" in server.lines
        wait_until_ready(server)
        assert any(tmp_path.iterdir())
        assert Page(server.get("metrics")).value("gpuslice_node_gpus") == gpus
        snapshot = json.loads(server.get("api/v1/snapshot"))
        assert snapshot["demo"] is True
        assert snapshot["containers"][0]["pod"] in server.get("")
        gpu = snapshot["gpus"][0]
        assert [gpu[field] is not None for field in ("bar1_total_bytes", "performance_state")] == [read] * 2
        assert gpu["pcie_link_generation"] is not None
        assert ("not read" in server.get(f"gpu/{gpu['uuid']}")) is not read
        assert server.stop(signal.SIGINT) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "failing"),
    [
        (NvmlHang(kind="nvml_hang", function="nvmlDeviceGetCount_v2"), "nvml"),
        (NvmlHang(kind="nvml_hang", function="nvmlInitWithFlags"), "nvml"),
        (KubeletFailure(kind="kubelet_hang"), "podresources"),
    ],
    ids=["driver hangs", "driver hangs while it is opened", "kubelet hangs"],
)
def test_a_hang_delays_neither_answers_nor_the_end(fault, failing, tmp_path):
    """The hang lasts as long as the program."""
    path = tmp_path / "hangs.json"
    path.write_text(dump(replace(catalog.load("a10-mps"), faults=(fault,))))
    with serving("demo", "--scenario", path, "--poll-interval", "200ms") as server:
        for page in ("metrics", "-/healthy", "", "api/v1/snapshot"):
            assert server.get(page)
        wait_until_ready(server)
        assert Page(server.get("metrics")).value("gpuslice_collector_success", collector=failing) == 0
        assert server.stop() == 0
    assert "Traceback" not in "\n".join(server.lines)


def test_an_open_connection_does_not_delay_the_end(tmp_path):
    with serving("serve", *nothing_here(tmp_path)) as server:
        host, port = server.url.removeprefix("http://").rstrip("/").split(":")
        with socket.create_connection((host, int(port))) as idle:
            idle.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
            assert idle.recv(100).startswith(b"HTTP/1.1 200")
            assert server.stop() == 0
