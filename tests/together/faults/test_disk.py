"""A full disk: the log, the output and a recording cannot be written."""

import os
import resource
import signal
import subprocess
from pathlib import Path

import pytest

from tests.core.commands.program import command, environment, run
from tests.together.faults.disk import SINKS, mute
from tests.waiting import LIMIT_SECONDS, wait_until

NODE = "t4-timeslicing"
# Far less than a recording has.
ROOM = 1000


@pytest.mark.parametrize("sink", SINKS)
def test_it_serves_on_when_its_log_cannot_be_written(tmp_path: Path, sink: str) -> None:
    """Pages come, polls go on, and it ends at a signal."""
    with SINKS[sink]() as stderr, mute(tmp_path, stderr) as served:
        first = served.polls()
        # Each of these is a line of the log.
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            served.process.send_signal(number)
            wait_until(served.answers, "it answers")
        wait_until(lambda: served.polls() > first, "it polls")
        served.process.terminate()
        assert served.process.wait(LIMIT_SECONDS) == 0


@pytest.mark.parametrize(
    "words",
    [("snapshot", "--scenario", NODE), ("metrics",)],
    ids=lambda words: words[0],
)
def test_output_that_cannot_be_written_is_one_clear_line(words: tuple[str, ...]) -> None:
    """Exit code 2 and the reason, no traceback."""
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        done = subprocess.run(
            command(*words),
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            timeout=LIMIT_SECONDS,
            check=False,
        )
    message = done.stderr.decode()
    assert (done.returncode, message.count("\n")) == (2, 1)
    assert "cannot write to standard output: No space left on device" in message


def _with_little_room() -> None:
    """Let this process write only short files: longer ones fail, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, ROOM))


@pytest.mark.parametrize("before", [None, "an older recording"])
def test_a_recording_that_does_not_fit_leaves_no_half_file(tmp_path: Path, before: str | None) -> None:
    """The folder is as it was: without the file, or with the one that was there."""
    file = tmp_path / "node.json"
    if before is not None:
        file.write_text(before)
    done = subprocess.run(
        command("record", "--scenario", NODE, "--output", file),
        capture_output=True,
        text=True,
        # Bytecode that does not fit would be kept cut short, and break the next start.
        env=environment(PYTHONDONTWRITEBYTECODE="1"),
        timeout=LIMIT_SECONDS,
        check=False,
        preexec_fn=_with_little_room,
    )
    assert done.returncode == 2
    assert f"--output: cannot write {file}: File too large" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ([] if before is None else [file.name])
    assert before is None or file.read_text() == before


def test_a_recording_may_go_to_a_pipe_or_a_link(tmp_path: Path) -> None:
    """A pipe is written to, and is a pipe afterwards; a link leads to the file that it led to."""
    target, link = tmp_path / "node.json", tmp_path / "link"
    link.symlink_to(target)
    assert run("record", "--scenario", NODE, "--output", link).returncode == 0
    assert link.is_symlink()
    assert target.stat().st_size > ROOM
    assert run("record", "--scenario", NODE, "--output", os.devnull).returncode == 0
    assert not Path(os.devnull).is_file()
