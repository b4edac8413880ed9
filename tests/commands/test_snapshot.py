"""``snapshot``: one poll, printed in four forms."""

import csv
import io
import json
import subprocess
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from exporter.commands.snapshot import FORMATS
from exporter.config import load_settings
from exporter.demo.scenario import NvmlHang, catalog
from exporter.demo.scenario.catalog import dump
from exporter.model import Totals
from tests.commands.program import command, environment, nothing_here, output_of, run
from tests.web.views_reading import NOW, gpu, holder, snapshot

SCENARIO = "t4-timeslicing"
MIB = 1 << 20


@pytest.mark.slow
def test_text_is_the_default():
    """A person sees the node, its GPUs, who holds what, and that the numbers are made up."""
    text = output_of("snapshot", "--scenario", SCENARIO)
    lines = text.splitlines()
    assert lines[0].startswith("gpu-t4-1 · 4 GPUs (4 ")
    assert "Tesla T4" in lines[0]
    assert lines[1].startswith("DEMO")
    for pod in catalog.load(SCENARIO).pods:
        assert f"{pod.namespace}/{pod.name}/" in text
    assert "dev/shell-oskar/shell" in text
    assert "uses without holding" in text
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.slow
def test_json():
    """A program finds every level, with null for what is not known."""
    found = json.loads(output_of("snapshot", "--scenario", SCENARIO, "--format", "json"))
    assert found["demo"] is True
    assert found["node"]["node"] == "gpu-t4-1"
    assert len(found["gpus"]) == 4
    assert len(found["containers"]) == 14
    (chloe,) = [row for row in found["containers"] if row["pod"] == "nb-chloe"]
    assert chloe["memory_used_bytes"] == 5120 * MIB
    assert chloe["memory_entitled_bytes"] == 1536 * MIB
    assert all(collector["success"] == 1 for collector in found["collectors"])


@pytest.mark.slow
def test_json_of_what_is_not_known():
    """Use that cannot be attributed is null, never 0."""
    found = json.loads(output_of("snapshot", "--scenario", "gke", "--format", "json"))
    for row in found["containers"]:
        assert (row["memory_used_bytes"], row["compute_used_ratio"], row["processes"]) == (None, None, None)
        assert row["slices"] == 1


@pytest.mark.slow
def test_csv():
    """A spreadsheet gets one line per container and device, with a header."""
    rows = list(csv.DictReader(io.StringIO(output_of("snapshot", "--scenario", SCENARIO, "--format", "csv"))))
    assert len(rows) == 14
    assert {row["pod"] for row in rows} >= {"nb-anna", "infer-1", "shell-oskar"}
    (oskar,) = [row for row in rows if row["pod"] == "shell-oskar"]
    assert (oskar["slices"], oskar["memory_entitled_bytes"]) == ("0", "")


@pytest.mark.slow
def test_prometheus():
    """The page of metrics, as Prometheus reads it."""
    page = output_of("snapshot", "--scenario", SCENARIO, "--format", "prometheus")
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    assert [sample.value for sample in samples if sample.name == "gpuslice_node_gpus"] == [4]
    held = {s.labels["pod"]: s.value for s in samples if s.name == "gpuslice_container_slices"}
    assert (held["infer-1"], held["shell-oskar"]) == (3, 0)
    assert any(sample.name == "DCGM_FI_DEV_GPU_UTIL" for sample in samples)


@pytest.mark.slow
def test_settings_apply_to_the_page():
    """Options that shape /metrics shape what is printed."""
    page = output_of("snapshot", "--scenario", "a10-mps", "--format", "prometheus", "--dcgm-names", "only")
    assert "DCGM_FI_DEV_GPU_UTIL" in page
    assert "gpuslice_gpu_info" not in page


