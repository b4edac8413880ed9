"""Jobs of a batch system: the files of dcgm-exporter's form, the rows they end on, and their series."""

import os
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.demo.scenario.catalog import load
from exporter.model import GpuIdentity, GpuRow, JobFiles
from exporter.workloads import jobs
from exporter.workloads.jobs import (
    LONGEST_ID,
    MOST_BYTES,
    MOST_JOBS,
    JobFilesError,
    gpus_with_jobs,
    migs_with_jobs,
    read_jobs,
)
from tests.core.poller.bench import failing, health, polled
from tests.fake.demo.making import gpu, made
from tests.page.web.views_reading import draw
from tests.page.web.views_reading import gpu as gpu_row
from tests.page.web.views_reading import mig as mig_row
from tests.page.web.views_reading import snapshot as page_of


def written(folder, files):
    """Write files by their names, and return their jobs."""
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_jobs(folder)


def test_files_are_named_by_gpu_or_gpu_instance(tmp_path):
    (tmp_path / "iamdir").mkdir()
    (tmp_path / "7").mkdir()
    found = written(tmp_path, {"0": "job1-0\n", "1": "job1-1\njob2-1\n", "3.0": "job3.0-0"})
    assert found.jobs == {(0, None): ("job1-0",), (1, None): ("job1-1", "job2-1"), (3, 0): ("job3.0-0",)}
    assert [problem.about for problem in found.problems] == [str(tmp_path / "7")]


@pytest.mark.parametrize(
    "name", ["", "00", "01", "1.", ".1", "1.2.3", "1.02", "-1", "+1", "1 ", "1e3", "٣", "12345", "job", "1.x"]
)
def test_other_names_are_ignored(tmp_path, name):
    assert written(tmp_path, {name: "4711\n"} if name else {}) == JobFiles()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", ()),
        ("\n\n", ()),
        ("4711", ("4711",)),
        ("4711\r\n4712\r\n", ("4711", "4712")),
        ("  4711  \n4711\n4712\n4711\n", ("4711", "4712")),
        ("4711_12.batch\n", ("4711_12.batch",)),
        ("jöb\n", ("jöb",)),
        (b"\xff4711\n", ("�4711",)),
        ("1\n" * 9000, ("1",)),
    ],
)
def test_each_different_line_is_a_job(tmp_path, content, expected):
    assert written(tmp_path, {"0": content}) == JobFiles(jobs={(0, None): expected})


@pytest.mark.parametrize(
    "content",
    [
        "x" * (MOST_BYTES + 1),
        "\n".join(map(str, range(MOST_JOBS + 1))),
        "x" * (LONGEST_ID + 1),
        "4711\0\n",
        "4711\n\x1b[2J\n",
        "47\u202e11",
    ],
    ids=["too large", "too many", "too long", "binary", "an escape", "written backwards"],
)
def test_an_invalid_file_costs_only_itself(tmp_path, content):
    found = written(tmp_path, {"0": content, "1": "4711"})
    assert found.jobs == {(1, None): ("4711",)}
    assert [(problem.reason, problem.about) for problem in found.problems] == [("file", str(tmp_path / "0"))]


@pytest.mark.parametrize("kind", ["link", "dangling", "fifo"])
def test_nothing_is_followed_or_waited_for(tmp_path, kind):
    """A link leads out of the directory, and a pipe may never have a writer."""
    if kind == "fifo":
        os.mkfifo(tmp_path / "0")
    else:
        (tmp_path / "0").symlink_to("/etc/passwd" if kind == "link" else "nowhere")
    found = read_jobs(tmp_path)
    assert found.jobs == {}
    assert len(found.problems) == 1


def test_a_missing_directory_is_an_error(tmp_path):
    with pytest.raises(JobFilesError, match="No such file") as caught:
        read_jobs(tmp_path / "absent")
    assert caught.value.reason == "directory"
    (tmp_path / "file").touch()
    with pytest.raises(JobFilesError):
        read_jobs(tmp_path / "file")


def test_a_crowded_directory_is_read_within_bounds(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "MOST_NAMES", 20)
    files = {str(number): "1" for number in range(30)}
    assert len(written(tmp_path, files).jobs) == 20


def test_files_of_others_do_not_crowd_out_those_of_devices(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "MOST_NAMES", 20)
    others = {f"job-{number}": "" for number in range(30)}
    assert written(tmp_path, {**others, "2.5": "4711"}).jobs == {(2, 5): ("4711",)}


@given(content=st.binary(max_size=200))
def test_any_content_is_jobs_or_a_problem(tmp_path_factory, content):
    """No content raises; what comes out is lines of printable text, each once."""
    found = written(tmp_path_factory.mktemp("jobs"), {"0": content})
    jobs = found.jobs.get((0, None), ())
    assert len(jobs) == len(set(jobs))
    assert all(job.isprintable() and job == job.strip() and job for job in jobs)
    assert bool(found.problems) == ((0, None) not in found.jobs)


