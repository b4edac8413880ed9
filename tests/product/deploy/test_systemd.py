"""The units for machines without Kubernetes are valid and confined; the scripts for Slurm record jobs."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from exporter.cli import main
from exporter.config import load_settings
from exporter.workloads.jobs import read_jobs
from tests.core.golden.page import Page
from tests.product.deploy.tools import ROOT, output, tool

UNITS = ROOT / "deploy/systemd"
PAGE = (ROOT / "docs/systemd.md").read_text()
NAMES = ("gpuslice-exporter", "gpuslice-hub")
# systemd's own measure, from 0.0 for a service that can do nothing to 10.0 for one without limits.
MOST_EXPOSED = {"gpuslice-exporter": 1.6, "gpuslice-hub": 1.1}


def _unit(name: str) -> dict[str, list[str]]:
    lines = (UNITS / f"{name}.service").read_text().splitlines()
    settings: dict[str, list[str]] = {}
    for key, _, value in (line.partition("=") for line in lines if re.match(r"[A-Z]\w+=", line)):
        settings.setdefault(key, []).append(value)
    return settings


def _variables(name: str) -> dict[str, str]:
    lines = (UNITS / f"{name}.default").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@pytest.mark.tools
@pytest.mark.parametrize("name", NAMES)
def test_systemd_knows_every_line_of_the_units(name, tmp_path) -> None:
    text = (UNITS / f"{name}.service").read_text()
    installed, command = "/opt/gpuslice-exporter/bin/gpuslice-exporter", shutil.which("true")
    assert installed in text
    unit = tmp_path / f"{name}.service"
    unit.write_text(text.replace(installed, command))

    done = _verify(unit)

    assert [line for line in done.stderr.splitlines() if name in line] == []
    assert done.returncode == 0


@pytest.mark.tools
def test_systemd_reports_a_misspelt_line(tmp_path) -> None:
    unit = tmp_path / "wrong.service"
    unit.write_text("[Service]\nExecStart=/bin/true\nProtectSytem=strict\n")

    assert "ProtectSytem" in _verify(unit).stderr


def _verify(unit: Path) -> subprocess.CompletedProcess[str]:
    words = [tool("systemd-analyze"), "verify", unit]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.tools
@pytest.mark.parametrize("name", NAMES)
def test_the_exposure_is_that_of_the_page(name) -> None:
    threshold = MOST_EXPOSED[name]

    output(
        "systemd-analyze",
        "security",
        "--offline=true",
        "--no-pager",
        f"--threshold={round(threshold * 10)}",
        UNITS / f"{name}.service",
    )
    assert f"{threshold} of 10" in PAGE or f"the hub {threshold}" in PAGE


@pytest.mark.parametrize("name", NAMES)
def test_the_program_has_the_command_of_the_unit(name) -> None:
    """And its options."""
    (command,) = _unit(name)["ExecStart"]
    _, *arguments = command.split()

    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--help"])

    assert ended.value.code == 0


@pytest.mark.parametrize("name", NAMES)
def test_the_sample_variables_are_settings(name) -> None:
    """The program takes every value of the sample file, and the unit reads that file."""
    variables = _variables(name)
    file = {
        key: str(UNITS / Path(value).name) for key, value in variables.items() if key == "GPUSLICE_CONFIG"
    }

    settings = load_settings({}, variables | file)

    assert _unit(name)["EnvironmentFile"] == [f"-/etc/default/{name}"]
    assert {variable.removeprefix("GPUSLICE_").lower() for variable in variables} <= set(vars(type(settings)))
    assert f"/etc/default/{name}" in (UNITS / f"{name}.default").read_text()


def test_the_sample_file_names_directories_that_exist() -> None:
    """Those of jobs and release windows, which systemd-tmpfiles makes and the scripts write to."""
    config = yaml.safe_load((UNITS / "config.yaml").read_text())
    made = re.findall(r"^d (\S+)", (UNITS / "tmpfiles.conf").read_text(), re.MULTILINE)

    assert config["job-mapping-dir"] in made
    assert str(Path(config["driver-release-file"]).parent) in made
    assert all(config["job-mapping-dir"] in path.read_text() for path in (UNITS / "slurm").iterdir())


@pytest.mark.tools
def test_systemd_makes_the_user_and_the_directories(tmp_path) -> None:
    """Root owns the directories."""
    (tmp_path / "etc").mkdir()
    text = (UNITS / "tmpfiles.conf").read_text()
    # The user of the test may be another.
    own = tmp_path / "tmpfiles.conf"
    own.write_text(text.replace(" root root ", f" {os.getuid()} {os.getgid()} "))
    output("systemd-sysusers", f"--root={tmp_path}", UNITS / "sysusers.conf")
    output("systemd-tmpfiles", "--create", f"--root={tmp_path}", own)

    assert {*_unit("gpuslice-exporter")["User"], *_unit("gpuslice-hub")["User"]} == {"gpuslice-exporter"}
    assert re.search(r"^gpuslice-exporter:", (tmp_path / "etc/passwd").read_text(), re.MULTILINE)
    assert {line.split()[3] for line in text.splitlines() if line.startswith("d ")} == {"root"}
    assert (tmp_path / "run/gpuslice-exporter/jobs").stat().st_mode & 0o777 == 0o755


def test_the_page_names_every_file() -> None:
    """And each file that it names exists."""
    files = {path.relative_to(UNITS).as_posix() for path in UNITS.rglob("*") if path.is_file()}

    assert {name for name in files if f"`{name}`" not in PAGE} == set()
    named = re.findall(r"deploy/systemd/([\w./-]+\w)", PAGE)
    assert [name for name in named if not (UNITS / name).exists()] == []


def _slurm(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess:
    # As slurmd does: no search path and few variables.
    return subprocess.run(
        [UNITS / f"slurm/{script}.sh"],
        env={"GPUSLICE_JOB_MAPPING_DIR": str(folder)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_job_is_recorded_while_it_runs(tmp_path) -> None:
    """The prolog adds a job to each of its GPUs, and the epilog removes it from all; others stay."""
    _slurm("prolog", tmp_path, SLURM_JOB_ID="71", SLURM_JOB_GPUS="0,2")
    _slurm("prolog", tmp_path, SLURM_JOB_ID="7", SLURM_JOB_GPUS="2")
    both = read_jobs(tmp_path)
    _slurm("epilog", tmp_path, SLURM_JOB_ID="7")
    one = read_jobs(tmp_path)
    _slurm("epilog", tmp_path, SLURM_JOB_ID="71", SLURM_JOB_GPUS="0,2")

    assert both.jobs == {(0, None): ("71",), (2, None): ("71", "7")}
    assert one.jobs == {(0, None): ("71",), (2, None): ("71",)}
    assert read_jobs(tmp_path).jobs == {}
    assert both.problems == one.problems == ()


def test_jobs_that_start_at_the_same_time_are_all_recorded(tmp_path) -> None:
    """Concurrent prologs and epilogs lose no job and leave none."""
    prologs = [["prolog", str(job)] for job in range(8)]

    def run(calls: list[list[str]]) -> None:
        running = [
            subprocess.Popen(
                [UNITS / f"slurm/{script}.sh"],
                env={"GPUSLICE_JOB_MAPPING_DIR": str(tmp_path), "SLURM_JOB_ID": job, "SLURM_JOB_GPUS": "0"},
            )
            for script, job in calls
        ]
        assert [each.wait() for each in running] == [0] * len(calls)

    run(prologs[:4])
    run([*prologs[4:], *(["epilog", job] for _, job in prologs[:4])])

    assert set(read_jobs(tmp_path).jobs[0, None]) == {"4", "5", "6", "7"}


@pytest.mark.parametrize("script", ["prolog", "epilog"])
def test_only_the_owner_can_hold_the_lock(script, tmp_path) -> None:
    """Any user who can open the file could lock it and block the scripts."""
    _slurm(script, tmp_path, SLURM_JOB_ID="7", SLURM_JOB_GPUS="0")

    assert (tmp_path / ".lock").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("script", ["prolog", "epilog"])
@pytest.mark.parametrize(
    "environment",
    [{}, {"SLURM_JOB_ID": "7"}, {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "../1,GPU-0,"}],
    ids=["nothing", "no GPU", "no index"],
)
def test_no_job_is_blocked(script, environment, tmp_path) -> None:
    """Without a job, a GPU, or a writable directory, the scripts succeed and write nothing else."""
    blocked = tmp_path / "file/jobs"
    blocked.parent.write_text("not a directory")

    assert _slurm(script, tmp_path / "jobs", **environment).returncode == 0
    assert _slurm(script, blocked, **environment | {"SLURM_JOB_GPUS": "0"}).returncode == 0
    assert [path.name for path in tmp_path.rglob("*") if path.name not in {"file", "jobs", ".lock"}] == []


def test_the_exporter_reports_the_jobs_that_the_scripts_record(tmp_path) -> None:
    _slurm("prolog", tmp_path, SLURM_JOB_ID="4711", SLURM_JOB_GPUS="1")

    page = subprocess.run(
        [sys.executable, "-m", "exporter", "snapshot", "--scenario=showcase", "--format=prometheus"],
        env=os.environ | {"GPUSLICE_JOB_MAPPING_DIR": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    shown = Page(page)
    uuid = shown.labels("gpuslice_gpu_info", gpu="1")["uuid"]
    assert shown.value("gpuslice_gpu_job_info", uuid=uuid, hpc_job="4711") == 1