@pytest.mark.slow
def test_a_profiling_meter_has_its_two_samples():
    """One poll would show nothing of it; there are two, as far apart as the meter needs."""
    page = output_of("snapshot", "--scenario", "h100-mixed", "--format", "prometheus")
    assert "\ngpuslice_gpu_sm_active_ratio{" in page
    assert "\nDCGM_FI_PROF_GR_ENGINE_ACTIVE{" in page


@pytest.mark.slow
def test_a_machine_without_a_gpu(tmp_path):
    """It prints what there is, says what fails and what to do, and succeeds."""
    text = output_of("snapshot", *nothing_here(tmp_path), "--node-name", "laptop")
    assert text.startswith("laptop · ")
    assert "0 GPUs" not in text
    failures = [line for line in text.splitlines() if line.startswith("! ")]
    assert [line.split()[1] for line in failures[:2]] == ["nvml", "podresources"]
    assert "--nvml-library" in failures[0]
    assert json.loads(output_of("snapshot", *nothing_here(tmp_path), "--format", "json"))["gpus"] == []


@pytest.mark.slow
def test_what_was_read_early_is_not_stale_when_the_driver_is_slow(tmp_path):
    """A driver that takes longer to open than the page would keep old data costs no holders."""
    hang = NvmlHang(kind="nvml_hang", function="nvmlDeviceGetCount_v2", seconds=1)
    slow = tmp_path / "slow.json"
    slow.write_text(dump(replace(catalog.load("a10-mps"), faults=(hang,))))
    flags = ("--poll-interval", "100ms", "--stale-after", "500ms", "--format", "json")
    found = json.loads(output_of("snapshot", "--scenario", slow, *flags))
    assert [row["slices"] for row in found["containers"]] == [1, 1, 1]
    assert [row["memory_used_bytes"] is None for row in found["containers"]] == [False] * 3


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("snapshot", "--scenario", SCENARIO), ("demo", "--list")])
def test_a_reader_that_has_seen_enough(arguments: tuple[str, ...]):
    """``| head`` closes the pipe: that is no error and no traceback."""
    process = subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )
    process.stdout.close()
    complaints = process.stderr.read()
    process.stderr.close()
    assert (process.wait(30), complaints) == (0, "")


@pytest.mark.slow
def test_an_environment_variable_is_as_good_as_a_flag():
    """A wrong one is named as the user wrote it."""
    done = run("snapshot", "--scenario", "a10-mps", "--format", "json", GPUSLICE_DCGM_NAMES="off")
    assert (done.returncode, done.stderr) == (0, "")
    done = run("snapshot", "--scenario", "a10-mps", GPUSLICE_STALE_AFTER="soon")
    assert done.returncode == 2
    assert done.stderr.startswith("gpuslice-exporter: GPUSLICE_STALE_AFTER: 'soon' is not a duration")


def test_who_is_idle_is_judged_by_the_setting():
    """``--idle-after`` says so in the text, as it does on the page."""
    quiet = holder("train", compute_used=0.0, totals=Totals(first_seen=NOW - 900, last_active=NOW - 120))
    shown = snapshot([gpu()], [quiet])
    (soon, late) = (
        FORMATS["text"](shown, load_settings({"idle_after": after}, {})) for after in ("1m", "10m")
    )
    assert "idle, holding memory (2 min)" in soon
    assert "quiet (2 min)" in late


def test_all_forms_judge_by_the_setting():
    """JSON and CSV have the state and for how long, as the text has."""
    quiet = holder("train", compute_used=0.0, totals=Totals(first_seen=NOW - 900, last_active=NOW - 120))
    shown = snapshot([gpu()], [quiet])
    for after, state in (("1m", "idle-memory"), ("10m", "quiet")):
        settings = load_settings({"idle_after": after}, {})
        (row,) = json.loads(FORMATS["json"](shown, settings))["containers"]
        assert (row["state"], row["quiet_seconds"]) == (state, 120.0)
        assert FORMATS["csv"](shown, settings).splitlines()[1].endswith(f",{state},120.0")