def test_rows_have_the_jobs_of_their_index_and_instance():
    """A GPU goes by its index, a MIG device by that and its GPU instance; other vendors are not counted."""
    amd = GpuRow(identity=GpuIdentity(uuid="GPU-amd", index=0, vendor="amd"), reading=None)
    gpus = (gpu_row(0), gpu_row(1), amd)
    migs = (mig_row("a", gpu_uuid="GPU-1"), mig_row("b", gpu_uuid="GPU-1", gi=2), mig_row("c", gpu_uuid="x"))
    jobs = {(0, None): ("7",), (1, 1): ("8", "9")}
    assert [row.jobs for row in gpus_with_jobs(gpus, jobs)] == [("7",), (), ()]
    assert [row.jobs for row in migs_with_jobs(migs, gpus, jobs)] == [("8", "9"), (), ()]


def test_a_job_is_on_the_gpu_that_has_its_index_now():
    """A GPU that is missing keeps its index, which another has after a reload; two that answer have none."""
    gone, now, other = gpu_row(0), gpu_row(1), gpu_row(2)
    gone = replace(gone, reading=replace(gone.reading, up=False))
    now, other = (replace(row, identity=replace(row.identity, index=0)) for row in (now, other))
    jobs = {(0, None): ("7",), (0, 1): ("8",)}
    migs = tuple(mig_row(row.identity.uuid, gpu_uuid=row.identity.uuid) for row in (gone, now))
    assert [row.jobs for row in gpus_with_jobs((gone, now), jobs)] == [(), ("7",)]
    assert [row.jobs for row in migs_with_jobs(migs, (gone, now), jobs)] == [(), ("8",)]
    assert [row.jobs for row in gpus_with_jobs((gone,), jobs)] == [("7",)]
    assert [row.jobs for row in gpus_with_jobs((now, other), jobs)] == [(), ()]


async def test_jobs_come_with_a_poll_and_go_with_their_file(tmp_path):
    (tmp_path / "0").write_text("4711\n")
    (tmp_path / "1").write_bytes(b"\0")
    async with polled(made(gpus=[gpu(), gpu()]), job_mapping_dir=tmp_path) as (_, poller):
        for _ in range(2):
            snapshot = await poller.poll()
            assert [row.jobs for row in snapshot.gpus] == [("4711",), ()]
            assert health(snapshot, "jobs").errors == {"file": 1}
        (tmp_path / "0").unlink()
        snapshot = await poller.poll()
        assert [row.jobs for row in snapshot.gpus] == [(), ()]
        assert failing(snapshot) == set()


async def test_a_directory_that_goes_fails_its_collector_alone(tmp_path):
    folder = tmp_path / "jobs"
    folder.mkdir()
    (folder / "0").write_text("4711\n")
    async with polled(made(gpus=[gpu()]), job_mapping_dir=folder, stale_after=60.0) as (_, poller):
        await poller.poll()
        (folder / "0").unlink()
        folder.rmdir()
        snapshot = await poller.poll()
        assert failing(snapshot) == {"jobs"}
        assert health(snapshot, "jobs").errors == {"directory": 1}
        assert snapshot.gpus[0].jobs == ("4711",)


async def test_without_the_option_there_is_no_such_collector():
    async with polled(made(gpus=[gpu()])) as (_, poller):
        snapshot = await poller.poll()
        assert "jobs" not in {each.name for each in snapshot.collectors}
        assert snapshot.gpus[0].jobs == ()


def test_the_page_shows_jobs_on_their_gpu():
    """Each job once, whether it has the whole GPU or a MIG device."""
    cut = replace(gpu_row(0, sharing="mig", mig_enabled=True, mig_slices=7), jobs=("4711", "<b>"))
    mig = replace(mig_row("a"), jobs=("4712", "4711"))
    page = draw(page_of([cut, gpu_row(1)], migs=[mig]))
    assert "jobs 4711, <b>, 4712" in page.one(id="gpu-0").text
    assert not re.search(r"\bjobs?\b", page.one(id="gpu-1").text)


@pytest.mark.parametrize("patterns", [[r"app\.kubernetes\.io/.*", "team"], ["t.am"], ["nothing"], []])
async def test_pods_have_the_labels_that_the_settings_select(patterns):
    """Patterns match whole names; a pod has a row if it is on a device here and has such a label."""
    scenario = load("a10-mps")
    labels = {"app.kubernetes.io/name": "detector", "team": "vision", "steam": "x"}
    pods = tuple(
        replace(each, labels=labels if each.name != "tracker" else {"steam": "y"}) for each in scenario.pods
    )
    elsewhere = replace(pods[0], name="web", uid="00000000-0000-4000-8000-000000000000", containers=())
    compiled = tuple(map(re.compile, patterns))
    async with polled(replace(scenario, pods=(*pods, elsewhere)), pod_labels=compiled) as (_, poller):
        snapshot = await poller.poll()
    wanted = tuple(
        (name, value) for name, value in labels.items() if any(each.fullmatch(name) for each in compiled)
    )
    found = {(row.namespace, row.name): row.labels for row in snapshot.pods}
    assert found == ({("vision", f"detector-{n}"): wanted for n in range(2)} if wanted else {})
    uids = {row.holder.pod: row.pod_uid for row in snapshot.containers}
    assert all(row.uid == uids[row.name] for row in snapshot.pods)
