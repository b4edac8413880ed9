"""The command: what it prints and writes, and its exit codes."""

import io
import stat
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.core.commands.program import run
from tests.tools import lacks

GOOD = "groups:\n- rules:\n  - alert: Busy\n    expr: DCGM_FI_DEV_GPU_UTIL > 90\n"
NEW = GOOD.replace("UTIL >", "UTIL_RATIO * 100 >")
PARTLY = GOOD + "  - alert: Odd\n    expr: changes(DCGM_FI_DEV_FB_USED[5m]) > 5\n"
BROKEN = "groups: [DCGM_FI_DEV_GPU_UTIL\n"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Write the files of these tests."""
    paths = {}
    for name, text in {"good": GOOD, "partly": PARTLY, "broken": BROKEN, "none": "a: 1\n"}.items():
        paths[name] = tmp_path / f"{name}.yaml"
        paths[name].write_text(text)
    return paths


def test_a_diff_is_printed_that_patch_can_apply(files: dict[str, Path], tmp_path: Path) -> None:
    """Nothing is written; also of a file whose last line has no end."""
    files["good"].write_text(GOOD.removesuffix("\n"))
    done = run("translate", files["good"])

    assert (done.returncode, done.stderr) == (0, "1 expression translated, 0 not, in 1 file\n")
    assert files["good"].read_text() == GOOD.removesuffix("\n")
    try:
        subprocess.run(
            ["git", "apply", "-p1", "--unsafe-paths", "--directory=/", "-"],
            input=done.stdout,
            text=True,
            check=True,
            cwd=tmp_path,
        )
    except FileNotFoundError:
        lacks("git is not installed")
    assert files["good"].read_text() == NEW.removesuffix("\n")


def test_a_file_is_printed(files: dict[str, Path]) -> None:
    assert run("translate", "--print", files["good"]).stdout == NEW
    assert run("translate", "--print", files["none"]).stdout == "a: 1\n"


def test_files_are_changed_in_place(files: dict[str, Path]) -> None:
    """With their rights; one that does not change is not written."""
    files["good"].chmod(0o640)
    before = files["none"].stat().st_mtime_ns
    done = run("translate", "--in-place", files["good"], files["none"])

    assert (done.returncode, done.stdout) == (0, "")
    assert files["good"].read_text() == NEW
    assert stat.S_IMODE(files["good"].stat().st_mode) == 0o640
    assert files["none"].stat().st_mtime_ns == before


def test_what_is_not_translated_is_listed_with_its_place(files: dict[str, Path]) -> None:
    """The rest of the file is translated."""
    done = run("translate", "--print", files["partly"])
    odd = "changes(DCGM_FI_DEV_FB_USED[5m]) > 5"

    assert done.returncode == 1
    assert done.stdout == PARTLY.replace("UTIL >", "UTIL_RATIO * 100 >")
    assert done.stderr.splitlines() == [
        f"{files['partly']}:6: not translated: changes() counts other steps in the new unit: {odd}",
        "1 expression translated, 1 not, in 1 file",
    ]


def test_a_broken_file_costs_only_itself(files: dict[str, Path], tmp_path: Path) -> None:
    done = run("translate", "--in-place", files["broken"], tmp_path / "nowhere.yaml", files["good"])

    assert done.returncode == 2
    assert files["good"].read_text() == NEW
    assert files["broken"].read_text() == BROKEN
    assert f"{tmp_path}/nowhere.yaml: No such file or directory" in done.stderr
    assert f"{files['broken']}: not YAML: line 2, column 1: " in done.stderr


def test_other_targets_and_kept_names(files: dict[str, Path]) -> None:
    ours = run("translate", "--print", "--to", "gpuslice", files["good"])
    kept = run("translate", "--print", "--keep", "DCGM_FI_DEV_GPU_UTIL", files["good"])

    assert ours.stdout == GOOD.replace("DCGM_FI_DEV_GPU_UTIL", "gpuslice_gpu_utilization_ratio * 100")
    assert kept.stdout == GOOD


def test_a_record_with_an_old_name_is_kept(tmp_path: Path) -> None:
    """It may be there to give the old name back."""
    text = "- {record: DCGM_FI_DEV_GPU_UTIL, expr: DCGM_FI_DEV_GPU_UTIL_RATIO * 100}\n"
    text += "- expr: DCGM_FI_DEV_GPU_UTIL\n"
    (tmp_path / "a.yaml").write_text(text)
    done = run("translate", "--print", tmp_path / "a.yaml")

    assert (done.returncode, done.stdout) == (0, text)
    assert "note: DCGM_FI_DEV_GPU_UTIL is a recording rule of these files" in done.stderr


def test_the_standard_input_is_a_file() -> None:
    with patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode()))):
        done = run("translate", "--print", "-")

    assert (done.returncode, done.stdout) == (0, NEW)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--print", "good", "none"), "--print is for one file"),
        (("--in-place", "-"), "--in-place needs files"),
        (("--keep", "up", "good"), "--keep: up would not be replaced"),
        (("--to", "dcgm-3", "good"), "invalid choice"),
        ((), "required: FILE"),
    ],
)
def test_wrong_arguments_are_refused(files: dict[str, Path], arguments: tuple[str, ...], reason: str) -> None:
    done = run("translate", *(files.get(word, word) for word in arguments))

    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr


def test_a_file_of_other_bytes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"expr: DCGM_FI_DEV_GPU_UTIL # \xff\n")
    done = run("translate", tmp_path / "a.yaml")

    assert done.returncode == 2
    assert "a.yaml: not UTF-8: " in done.stderr


def test_without_the_parser_it_names_what_to_install(files: dict[str, Path]) -> None:
    loaded = [
        name for name in sys.modules if name.startswith(("exporter.translate", "exporter.commands.translate"))
    ]
    with patch.dict(sys.modules, {"promql_parser": None}):
        for name in loaded:
            del sys.modules[name]
        done = run("translate", files["good"])

    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'gpuslice-exporter[translate]'" in done.stderr
