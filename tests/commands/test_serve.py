"""``serve`` and ``demo``: they start anywhere, answer, and end when they are told to."""

import json
import signal
import socket
import time
from dataclasses import replace

import pytest

from exporter.demo.scenario import KubeletFailure, NvmlHang, catalog
from exporter.demo.scenario.catalog import dump
from tests.commands.program import END_SECONDS, TIMEOUT, nothing_here, serving
from tests.golden.page import Page
from tests.hardware.amd.tree import Tree


@pytest.mark.slow
def test_serving_a_machine_without_gpu_and_kubelet(tmp_path):
    """It starts, answers every page with what is known, points to the demo, and ends at once."""
    with serving("serve", *nothing_here(tmp_path), "--node-name", "laptop") as server:
        assert server.get("-/healthy") == "ok\n"
        wait_until_ready(server)
        page = server.get("metrics")
        shown = Page(page)
        assert shown.value("gpuslice_collector_success", collector="nvml") == 0
        assert shown.value("gpuslice_collector_success", collector="podresources") == 0
        assert shown.value("gpuslice_node_gpus") is None
        assert "gpuslice_build_info{" in page
        assert "<html" in server.get("")
        assert json.loads(server.get("api/v1/snapshot"))["demo"] is False
        code, took = server.end()
    assert code == 0
    assert took < END_SECONDS
    told = "\n".join(server.lines)
    assert "Traceback" not in told
    assert f"serving {server.url}" in told
    assert "gpuslice-exporter demo" in told


@pytest.mark.slow
def test_a_node_of_amd_alone_does_not_ask_for_the_driver_of_nvidia(tmp_path):
    """Neither its log nor its pages miss a driver that has nothing to drive here."""
    Tree(tmp_path).partitions(8)
    with serving("serve", *nothing_here(tmp_path)) as server:
        wait_until_ready(server)
        page = server.get("metrics")
        assert Page(page).value("gpuslice_node_gpus") == 1
        assert 'collector="nvml"' not in page
        server.end()
    told = "\n".join(server.lines)
    assert "8 MIG devices or partitions" in told
    assert "libnvidia" not in told
    assert "WARNING podresources" in told


def wait_until_ready(server):
    """Wait for the first poll."""
    for _ in range(100):
        try:
            assert server.get("-/ready") == "ok\n"
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("\n".join(["it does not become ready:", *server.lines]))


@pytest.mark.slow
def test_serve_is_the_default_command(tmp_path):
    """Options without a command are those of serve; its log can be read by machines."""
    with serving(*nothing_here(tmp_path), "--log-format", "json") as server:
        wait_until_ready(server)
        assert server.end()[0] == 0
    entries = [json.loads(line) for line in server.lines]
    assert {"time", "level", "logger", "message"} == set(entries[0])
    assert any(entry["level"] == "warning" and "nvml" in entry["message"] for entry in entries)


@pytest.mark.slow
def test_demo():
    """A fake node is served with its numbers, and says that they are made up."""
    with serving("demo", "--scenario", "t4-timeslicing") as server:
        assert server.lines[0] == f"A simulated GPU node (t4-timeslicing): {server.url}"
        wait_until_ready(server)
        page = server.get("metrics")
        assert Page(page).value("gpuslice_node_gpus") == 4
        assert 'pod="infer-1"' in page
        assert "nb-anna" in server.get("")
        assert json.loads(server.get("api/v1/snapshot"))["demo"] is True
        code, took = server.end(signal.SIGINT)
    assert code == 0
    assert took < END_SECONDS


@pytest.mark.slow
@pytest.mark.parametrize(("metric_set", "read"), [("core", False), ("standard", True)])
def test_what_no_series_needs_is_not_read(metric_set, read):
    """The snapshot has no value of it, and the page of the GPU says why."""
    with serving("demo", "--scenario", "t4-timeslicing", "--metric-set", metric_set) as server:
        wait_until_ready(server)
        gpu = json.loads(server.get("api/v1/snapshot"))["gpus"][0]
        page = server.get(f"gpu/{gpu['uuid']}")
    assert [gpu[name] is not None for name in ("bar1_total_bytes", "performance_state")] == [read, read]
    assert gpu["pcie_link_generation"] is not None
    assert ("not read" in page) is not read


@pytest.mark.slow
def test_demo_without_a_name():
    """The showcase is served, and polled again and again."""
    with serving("demo", "--poll-interval", "200ms") as server:
        wait_until_ready(server)
        first = json.loads(server.get("api/v1/snapshot"))
        assert len(first["gpus"]) == 12
        end = time.monotonic() + TIMEOUT
        while json.loads(server.get("api/v1/snapshot"))["sequence"] < first["sequence"] + 3:
            assert time.monotonic() < end
            time.sleep(0.1)
        assert server.end()[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        NvmlHang(kind="nvml_hang", function="nvmlDeviceGetCount_v2"),
        NvmlHang(kind="nvml_hang", function="nvmlInitWithFlags"),
        KubeletFailure(kind="kubelet_hang"),
    ],
    ids=["driver hangs", "driver hangs while it is opened", "kubelet hangs"],
)
def test_what_hangs_keeps_it_neither_from_answering_nor_from_ending(fault, tmp_path):
    """Pages are handed out at once, and SIGTERM ends the program in time, with code 0."""
    path = tmp_path / "hangs.json"
    path.write_text(dump(replace(catalog.load("a10-mps"), faults=(fault,))))
    with serving("demo", "--scenario", path, "--poll-interval", "200ms") as server:
        for page in ("metrics", "-/healthy", "", "api/v1/snapshot"):
            assert server.get(page, within=2)
        wait_until_ready(server)
        failing = "podresources" if isinstance(fault, KubeletFailure) else "nvml"
        assert Page(server.get("metrics")).value("gpuslice_collector_success", collector=failing) == 0
        code, took = server.end()
    assert code == 0
    assert took < END_SECONDS
    assert "Traceback" not in "\n".join(server.lines)


def test_a_client_that_stays_does_not_keep_it_from_ending(tmp_path):
    """An open connection is closed; whoever holds it does not have to let go first."""
    with serving("serve", *nothing_here(tmp_path)) as server:
        host, port = server.url.removeprefix("http://").rstrip("/").split(":")
        with socket.create_connection((host, int(port))) as idle:
            idle.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
            assert idle.recv(100).startswith(b"HTTP/1.1 200")
            code, took = server.end()
    assert code == 0
    assert took < END_SECONDS


@pytest.mark.slow
def test_the_fake_node_leaves_nothing_behind(tmp_path):
    """Its files are gone with the program."""
    with serving("demo", "--scenario", "a10-mps", TMPDIR=str(tmp_path)) as server:
        assert any(tmp_path.iterdir())
        assert server.end()[0] == 0
    assert list(tmp_path.iterdir()) == []
