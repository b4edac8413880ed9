"""``doctor FILE``: expressions that go silent at the upgrade of dcgm-exporter, with file and line."""

import io
import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.core.commands.program import run

RULES = """\
groups:
  - name: gpus
    rules:
      - record: gpu:util:avg
        expr: avg by (Hostname) (DCGM_FI_DEV_GPU_UTIL)
      - alert: Busy
        expr: gpu:util:avg > 90
      - alert: New
        expr: DCGM_FI_DEV_GPU_TEMP_CELSIUS{hostname!=""} > 85
      - alert: Typo
        expr: gpuslice_gpu_memory_used_byte > 0
"""
DASHBOARD = """\
{"panels": [
  {"targets": [
    {"expr": "DCGM_FI_DEV_GPU_TEMP"},
    {"expr": "DCGM_FI_DEV_$field"}
  ]}],
 "templating": {"list": [
  {"type": "query", "query": "label_values(DCGM_FI_DEV_GPU_TEMP_CELSIUS, Hostname)"}
]}}
"""
TRIGGER = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
spec:
  triggers:
    - type: prometheus
      metadata:
        query: avg(DCGM_FI_DEV_GPU_UTIL)
"""
ADAPTER = "rules:\n- seriesQuery: DCGM_FI_DEV_GPU_UTIL\n"
CONFIG_MAP = """\
kind: ConfigMap
data:
  rules.yaml: |
    groups:
    - rules:
      - alert: Hot
        expr: DCGM_FI_DEV_GPU_TEMP > 85
"""


def _report(*files: object) -> tuple[int, dict[str, Any]]:
    done = run("doctor", "--json", *files)
    assert done.stderr == ""
    report = json.loads(done.stdout)
    assert report["exit_code"] == done.returncode
    return done.returncode, report


def _silent(tmp_path: Path, text: str) -> list[tuple[int, str, dict[str, str], dict[str, str], str]]:
    path = tmp_path / "a"
    path.write_text(text)
    return [
        (
            each["line"],
            f"{each['kind']} {each['name']}".strip(),
            each["series"],
            each["labels"],
            each["state"],
        )
        for each in _report(path)[1]["silent"]
    ]


UTIL = {"DCGM_FI_DEV_GPU_UTIL": "DCGM_FI_DEV_GPU_UTIL_RATIO"}
TEMP = {"DCGM_FI_DEV_GPU_TEMP": "DCGM_FI_DEV_GPU_TEMP_CELSIUS"}
HOST = {"Hostname": "hostname"}


@pytest.mark.parametrize(
    ("text", "silent"),
    [
        (
            RULES,
            [
                (5, "record gpu:util:avg", UTIL, HOST, "will be silent"),
                (7, "alert Busy", {}, {}, "will be silent"),
            ],
        ),
        (
            DASHBOARD,
            [
                (3, "expression", TEMP, {}, "will be silent"),
                (4, "expression", {}, {}, "unknown"),
                (7, "expression", {}, HOST, "will be silent"),
            ],
        ),
        (TRIGGER, [(7, "expression", UTIL, {}, "will be silent")]),
        (ADAPTER, [(2, "expression", UTIL, {}, "will be silent")]),
        (CONFIG_MAP, [(7, "alert Hot", TEMP, {}, "will be silent")]),
        ("\ufeff" + ADAPTER, [(2, "expression", UTIL, {}, "will be silent")]),
        ("DCGM_FI_DEV_GPU_UTIL, gauge, help\n", []),
        ("a: 1\n", []),
    ],
)
def test_what_goes_silent_is_listed_by_line(tmp_path: Path, text: str, silent: list[Any]) -> None:
    assert _silent(tmp_path, text) == silent


def test_the_exit_code_and_the_text(tmp_path: Path) -> None:
    """Nothing is written, and no node is looked at."""
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    done = run("doctor", path)

    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "1 file"
    assert f"{path}:5" in next(line for line in lines if line.startswith("degraded  record gpu:util:avg"))
    assert any(line.strip() == f"fix:  gpuslice-exporter translate {path}" for line in lines)
    assert "gpuslice_gpu_memory_used_bytes" in done.stdout
    assert path.read_text() == RULES

    path.write_text("groups: []\n")
    assert run("doctor", path).returncode == 0


def test_a_record_of_one_file_is_followed_into_another(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("- alert: Busy\n  expr: gpu:util:avg > 90\n")
    (tmp_path / "b.yaml").write_text(RULES)
    _, report = _report(tmp_path / "a.yaml", tmp_path / "b.yaml")

    assert report["silent"][0]["through"] == ["gpu:util:avg"]
    assert _report(tmp_path / "a.yaml")[0] == 0


def test_a_file_that_cannot_be_read_is_missing_and_costs_only_itself(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(RULES)
    (tmp_path / "b.yaml").write_text("groups: [DCGM_FI_DEV_GPU_UTIL\n")
    (tmp_path / "c.yaml").write_bytes(b"\xff\xfe")
    code, report = _report(*(tmp_path / name for name in ("a.yaml", "b.yaml", "c.yaml", "d.yaml")))

    assert code == 3
    missing = [check["name"] for check in report["checks"] if check["status"] == "missing"]
    assert sorted(missing) == [str(tmp_path / name) for name in ("b.yaml", "c.yaml", "d.yaml")]
    assert len(report["silent"]) == 2


def test_without_the_parser_it_names_what_to_install(tmp_path: Path) -> None:
    loaded = [name for name in sys.modules if name.startswith("exporter.") and "silent" in name]
    loaded += [
        name for name in sys.modules if name.startswith(("exporter.translate", "exporter.commands.tr"))
    ]
    with patch.dict(sys.modules, {"promql_parser": None}):
        for name in loaded:
            del sys.modules[name]
        done = run("doctor", tmp_path / "a.yaml")

    assert (done.returncode, done.stdout) == (2, "")
    assert "doctor on rules needs: pip install 'gpuslice-exporter[translate]'" in done.stderr


def test_the_standard_input_is_a_file() -> None:
    with patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(RULES.encode()))):
        assert len(_report("-")[1]["silent"]) == 2
