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
from exporter.formats.text import snapshot_text
from exporter.model import Totals
from tests.core.commands.program import TIMEOUT, command, environment, nothing_here, output_of, run
from tests.page.web.views_reading import NOW, gpu, holder, snapshot

SCENARIO = "t4-timeslicing"
MIB = 1 << 20


def test_text_is_the_default():
    """It has the node, its GPUs and their holders, and says that the numbers are made up."""
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


def test_json_has_every_level():
    document = json.loads(output_of("snapshot", "--scenario", SCENARIO, "--format", "json"))
    assert document["demo"] is True
    assert document["node"]["node"] == "gpu-t4-1"
    assert len(document["gpus"]) == 4
    assert len(document["containers"]) == 14
    (chloe,) = [row for row in document["containers"] if row["pod"] == "nb-chloe"]
    assert chloe["memory_used_bytes"] == 5120 * MIB
    assert chloe["memory_entitled_bytes"] == 1536 * MIB
    assert all(collector["success"] == 1 for collector in document["collectors"])


def test_unknown_use_is_null_in_json():
    document = json.loads(output_of("snapshot", "--scenario", "gke", "--format", "json"))
    assert document["containers"]
    for row in document["containers"]:
        assert (row["memory_used_bytes"], row["compute_used_ratio"], row["processes"]) == (None, None, None)
        assert row["slices"] == 1


def test_csv_has_a_line_for_each_container_and_device():
    rows = list(csv.DictReader(io.StringIO(output_of("snapshot", "--scenario", SCENARIO, "--format", "csv"))))
    assert len(rows) == 14
    assert {row["pod"] for row in rows} >= {"nb-anna", "infer-1", "shell-oskar"}
    (oskar,) = [row for row in rows if row["pod"] == "shell-oskar"]
    assert (oskar["slices"], oskar["memory_entitled_bytes"]) == ("0", "")


def test_prometheus_is_the_page_of_metrics():
    page = output_of("snapshot", "--scenario", SCENARIO, "--format", "prometheus")
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    assert [sample.value for sample in samples if sample.name == "gpuslice_node_gpus"] == [4]
    held = {s.labels["pod"]: s.value for s in samples if s.name == "gpuslice_container_slices"}
    assert (held["infer-1"], held["shell-oskar"]) == (3, 0)
    assert any(sample.name == "DCGM_FI_DEV_GPU_UTIL" for sample in samples)


@pytest.mark.parametrize(
    ("options", "variables"),
    [(("--dcgm-names", "only"), {}), ((), {"GPUSLICE_DCGM_NAMES": "only"})],
    ids=["option", "variable"],
)
def test_settings_shape_the_page(options, variables):
    done = run("snapshot", "--scenario", "a10-mps", "--format", "prometheus", *options, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert "DCGM_FI_DEV_GPU_UTIL" in done.stdout
    assert "gpuslice_gpu_info" not in done.stdout


@pytest.mark.slow
def test_a_profiling_metric_has_its_two_samples():
    """After one poll it has no value; the second poll is as much later as the metric needs."""
    page = output_of("snapshot", "--scenario", "h100-mixed", "--format", "prometheus")
    assert "\ngpuslice_gpu_sm_active_ratio{" in page
    assert "\nDCGM_FI_PROF_GR_ENGINE_ACTIVE{" in page


def test_a_machine_without_a_gpu_is_a_success(tmp_path):
    """The output says which sources fail, and what to do."""
    text = output_of("snapshot", *nothing_here(tmp_path), "--node-name", "laptop")
    assert text.startswith("laptop · ")
    assert "0 GPUs" not in text
    failures = [line for line in text.splitlines() if line.startswith("! ")]
    assert [line.split()[1] for line in failures[:2]] == ["nvml", "podresources"]
    assert "--nvml-library" in failures[0]
    assert json.loads(output_of("snapshot", *nothing_here(tmp_path), "--format", "json"))["gpus"] == []


def test_early_readings_are_not_stale_after_a_slow_driver(tmp_path):
    """A driver whose start takes longer than --stale-after does not cost the holders."""
    hang = NvmlHang(kind="nvml_hang", function="nvmlDeviceGetCount_v2", seconds=0.5)
    slow = tmp_path / "slow.json"
    slow.write_text(dump(replace(catalog.load("a10-mps"), faults=(hang,))))
    flags = ("--poll-interval", "100ms", "--stale-after", "200ms", "--format", "json")
    document = json.loads(output_of("snapshot", "--scenario", slow, *flags))
    assert [row["slices"] for row in document["containers"]] == [1, 1, 1]
    assert [row["memory_used_bytes"] is None for row in document["containers"]] == [False] * 3


def test_a_closed_pipe_is_not_an_error():
    """As with ``| head``: exit code 0, and no traceback."""
    process = subprocess.Popen(
        command("snapshot", "--scenario", SCENARIO),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    process.stdout.close()
    complaints = process.stderr.read()
    process.stderr.close()
    assert process.wait(TIMEOUT) == 0
    assert "Error" not in complaints


def test_all_forms_judge_idleness_by_the_setting():
    quiet = holder("train", compute_used=0.0, totals=Totals(first_seen=NOW - 900, last_active=NOW - 120))
    shown = snapshot([gpu()], [quiet])
    for after, text, state in (
        ("1m", "idle, holding memory (2 min)", "idle-memory"),
        ("10m", "quiet (2 min)", "quiet"),
    ):
        settings = load_settings({"idle_after": after}, {})
        assert text in FORMATS["text"](shown, settings)
        (row,) = json.loads(FORMATS["json"](shown, settings))["containers"]
        assert (row["state"], row["quiet_seconds"]) == (state, 120.0)
        assert FORMATS["csv"](shown, settings).splitlines()[1].endswith(f",{state},120.0")


def test_all_forms_say_each_of_several_states():
    """A holder over its share may be idle too."""
    facts = {"compute_used": 0.0, "memory_used": 20 << 30, "memory_entitled": 16 << 30}
    idle = holder("train", **facts, totals=Totals(first_seen=NOW - 900, last_active=NOW - 120))
    settings = load_settings({"idle_after": "1m"}, {})
    shown = snapshot([gpu()], [idle])

    assert "over its share, idle, holding memory (2 min)" in FORMATS["text"](shown, settings)
    (row,) = json.loads(FORMATS["json"](shown, settings))["containers"]
    assert (row["state"], row["other_states"]) == ("over-share", ["idle-memory"])
    assert FORMATS["csv"](shown, settings).splitlines()[1].endswith(",idle-memory,over-share,120.0")


def test_rows_fit_into_the_terminal():
    """Cells are wrapped between words; a word is never broken."""
    name = "a-rather-long-name-of-a-pod"
    text = snapshot_text(snapshot([gpu()], [holder(name)]), now=NOW, width=100)
    table = [line for line in text.splitlines() if "  " in line.strip()]

    assert name in text
    assert max(map(len, table)) <= 100
    assert max(map(len, snapshot_text(snapshot([gpu()], [holder(name)]), now=NOW).splitlines())) > 100
